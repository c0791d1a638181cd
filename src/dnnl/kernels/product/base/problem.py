"""What is asked of a product, and what an operation knows of its tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.shared.types import FLOATS
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
    """dst = post_ops(dropout(bias + src * weights)) of quantized tensors; ``bias`` may be the zero
    descriptor. Factors of f32 may be held as ``narrow``. Results may be rounded by chance, which is
    ``stochastic``. ``reductions`` says how the sums of the rows of src lie, if they are given."""

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


@dataclass(frozen=True)
class Panels:
    """Weights as a product reads them: their layout, and how many vectors a panel is wide."""

    desc: MemoryDesc
    vectors: int


@dataclass(frozen=True)
class Shape:
    """What an operation knows of its tensors for `plan`.

    ``walkable`` says whether the product can walk a src for a way to multiply, ``packed`` is the
    layout to which it is copied otherwise. ``panels`` are those of weights for a src, the flag
    being whether tiles have a row of ones beside those of src. Sums go over the dimensions
    ``summed`` of src and of weights; of src, those are the last ones. ``column_stride`` is how far
    columns of weights lie apart that have all of their k side by side, 0 for other weights. In a
    src that is read, so many elements of a sum as ``line`` says are side by side. A
    ``simple`` operation has loops of its own, which do nothing within a sum: weights of 4 bits, or
    whose values change within one, are copied as floats, and src is read as it lies.
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
    """src as the product reads it."""
    if src.data_type is dot.a and shape.walkable(src, dot):
        return src
    return shape.packed(src, dot)


def becomes_floats(problem: ProductProblem) -> bool:
    """Whether weights are of another type than the floats that they are multiplied by."""
    src, weights = problem.src.data_type, problem.weights.data_type
    return src in FLOATS and weights is not src
