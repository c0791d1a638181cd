"""The definition of a product of matrices, and the layouts that its loops take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.address import Affine, Axis, linear_offset
from dnnl.codegen.product.brgemm import registers
from dnnl.codegen.product.decompress import PackedMultiply
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.problem import (
    LETTERS,
    Panels,
    becomes_floats,
    given_panels,
    plain,
    planned,
)
from dnnl.kernels.product.plan.contraction import Contraction
from dnnl.kernels.product.plan.dot_kind import LEAST_PACKED_ROWS, panel_vectors
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpPrelu
from dnnl.types.scales import ScaleSpec
from dnnl.types.size import is_known, larger, typical
from dnnl.types.tag import FormatTag

# The least vectors of a row for which row-major weights are read in place.
_LEAST_RUN = 2

# The columns of a product, and the distance of columns of src in bytes, from which a column-major
# src is transposed before.
_MANY_COLUMNS, _LONG = 128, 4 * LINE


@dataclass(frozen=True)
class MatmulProblem(Contraction):
    """dst[.., m, n] = sum over k of src[.., m, k] * weights[.., k, n]. Batch dimensions of src,
    weights and bias may be 1."""

    @property
    def terms(self) -> int:
        """K."""
        return self.src.dims[-1]

    @property
    def summed(self) -> tuple[slice, slice]:
        """The dimension of K."""
        return slice(-1, None), slice(-2, -1)

    def reads(self, src: MemoryDesc, dot: Multiply) -> bool:
        """Whether the product reads src in place: single elements at any stride, unless columns
        are contiguous and meet many panels, or contiguous K groups without a remainder."""
        if dot.group == 1:
            return _affine(src) and not self._is_transposed(src)
        return _affine(src) and src.strides[-1] == 1 and src.dims[-1] % dot.group == 0

    def _is_transposed(self, src: MemoryDesc) -> bool:
        """Whether to transpose src before. Each step of a tile would read another line, and another
        page where columns are long, and again for each panel."""
        apart = src.strides[-1]
        if not is_known(apart) or not is_known(self.dst.dims[-1]) or not in_columns(src):
            return False
        return apart * src.data_type.size >= _LONG and self.dst.dims[-1] >= _MANY_COLUMNS

    def packed(self, src: MemoryDesc, dot: Multiply) -> MemoryDesc:
        """Rows of whole K groups. Those of single elements are an odd number of cache lines apart,
        so that the rows of a tile do not evict each other."""
        if dot.group == 1 and is_known(src.nelems()):
            return _in_odd_lines(src.with_data_type(dot.a))
        *rows, k = (*LETTERS[: src.ndims],)
        depth = f"{k.upper()}{dot.group}{k}" if dot.group > 1 else k
        return src.with_data_type(dot.a).with_tag(FormatTag("".join(rows) + depth))

    def panels(
        self, isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, *, ones: bool = False
    ) -> Panels:
        """Panels of a tile's columns, each with all of K in one stream. Weights that few rows use
        are read in place."""
        return panels_for(isa, src, weights, dot, ones=ones)

    def stores(self, width: int) -> bool:
        """Whether dst is affine, without padding."""
        return _affine(self.dst)

    def column_stride(self, weights: MemoryDesc) -> int:
        """The stride of columns that are contiguous along K, 0 for other matrices."""
        plain = weights.format_kind is FormatKind.blocked and _affine(weights)
        if not plain or weights.inner_blocks or weights.strides[-2] != 1:
            return 0
        return weights.strides[-1] if weights.strides[-1] > 1 else 0

    def line(self, dot: Multiply) -> int:
        """K."""
        return self.terms


def _in_odd_lines(src: MemoryDesc) -> MemoryDesc:
    """Row-major, with a gap of a cache line behind rows of an even number of whole lines."""
    lines, rest = divmod(src.dims[-1] * src.data_type.size, LINE)
    gap = 0 if rest or lines % 2 else LINE // src.data_type.size
    wide = plain(MemoryDesc((*src.dims[:-1], src.dims[-1] + gap), src.data_type, "any"))
    return MemoryDesc(src.dims, src.data_type, wide.strides) if gap else wide


def panels_for(
    isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, *, ones: bool
) -> Panels:
    """The panels of weights for these rows of src."""
    if isinstance(dot, PackedMultiply) and dot.column_stride:
        return Panels(weights, 1)
    wide = _in_place_vectors(isa, src, weights, dot, ones)
    if wide:
        return Panels(weights, wide)
    given = given_panels(isa, weights, dot, partial(_panels, isa, weights, dot))
    if given is not None:
        return given
    row_step = typical(src.strides[-2]) * src.data_type.size
    vectors = panel_vectors(isa, dot, weights, -1, planned(isa, src.dims[-2]), row_step)
    return _panels(isa, weights, dot, vectors)


def _panels(isa: Isa, weights: MemoryDesc, dot: Multiply, vectors: int) -> Panels:
    return Panels(panels_of(weights, dot, isa, vectors), vectors)


def panels_of(weights: MemoryDesc, dot: Multiply, isa: Isa, vectors: int) -> MemoryDesc:
    """Weights in panels of ``vectors`` vectors."""
    weights = weights.with_data_type(dot.b)
    batch, k, n = LETTERS[: weights.ndims - 2], *LETTERS[weights.ndims - 2 : weights.ndims]
    width, group = vectors * isa.lanes, dot.group
    if group == 1:
        return weights.with_tag(FormatTag(f"{batch}{n.upper()}{k}{width}{n}"))
    return weights.with_tag(FormatTag(f"{batch}{n.upper()}{k.upper()}{width}{n}{group}{k}"))


def _in_place_vectors(
    isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, ones: bool
) -> int:
    """The width in vectors of a tile that has all rows of src and reads row-major weights in place,
    once, in long runs and without tails; 0 if M is too large or there is no such tile."""
    rows, vectors_built = planned(isa, src.dims[-2]), dot.row_vectors
    least = max(_LEAST_RUN, vectors_built)

    def fits(width: int) -> bool:
        return registers(rows, width * dot.span, dot.parts, ones=ones) <= isa.registers

    if isa.lanes == 1 or not vectors_built or not fits(least):
        return 0
    plain = weights.format_kind is FormatKind.blocked and _affine(weights)
    vectors, tail = divmod(weights.dims[-1], isa.lanes)
    if not is_known(vectors):
        vectors, tail = least, weights.dims[-1] % (least * isa.lanes)
    if tail or weights.dims[-2] % dot.group:
        return 0
    near = typical(weights.size) <= isa.caches.l2
    if dot.tiles is not None and rows >= LEAST_PACKED_ROWS and near:
        return 0
    if not plain or weights.strides[-1] != 1 or weights.data_type is not dot.b:
        return 0
    if weights.data_type.bits < 8 and any(
        step % 2 for step in (weights.offset0, *weights.strides[:-1])
    ):
        return 0
    widths = [
        width
        for width in range(least, isa.registers, vectors_built)
        if fits(width) and vectors % width == 0
    ]
    return max(widths, default=0)


def _affine(desc: MemoryDesc) -> bool:
    """Whether offsets are affine in single steps along the last two dimensions, without padding
    that must stay zero."""
    if not desc.inner_blocks:
        return desc.dims == desc.padded_dims
    index = [Affine.of(Axis(larger(2, extent), "i")) for extent in desc.dims]
    return linear_offset(desc, index) is not None and desc.dims == desc.padded_dims


def column_major(problem: MatmulProblem) -> bool:
    """Whether to compute the transposed product: dst is contiguous along columns, and nothing else
    depends on rows. Not for weights that are converted to floats as they are loaded."""
    dst = problem.dst
    if becomes_floats(problem):
        return False
    if any(isinstance(entry, PostOpPrelu) for entry in problem.post_ops):
        return False
    if problem.dropout is not None or problem.stochastic or problem.reductions is not None:
        return False
    both = 0b11 << (dst.ndims - 2)
    quantization = (*problem.quantization.scales, *problem.quantization.zero_points)
    if any(spec.mask & both == both for _, spec in quantization):
        return False
    columns = dst.strides[-1] != 1 or (dst.dims[-1] == 1 and in_columns(problem.src))
    return not dst.inner_blocks and dst.strides[-2] == 1 and columns


def in_columns(src: MemoryDesc) -> bool:
    """Whether a matrix of floats is contiguous along columns only."""
    plain = src.format_kind is FormatKind.blocked and not src.inner_blocks
    return src.data_type.is_float and plain and src.strides[-2] == 1 and src.strides[-1] != 1


def transposed(problem: MatmulProblem) -> MatmulProblem:
    """The product of the transposed matrices, which is the transposed product."""
    post_ops = tuple(entry.mapped(transposed_desc) for entry in problem.post_ops)
    given = problem.quantization
    of_src, of_weights, of_dst = problem.arguments
    first = problem.dst.ndims - 2
    scales, zero_points = (
        tuple((arg, _transposed_spec(spec, first)) for arg, spec in specs)
        for specs in (given.scales, given.zero_points)
    )
    return MatmulProblem(
        transposed_desc(problem.weights),
        transposed_desc(problem.src),
        transposed_desc(problem.bias),
        transposed_desc(problem.dst),
        post_ops,
        Quantization(scales, zero_points, given.adjust),
        problem.narrow,
        arguments=(of_weights, of_src, of_dst),
    )


def transposed_desc(desc: MemoryDesc) -> MemoryDesc:
    """The descriptor of the transposed matrices; the zero descriptor stays."""
    if desc.is_zero:
        return desc
    last = desc.ndims - 1
    return desc.permute_axes((*range(last - 1), last, last - 1))


def _transposed_spec(spec: ScaleSpec, first: int) -> ScaleSpec:
    """The scales or zero points of the transposed matrix, whose dimensions are ``first`` and the
    next one."""
    low, high = spec.mask >> first & 1, spec.mask >> (first + 1) & 1
    mask = spec.mask & ((1 << first) - 1) | high << first | low << (first + 1)
    return replace(spec, mask=mask, groups=spec.groups[::-1])
