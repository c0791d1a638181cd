"""The definition of a product, and what an operation tells the planner about its tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.shared.types import FLOATS
from dnnl.types.arg import Arg
from dnnl.types.dropout import Dropout
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp
from dnnl.types.scales import ScaleSpec
from dnnl.types.tag import FormatTag

LETTERS = "abcdefghijkl"
NONE = Quantization()


@dataclass(frozen=True)
class ProductProblem:
    """dst = post_ops(dropout(bias + src * weights)) of quantized tensors.

    ``bias`` may be the zero descriptor. f32 operands may be multiplied as ``narrow``. With
    ``stochastic`` dst is rounded stochastically. ``reductions`` describes precomputed sums of the
    rows of src, if the user gives them. ``arguments`` are src, weights and dst at execution: in a
    gradient, these are other tensors.
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


@dataclass(frozen=True)
class Panels:
    """Weights as a product reads them: their layout, and the width of a panel in vectors."""

    desc: MemoryDesc
    vectors: int


@dataclass(frozen=True)
class Shape:
    """What an operation tells `plan` about its tensors.

    ``walkable(src, dot)`` says whether the product can read src in place with a dot-product kind;
    ``packed(src, dot)`` is the layout to which it is copied otherwise. ``panels(src, weights, dot,
    ones)`` are the panels of the weights; ``ones`` says that tiles have a row of ones besides those
    of src. ``summed`` are the dimensions of src and of weights that are summed over; in src these
    are the last ones. ``column_stride`` is the stride of columns of weights that are contiguous
    along k, 0 for other weights. ``line`` is the number of consecutive elements of a sum that are
    contiguous in src.

    A ``simple`` operation has its own loops without work inside of a sum: weights of 4 bits, and
    weights whose quantization changes within a sum, are copied as floats, and src is read in place.
    """

    walkable: Callable[[MemoryDesc, Multiply], bool]
    packed: Callable[[MemoryDesc, Multiply], MemoryDesc]
    panels: Callable[[MemoryDesc, MemoryDesc, Multiply, bool], Panels]
    dst_walkable: Callable[[MemoryDesc], bool]
    summed: tuple[slice, slice]
    column_stride: Callable[[MemoryDesc], int]
    line: Callable[[MemoryDesc], int]
    simple: bool = False


def plain(desc: MemoryDesc) -> MemoryDesc:
    """The tensor in row-major order."""
    return desc.with_tag(FormatTag(LETTERS[: desc.ndims]))


def with_plain_layouts(problem: ProductProblem) -> ProductProblem:
    """The problem with row-major layouts for src, bias and dst where these are ``any``."""

    def decided(desc: MemoryDesc) -> MemoryDesc:
        return plain(desc) if desc.format_kind is FormatKind.any else desc

    src, bias, dst = map(decided, (problem.src, problem.bias, problem.dst))
    return replace(problem, src=src, bias=bias, dst=dst)


def as_read(src: MemoryDesc, dot: Multiply, shape: Shape) -> MemoryDesc:
    """src as the product reads it: in place or packed."""
    if src.data_type is dot.a and shape.walkable(src, dot):
        return src
    return shape.packed(src, dot)


def becomes_floats(problem: ProductProblem) -> bool:
    """Whether weights are converted to the floating-point type that they are multiplied in."""
    src, weights = problem.src.data_type, problem.weights.data_type
    return src in FLOATS and weights is not src
