"""The decisions of a product's plan, for `dnnl explain` and ``pd.info()``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.blocking import Blocking
from dnnl.kernels.shared.scratchpad import Relayout
from dnnl.types.dtype import DataType


@dataclass(frozen=True)
class PlanSummary:
    """The dot-product kind, the blocking (None if nests decide it), and the copies before and after
    the products.

    ``pairs`` says that panels of small weights may be multiplied by pairs of bytes. ``packed_from``
    is the type of weights that threads pack into panels on the fly, None if they do not. ``cut``
    says how sums are divided among work items, or groups among lanes, if they are. ``operations``
    are the multiplications and additions of the products, 0 if they are those of the operation.
    """

    multiply: Multiply
    blocking: Blocking | None = None
    copies_in: tuple[Relayout, ...] = ()
    copy_out: Relayout | None = None
    pairs: bool = False
    packed_from: DataType | None = None
    cut: str = ""
    operations: int = 0


@runtime_checkable
class Inspectable(Protocol):
    """The configuration of a kernel with a plan summary."""

    @property
    def summary(self) -> PlanSummary:
        """The summary."""
