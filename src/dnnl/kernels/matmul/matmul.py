"""Batched matrix multiplication on register tiles, for any layouts."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial

from dnnl.codegen.epilogue.product_epilogue import Depth
from dnnl.codegen.epilogue.quantization import Quantization
from dnnl.codegen.ir.kernel import Arguments, Kernel, Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis, linear_offset
from dnnl.codegen.product.brgemm import registers
from dnnl.codegen.product.decompress import PackedMultiply
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.problem import (
    LETTERS,
    Panels,
    ProductProblem,
    Shape,
    becomes_floats,
    plain,
)
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.loops.form import Product, along_line
from dnnl.kernels.product.pack.sparse_decoded import (
    as_panels,
    packed,
    packed_as,
    plan_sparse_decoded,
    refuse_packed,
)
from dnnl.kernels.product.plan import conf as product_conf
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.kernels.product.plan.dot_kind import (
    LEAST_PACKED_ROWS,
    direct_dot,
    needs_floats,
    panel_vectors,
    segments_of,
    usual_dot,
)
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.types.arg import Arg
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpPrelu
from dnnl.types.scales import ScaleSpec
from dnnl.types.tag import FormatTag

# The least vectors of a row for which row-major weights are read in place.
_LEAST_RUN = 2


def resolve(problem: ProductProblem, isa: Isa) -> ProductProblem:
    """Decide the layouts that are ``any``: src, dst and bias row-major, weights in panels, packed
    ones too."""
    given = problem.weights
    encoding = packed(given)
    one = given.format_kind is FormatKind.any and given.dims[-1] == 1
    if one and _in_columns(problem.src):
        problem = replace(problem, weights=plain(given))
    if encoding is None:
        return product_conf.resolve(problem, isa, shape(isa))
    dense = product_conf.resolve(replace(problem, weights=as_panels(given)), isa, shape(isa))
    weights = given if encoding.columns else packed_as(given, dense.weights)
    return replace(dense, weights=weights)


@lru_cache(maxsize=64)
def shape(isa: Isa) -> Shape:
    """What `product_conf.plan` needs to know about matrices."""
    return Shape(
        _walkable,
        _packed,
        partial(_panels, isa),
        _affine,
        (slice(-1, None), slice(-2, -1)),
        _column_stride,
        lambda src: src.dims[-1],
    )


def _panels(isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, ones: bool) -> Panels:
    """Panels of a tile's columns, each with all of K in one stream. Weights that few rows use are
    read in place."""
    if isinstance(dot, PackedMultiply) and dot.column_stride:
        return Panels(weights, 1)
    wide = _in_place_vectors(isa, src, weights, dot, ones)
    if wide:
        return Panels(weights, wide)
    row_step = src.strides[-2] * src.data_type.size
    vectors = panel_vectors(isa, dot, weights, -1, src.dims[-2], row_step)
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
    vectors, tail = divmod(weights.dims[-1], isa.lanes)
    rows = src.dims[-2]
    plain = weights.format_kind is FormatKind.blocked and _affine(weights)
    vectors_built = dot.row_vectors
    if isa.lanes == 1 or tail or not vectors_built or weights.dims[-2] % dot.group:
        return 0
    near = weights.size <= isa.caches.l2
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
        for width in range(max(_LEAST_RUN, vectors_built), isa.registers, vectors_built)
        if vectors % width == 0
        and registers(rows, width * dot.span, dot.parts, ones=ones) <= isa.registers
    ]
    return max(widths, default=0)


def _column_stride(weights: MemoryDesc) -> int:
    """The stride of columns that are contiguous along K, 0 for other matrices."""
    plain = weights.format_kind is FormatKind.blocked and _affine(weights)
    if not plain or weights.inner_blocks or weights.strides[-2] != 1:
        return 0
    return weights.strides[-1] if weights.strides[-1] > 1 else 0


def configure(
    problem: ProductProblem, isa: Isa, scratchpad: Scratchpad | None = None
) -> ProductConf | Refusal:
    """Plan a product whose layouts are all decided (see :func:`resolve`).

    ``bias`` has as many dimensions as dst, each 1 or dst's. ``scratchpad`` has what was copied
    before.
    """
    refusal = product_conf.refuse_matrices(problem)
    if refusal is not None:
        return refusal
    src: Argument = (problem.arguments[0], problem.src)
    weights: Argument = (problem.arguments[1], problem.weights)
    if packed(problem.weights) is not None:
        return _plan_packed(replace(problem, weights=as_panels(problem.weights)), isa, weights)
    if column_major(problem):
        problem = transposed(problem)
        src, weights = (problem.arguments[0], problem.src), (problem.arguments[1], problem.weights)
    terms, known = problem.src.dims[-1], shape(isa)
    return product_conf.plan(problem, isa, src, weights, terms, known, scratchpad=scratchpad)


def _plan_packed(problem: ProductProblem, isa: Isa, weights: Argument) -> ProductConf | Refusal:
    """Plan a product of packed weights, which are decoded to those of ``problem``."""
    refusal = refuse_packed(weights[1])
    if refusal is not None:
        return refusal
    known, terms, factors = shape(isa), problem.src.dims[-1], (int(Arg.SRC), int(Arg.WEIGHTS))
    src: Argument = (Arg.SRC, problem.src)
    if not terms:
        return product_conf.plan(problem, isa, src, (Arg.WEIGHTS, problem.weights), 0, known)
    dot = direct_dot(problem, isa, terms, known) or usual_dot(problem, isa)
    assert dot is not None, "bytes are multiplied everywhere"
    decoded = plan_sparse_decoded(isa, weights, dot, terms)
    if isinstance(decoded, Refusal):
        return decoded
    changing = needs_floats(problem, factors, known)
    if changing and segments_of(problem, factors, known, terms, dot) is None:
        rule = "scales and zero points for which packed weights would have to be copied"
        return Refusal(Reason.ATTRIBUTE, rule)
    return product_conf.plan(problem, isa, src, weights, terms, known, decoded)


def column_major(problem: ProductProblem) -> bool:
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
    in_columns = dst.strides[-1] != 1 or (dst.dims[-1] == 1 and _in_columns(problem.src))
    return not dst.inner_blocks and dst.strides[-2] == 1 and in_columns


def _in_columns(src: MemoryDesc) -> bool:
    """Whether a matrix of floats is contiguous along columns only."""
    plain = src.format_kind is FormatKind.blocked and not src.inner_blocks
    return src.data_type.is_float and plain and src.strides[-2] == 1 and src.strides[-1] != 1


def transposed(problem: ProductProblem) -> ProductProblem:
    """The product of the transposed matrices, which is the transposed product."""
    post_ops = tuple(entry.mapped(transposed_desc) for entry in problem.post_ops)
    given = problem.quantization
    of_src, of_weights, of_dst = problem.arguments
    first = problem.dst.ndims - 2
    scales, zero_points = (
        tuple((arg, _transposed_spec(spec, first)) for arg, spec in specs)
        for specs in (given.scales, given.zero_points)
    )
    return ProductProblem(
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


def _affine(desc: MemoryDesc) -> bool:
    """Whether offsets are affine in single steps along the last two dimensions, without padding
    that must stay zero."""
    if not desc.inner_blocks:
        return desc.dims == desc.padded_dims
    index = [Affine.of(Axis(max(2, extent), "i")) for extent in desc.dims]
    return linear_offset(desc, index) is not None and desc.dims == desc.padded_dims


def _walkable(src: MemoryDesc, dot: Multiply) -> bool:
    """Whether the product reads src in place: single elements at any stride, or contiguous K groups
    without a remainder."""
    if dot.group == 1:
        return _affine(src)
    return _affine(src) and src.strides[-1] == 1 and src.dims[-1] % dot.group == 0


def _packed(src: MemoryDesc, dot: Multiply) -> MemoryDesc:
    """Rows of whole K groups."""
    *rows, k = (*LETTERS[: src.ndims],)
    depth = f"{k.upper()}{dot.group}{k}" if dot.group > 1 else k
    return src.with_data_type(dot.a).with_tag(FormatTag("".join(rows) + depth))


def build(conf: ProductConf, isa: Isa) -> Kernel:
    """One product with the batch around it."""
    return phases.build("matmul", conf, isa, products)


def products(conf: ProductConf, isa: Isa, arguments: Arguments) -> tuple[Product]:
    """The product of matrices, with the batch around it."""
    *batch_dims, m, n = conf.dst[1].dims
    group, terms = conf.multiply.group, conf.src[1].dims[-1]
    batch = tuple(Axis(extent, letter) for extent, letter in zip(batch_dims, LETTERS, strict=False))
    size = conf.segment or terms
    row, k = Axis(m, "m"), Axis(-(-size // group), "k")
    part = Axis(terms // size if conf.segment else 1, "segment")
    columns = Columns.of(n, conf.blocking.tile, isa.lanes)
    outer = [Affine.of(axis) for axis in batch]
    rows, begin = Affine.of(row), Affine.of(part, size)
    depth = begin + Affine.of(k, group)

    def operand(source: Argument, last: tuple[Affine, Affine]) -> Operand:
        index = (*_batch_index(source[1], outer), *last)
        return Operand(arguments.slot(source[0]), source[1], index)

    src = operand(conf.read, (rows, depth))
    weights = operand(conf.weights, (depth, columns.form))
    dst = Operand(arguments.slot(conf.dst[0]), conf.dst[1], (*outer, rows, columns.form))
    at = phases.Indices(
        dst.index,
        (*_batch_index(conf.src[1], outer), rows, begin),
        (*_batch_index(conf.weights[1], outer), begin, columns.form),
        row_sums=(
            *_batch_index(conf.src[1], outer),
            rows,
            *([Affine.of(part)] if conf.segment else []),
        ),
    )
    in_rows = group > 1 and conf.multiply.row_vectors and not conf.weights[1].inner_blocks
    space, places, taps = along_line(row)
    summed = (part, k) if conf.segment else (k,)
    depth_of = Depth(size, k.extent * group)
    product = Product(
        batch,
        space,
        places,
        taps,
        (),
        summed,
        columns,
        src,
        weights,
        conf.multiply,
        phases.finish(conf, arguments, dst, at, depth_of),
        conf.blocking,
        domain=(columns.inside,) if columns.inside.needed else (),
        k_stride=conf.weights[1].strides[-2] if in_rows else 0,
        segments=phases.segments(conf, arguments, dst, at, depth_of, part),
        narrow=phases.narrow_path(conf, arguments, src, isa),
        packing=phases.packing(
            conf, arguments, lambda k: (*_batch_index(conf.weights[1], outer), k, columns.form)
        ),
    )
    return (product,)


def _batch_index(desc: MemoryDesc, outer: list[Affine]) -> tuple[Affine, ...]:
    """The batch part of an operand's index; dimensions of size 1 are broadcast."""
    return tuple(
        form if extent != 1 else ZERO for extent, form in zip(desc.dims, outer, strict=False)
    )
