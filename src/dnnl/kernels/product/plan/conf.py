"""A product with every decision made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.blocking import Blocking
from dnnl.kernels.product.base.problem import NONE
from dnnl.kernels.product.compensation.compensation import Compensation
from dnnl.kernels.product.pack.border import Border
from dnnl.kernels.product.pack.on_the_fly import PanelPacking
from dnnl.kernels.product.pack.sparse_decoded import SparseDecodedPacking
from dnnl.kernels.product.pack.unfolded import Unfolded
from dnnl.kernels.product.pack.up_converted import as_s64
from dnnl.kernels.product.plan.contraction import Contraction
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.shared.scratchpad import Argument, Relayout
from dnnl.types.dtype import DataType

AnyContraction_co = TypeVar("AnyContraction_co", bound=Contraction, covariant=True)


@dataclass(frozen=True)
class ProductConf(Generic[AnyContraction_co]):
    """A product with every layout decided: the operands as the product reads and writes them, and
    the copies around it.

    - ``problem`` is what is computed, with the quantization that copies leave.
    - ``core`` is the type of results until they are stored in dst (`core_type`).
    - What is constant along K is applied at the end, as ``quantization``. What changes is applied
      ``per_segment``, to the sum of each ``segment`` of so many terms; if ``segment`` is 0,
      operands are ``dequantized`` when they are copied.
    - ``compensation`` are the sums that the epilogue needs (`ProductEpilogue`), in the scratchpad.
    - ``copy_out`` follows the product if dst is not computed in place. It then applies all that
      follows the bias, dropout and stochastic rounding included. Post-ops are applied earlier if
      scales of dst are computed.
    - With a ``border`` the product reads a padded copy of ``src``. ``up_converted`` is what it
      reads in place of src (`up_converted`). ``flags`` are those of panels multiplied without it
      (`pairs`).
    - ``packing`` packs panels on the fly (`on_the_fly`). Where threads have no memory for that,
      packed weights are ``decoded`` in a phase before.
    - Where ``unfolded``, src is a copy in which the pixels of dst are one line.
    - ``scratchpad`` is in bytes.
    """

    problem: AnyContraction_co
    src: Argument
    weights: Argument
    dst: Argument
    quantization: Quantization
    dequantized: Quantization
    multiply: Multiply
    core: DataType
    blocking: Blocking
    compensation: Compensation
    copies_in: tuple[Relayout, ...]
    copy_out: Relayout | None
    scratchpad: int
    segment: int = 0
    per_segment: Quantization = NONE
    border: Border | None = None
    up_converted: Argument | None = None
    flags: Argument | None = None
    packing: PanelPacking | None = None
    decoded: SparseDecodedPacking | None = None
    unfolded: Unfolded | None = None

    @property
    def factors(self) -> tuple[int, int]:
        """The arguments whose quantization is that of src and of weights."""
        return self.problem.arguments[:2]

    @property
    def read(self) -> Argument:
        """What the product reads as src."""
        return (self.up_converted or self.src) if self.border is None else self.border.copy

    @property
    def summary(self) -> PlanSummary:
        """The decisions, for `dnnl explain`."""
        copies = self.copies_in
        if self.up_converted is not None:
            copies = (*copies, (self.src, as_s64(self.src[1], self.up_converted)))
        return PlanSummary(
            self.multiply,
            self.blocking,
            copies,
            self.copy_out,
            pairs=self.flags is not None,
            packed_from=None if self.packing is None else self.packing.weights[1].data_type,
        )
