"""The definition of a product, and what an operation tells the planner about its tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.brgemm import max_rows
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.shared.types import FLOATS
from dnnl.types.arg import Arg
from dnnl.types.dropout import Dropout
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp
from dnnl.types.scales import ScaleSpec
from dnnl.types.size import is_known
from dnnl.types.tag import FormatTag

_FEW = 8  # the most rows of a single tile that executions fill
_WIDEST = 4  # the widest panel, in vectors
MANY = 1024  # a number for all others

LETTERS = "abcdefghijkl"
NONE = Quantization()

AnyDefinition = TypeVar("AnyDefinition", bound="ProductProblem")


def planned(isa: Isa, rows: int) -> int:
    """The number of rows that a product is planned for. If only an execution knows it, there is a
    plan for few, which fit in one tile, and another one for all others."""
    if is_known(rows):
        return rows
    few = min(_FEW, max_rows(isa, 2))
    return few if rows <= few else MANY


@dataclass(frozen=True)
class Panels:
    """Weights as a product reads them: their layout, and the width of a panel in vectors."""

    desc: MemoryDesc
    vectors: int


def given_panels(
    isa: Isa, weights: MemoryDesc, dot: Multiply, panels: Callable[[int], Panels]
) -> Panels | None:
    """Weights that are in panels as they are, which another number of rows may have asked for: a
    copy would take longer. None if they are in no ``panels`` of any width in vectors."""
    if not weights.inner_blocks or dot.tiles is not None or isa.lanes == 1:
        return None
    every = map(panels, range(1, _WIDEST + 1))
    return next((own for own in every if own.desc == weights.with_data_type(dot.b)), None)


@dataclass(frozen=True)
class ProductProblem(ABC):
    """dst = post_ops(dropout(bias + src * weights)) of quantized tensors.

    ``bias`` may be the zero descriptor. f32 operands may be multiplied as ``narrow``. With
    ``stochastic`` dst is rounded stochastically. ``reductions`` describes precomputed sums of the
    rows of src, if the user gives them. ``arguments`` are src, weights and dst at execution: in a
    gradient, these are other tensors.

    The methods say which layouts the loops of an operation take; what else the planner asks, a
    `Contraction` answers.
    """

    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]
    quantization: Quantization = NONE
    narrow: DataType = DataType.f32
    dropout: Dropout | None = None
    stochastic: bool = False
    reductions: ScaleSpec | None = None
    arguments: tuple[int, int, int] = (Arg.SRC, Arg.WEIGHTS, Arg.DST)

    @property
    @abstractmethod
    def terms(self) -> int:
        """The number of terms of a sum (K)."""

    @property
    @abstractmethod
    def summed(self) -> tuple[slice, slice]:
        """The dimensions of src and of weights that are summed over."""

    @property
    def rows(self) -> int:
        """The rows that a tile may have (M): those of a matrix, the pixels of an image."""
        return self.dst.dims[-2]

    def planned_rows(self, isa: Isa) -> int:
        """`rows` as plans are made for them (`planned`)."""
        return planned(isa, self.rows)

    @property
    def simple(self) -> bool:
        """Whether tiles neither convert weights to floats nor scale parts of a sum, so that weights
        of 4 bits, and those whose quantization changes within a sum, are copied as floats."""
        return False

    @abstractmethod
    def reads(self, src: MemoryDesc, dot: Multiply) -> bool:
        """Whether the product reads ``src``, of the type that it multiplies, in place."""

    @abstractmethod
    def packed(self, src: MemoryDesc, dot: Multiply) -> MemoryDesc:
        """The layout to which ``src`` is copied otherwise."""

    @abstractmethod
    def panels(
        self, isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, *, ones: bool = False
    ) -> Panels:
        """The panels of ``weights`` for a ``src`` as it is read; ``ones`` says that tiles have a
        row of ones besides those of src."""

    def column_stride(self, weights: MemoryDesc) -> int:
        """The stride of columns of weights that are contiguous along K, 0 for other weights."""
        return 0

    @abstractmethod
    def line(self, dot: Multiply) -> int:
        """The number of consecutive elements of a sum that are contiguous in src, or in its
        copy."""

    def as_read(self, dot: Multiply) -> MemoryDesc:
        """src as the product reads it: in place or packed."""
        src = self.src
        if src.data_type is dot.a and self.reads(src, dot):
            return src
        return self.packed(src, dot)


def plain(desc: MemoryDesc) -> MemoryDesc:
    """The tensor in row-major order."""
    return desc.with_tag(FormatTag(LETTERS[: desc.ndims]))


def with_plain_layouts(problem: AnyDefinition) -> AnyDefinition:
    """The problem with row-major layouts for src, bias and dst where these are ``any``."""

    def decided(desc: MemoryDesc) -> MemoryDesc:
        return plain(desc) if desc.format_kind is FormatKind.any else desc

    src, bias, dst = map(decided, (problem.src, problem.bias, problem.dst))
    return replace(problem, src=src, bias=bias, dst=dst)


def becomes_floats(problem: ProductProblem) -> bool:
    """Whether weights are converted to the floating-point type that they are multiplied in."""
    src, weights = problem.src.data_type, problem.weights.data_type
    return src in FLOATS and weights is not src
