"""Convolution on register tiles, for any layouts.

The compute phase broadcasts K groups of src and loads vectors of weights. So the channels of a K
group must be contiguous in src; otherwise its layout is free. Weights must have contiguous output
channels, and dst is best stored in vectors of channels. What does not fit is copied to and from the
scratchpad by phases of their own: weights into panels, src and dst into channels-last order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import prod

from dnnl.codegen.epilogue.product_epilogue import core_type, needs_row_sums
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.brgemm import TileShape, choose_vectors, max_rows
from dnnl.codegen.product.multiply import Multiply
from dnnl.errors import InvalidArguments
from dnnl.kernels.convolution.direct import border as conv_border
from dnnl.kernels.convolution.direct import sums
from dnnl.kernels.convolution.direct.border import Border
from dnnl.kernels.convolution.direct.compute import (
    ConvolutionConf,
    Piece,
    channel_block,
    products,
)
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem, refuse_quantization
from dnnl.kernels.product.base.blocking import Blocking
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.kernels.product.base.problem import LETTERS, NONE, becomes_floats
from dnnl.kernels.product.base.types import dot_of
from dnnl.kernels.product.compensation.rows import RowSums
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.pack.pairs import take_flags
from dnnl.kernels.product.pack.up_converted import take_up_converted, with_up_conversion
from dnnl.kernels.product.plan import conf as product_conf
from dnnl.kernels.product.unit import tiles as product_tiles
from dnnl.kernels.shared.scratchpad import Argument, Relayout, Scratchpad
from dnnl.kernels.shared.types import BYTES
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpPrelu
from dnnl.types.tag import FormatTag

_PANELS_OF_COPY = 8
"""The least number of panels for which a compact copy of strided pixels pays off."""


def resolve(problem: ConvolutionProblem, isa: Isa) -> ConvolutionProblem:
    """Decide the layouts that are ``any``.

    - Activations are channels-last if all rows of a tile fit in the first-level cache, whatever
      their stride is.
    - With higher tiles, channels are blocked by a vector, so that a tile reads consecutive lines.
    - With too few channels for either they are plain.
    - They are channels-last if groups would cut blocks, for bytes (as in quantized models), and for
      a matrix unit, which takes lines of channels.
    """
    problem = resolve_activations(problem, isa)
    dot = _dot(problem, isa)
    if problem.weights.format_kind is FormatKind.any and dot is not None:
        as_it_is = _reads(problem, dot) and not _bordered(problem, dot)
        src = problem.src if as_it_is else _packed(problem, dot)
        if _compacts_strides(problem, isa):
            src = _channels_last(src)
        problem = replace(problem, weights=_panels(problem, src, dot, isa))
    return problem


def _dot(problem: ConvolutionProblem, isa: Isa) -> Multiply | None:
    """The dot-product kind: that of a matrix unit if it takes the sizes."""
    types = problem.src.data_type, problem.weights.data_type
    tiled = dot_of(isa, *types, problem.narrow, tiled=True)
    if tiled is not None and tiled.tiles is not None:
        pixels = prod(problem.dst.dims[2:])
        if product_tiles.takes(tiled, pixels, _k_groups_in_line(problem, tiled)):
            return tiled
    return dot_of(isa, *types, problem.narrow)


def _k_groups_in_line(problem: ConvolutionProblem, dot: Multiply) -> int:
    """The contiguous K groups of a sum in src, or in its copy."""
    src, group = problem.src, dot.group
    k_groups = -(-problem.channels // group)
    if src.format_kind is not FormatKind.any and not _bordered(problem, dot):
        block = channel_block(src)
        if _reads(problem, dot) and (block or src.strides[-1] != k_groups * group):
            return block // group or k_groups
    w = problem.pieces[0].space[2]
    return k_groups * w.kernel if problem.groups == w.dilation == 1 else k_groups


def _bordered(problem: ConvolutionProblem, dot: Multiply) -> bool:
    """Whether the product reads a padded copy of src."""
    return dot.tiles is not None and any(
        own.padded for piece in problem.pieces for own in piece.space
    )


def resolve_activations(problem: ConvolutionProblem, isa: Isa) -> ConvolutionProblem:
    """Decide src and dst only."""
    dot = _dot(problem, isa)
    last = problem.src.data_type in BYTES or bool(dot and dot.tiles)
    decide = partial(_activation, groups=problem.groups, isa=isa, last=last)
    return replace(problem, src=decide(problem.src), dst=decide(problem.dst))


def _activation(desc: MemoryDesc, groups: int, isa: Isa, last: bool) -> MemoryDesc:
    if desc.format_kind is not FormatKind.any:
        return desc
    channels = desc.dims[1]
    spatial = LETTERS[2 : desc.ndims]
    cut = 1 < groups < channels and channels // groups % isa.lanes
    if last or cut:
        return _channels_last(desc)
    if channels < isa.lanes or isa.lanes == 1:
        return desc.with_tag(f"ab{spatial}")
    if max_rows(isa, 2) <= isa.caches.l1_ways:
        return _channels_last(desc)
    return desc.with_tag(f"aB{spatial}{isa.lanes}b")


def _channels_last(desc: MemoryDesc) -> MemoryDesc:
    return desc.with_tag(FormatTag(f"a{LETTERS[2 : desc.ndims]}b"))


def _panels(problem: ConvolutionProblem, src: MemoryDesc, dot: Multiply, isa: Isa) -> MemoryDesc:
    """The weights as the compute phase reads them: panels of a tile's output channels, each with
    all of K in one stream, in the order of ``src``."""
    first = 1 if problem.grouped else 0
    width = _vectors(problem, src, dot, isa) * isa.lanes
    o, i = LETTERS[first], LETTERS[first + 1]
    taps = LETTERS[first + 2 : problem.weights.ndims]
    head, block, group = LETTERS[:first] + o.upper(), channel_block(src), dot.group
    k_group = f"{group}{i}" if group > 1 else ""
    if block:
        step = f"{block // group}{i}" if block > group else ""
        tag = f"{head}{i.upper()}{taps}{step}{width}{o}{k_group}"
    else:
        tag = f"{head}{taps}{i.upper() if k_group else i}{width}{o}{k_group}"
    return problem.weights.with_tag(FormatTag(tag))


def _vectors(problem: ConvolutionProblem, src: MemoryDesc, dot: Multiply, isa: Isa) -> int:
    """The width of a tile in vectors; its rows are consecutive pixels of ``src``."""
    step = src.strides[-1] * src.data_type.size
    if dot.tiles is not None:
        return product_tiles.panel_vectors(isa, problem.outputs)
    return choose_vectors(isa, problem.outputs, step * problem.step[0])


def _walkable(problem: ConvolutionProblem, desc: MemoryDesc, channels: int) -> bool:
    """Whether all offsets of an activation are affine in channel blocks, all of which belong to it
    as a whole, and pixels."""
    block = channel_block(desc)
    if len(desc.inner_blocks) != bool(block):
        return False
    if block and desc.padded_dims[1] % block:
        return False
    return problem.groups == 1 or not block or channels % block == 0


def _in_vectors(problem: ConvolutionProblem) -> bool:
    """Whether tiles are stored in vectors: of channels, or transposed, of contiguous pixels."""
    dst = problem.dst
    return problem.step[1] == 1 or bool(dst.inner_blocks) or dst.strides[1] == 1


def _reads(problem: ConvolutionProblem, dot: Multiply) -> bool:
    """Whether the product reads src in place."""
    src = problem.src
    if src.data_type is not dot.a or not _walkable(problem, src, problem.channels):
        return False
    block = channel_block(src)
    if dot.group == 1 or block:
        return block % dot.group == 0
    return src.strides[1] == 1 and problem.channels % dot.group == 0


def _packed(problem: ConvolutionProblem, dot: Multiply) -> MemoryDesc:
    """The layout to which src is copied if the product does not read it in place. K groups that the
    channels of a group do not fill are padded; groups then have a dimension of their own."""
    src = problem.src.with_data_type(dot.a)
    if problem.channels % dot.group:
        dims = (src.dims[0], problem.groups, problem.channels, *src.dims[2:])
        spatial = LETTERS[3 : len(dims)]
        return MemoryDesc(dims, dot.a, FormatTag(f"a{spatial}bC{dot.group}c"))
    if dot.group == 1 and _walkable(problem, src, problem.channels) and src.tag is not None:
        return src
    return _channels_last(src)


def _covered(problem: ConvolutionProblem, src: MemoryDesc, dot: Multiply, isa: Isa) -> bool:
    """Whether the panels cover all of dst's padding, which must become zero."""
    dst = problem.dst
    if any(dst.dims[dim] != dst.padded_dims[dim] for dim in range(dst.ndims) if dim != 1):
        return False
    width = _vectors(problem, src, dot, isa) * isa.lanes
    return problem.groups > 1 or dst.padded_dims[1] <= -(-problem.outputs // width) * width


def flatten(problem: ConvolutionProblem) -> ConvolutionProblem:
    """A 1x1 convolution along a single line of pixels, if the layouts allow it."""
    plain = all((s.kernel, s.stride, s.padding, s.src) == (1, 1, 0, s.dst) for s in problem.space)
    in_line = all(_fits_line(problem.dst, entry) for entry in problem.post_ops)
    given = problem.quantization
    in_line &= all(spec.mask <= 3 for _, spec in (*given.scales, *given.zero_points))
    if not (plain and in_line) or problem.src.ndims == 3:
        return problem
    try:
        src, dst = _in_line(problem.src), _in_line(problem.dst)
        post_ops = tuple(entry.mapped(_in_line) for entry in problem.post_ops)
        weights = _in_line(problem.weights, 3 if problem.grouped else 2)
    except InvalidArguments:
        return problem
    line = Spatial(src.dims[2], dst.dims[2], 1, 1, 0, 1)
    one = Spatial(1, 1, 1, 1, 0, 1)
    return replace(
        problem, src=src, dst=dst, weights=weights, post_ops=post_ops, space=(one, one, line)
    )


def _fits_line(dst: MemoryDesc, entry: PostOp) -> bool:
    """Whether the post-op treats all pixels alike or each by itself, not rows or columns."""
    if isinstance(entry, PostOpPrelu):
        return entry.mask <= 3
    found = (desc.dims[2:] for _, desc in entry.operands)
    return all(spatial == dst.dims[2:] or set(spatial) == {1} for spatial in found)


def _in_line(desc: MemoryDesc, leading: int = 2) -> MemoryDesc:
    pixels = 1
    for extent in desc.dims[leading:]:
        pixels *= extent
    return desc.reshape((*desc.dims[:leading], pixels))


def configure(problem: ConvolutionProblem, isa: Isa) -> ConvolutionConf | Refusal:
    """Plan a convolution whose layouts are all decided (see :func:`resolve`)."""
    refusal = product_conf.refuse_problem(problem) or refuse_quantization(problem)
    if refusal is not None:
        return refusal
    if not _compacts_strides(problem, isa):
        return plan(flatten(problem), isa)
    scratchpad, view = Scratchpad(), _strided_view(problem)
    slot, src = scratchpad.copy((problem.arguments[0], view), _channels_last(view))
    d, h, w = (replace(own, src=own.dst, stride=1) for own in problem.space)
    return plan(flatten(replace(problem, src=src, space=(d, h, w))), isa, slot, scratchpad)


def _compacts_strides(problem: ConvolutionProblem, isa: Isa) -> bool:
    """Whether a 1x1 convolution reads a compact copy of the pixels at its stride. Compact pixels
    are one line, so that rows of few pixels leave no tile partly empty, and they fill whole cache
    lines. Enough panels must use the copy."""
    dot, (_, _, w) = _dot(problem, isa), problem.space
    points = all(own.kernel == 1 and not own.padded for own in problem.space)
    strided = problem.step[1] == 1 and any(own.stride > 1 for own in problem.space)
    blocked = any(dim > 1 for dim, _ in problem.src.inner_blocks)
    if dot is None or not (points and strided) or blocked:
        return False
    if dot.tiles is not None:
        return w.dst < product_tiles.part_rows(isa)
    return problem.outputs >= _PANELS_OF_COPY * _vectors(problem, problem.src, dot, isa) * isa.lanes


def _strided_view(problem: ConvolutionProblem) -> MemoryDesc:
    """The pixels of src that a 1x1 convolution reads."""
    src, count = problem.src, problem.src.ndims - 2
    by = (1, 1, *(own.stride for own in problem.space[3 - count :]))
    strides = [stride * factor for stride, factor in zip(src.strides, by, strict=True)]
    dims = (*src.dims[:2], *problem.dst.dims[2:])
    return MemoryDesc(
        dims, src.data_type, strides, inner_blocks=src.inner_blocks, offset0=src.offset0
    )


def plan(
    problem: ConvolutionProblem,
    isa: Isa,
    slot: int | None = None,
    scratchpad: Scratchpad | None = None,
    *,
    whole: bool = True,
) -> ConvolutionConf:
    """Plan a convolution that nothing refuses.

    Its src is that of its arguments, or in ``slot``, a part of ``scratchpad`` that was copied
    before. Only the ``whole`` of a src is up-converted before it is multiplied.
    """
    of_src, of_weights, of_dst = problem.arguments
    slot = of_src if slot is None else slot
    scratchpad = scratchpad or Scratchpad()
    copy_out: Relayout | None = None
    dst: Argument = (of_dst, problem.dst)
    weights: Argument = (of_weights, problem.weights)
    dequantized = NONE
    if becomes_floats(problem) and Arg.WEIGHTS in dict(problem.quantization.zero_points):
        dequantized = problem.quantization.of_arguments((Arg.WEIGHTS,))
        problem = replace(
            problem,
            weights=problem.weights.with_data_type(DataType.f32),
            quantization=problem.quantization.of_arguments((Arg.SRC, Arg.DST)),
        )
    dot = _dot(problem, isa)
    assert dot is not None, "refused before"
    border = None
    if _bordered(problem, dot):
        border = _take_border(problem, dot, slot, scratchpad, isa)
    src = border.src if border else _source(problem, dot, slot, scratchpad)
    read = border.copy[1] if border else src[1]
    bare = problem.bias.is_zero and not problem.post_ops
    core = core_type(dot, problem.dst.data_type, problem.quantization, bare=bare)
    panels = _panels(problem, read, dot, isa).with_data_type(dot.b)
    if weights[1] != panels:
        weights = scratchpad.copy(weights, panels)
    direct = _walkable(problem, problem.dst, problem.outputs) and _in_vectors(problem)
    direct &= problem.dst.data_type.bits >= 8
    if not (direct and _covered(problem, read, dot, isa)):
        computed = scratchpad.take(_channels_last(problem.dst).with_data_type(core))
        copy_out = (computed, dst)
        dst = computed
    zero_points = dict(problem.quantization.zero_points)
    channel_sums = rows = tap_sums = columns = None
    if needs_row_sums(dot, zero_points, Arg.WEIGHTS):
        batch = problem.src.dims[0]
        channel_sums, rows = sums.take_row_sums(scratchpad, batch, problem.groups, problem.space)
    if Arg.SRC in zero_points:
        outputs = problem.groups * problem.outputs
        tap_sums, columns = sums.take_column_sums(
            scratchpad, outputs, problem.space, borders=problem.borders
        )
    wide = flags = None
    if border is None and whole:
        terms = problem.weights.nelems() // max(1, problem.groups * problem.outputs)
        products = terms * problem.dst.nelems()
        dot = with_up_conversion(dot, read, products)
        wide = take_up_converted(scratchpad, read) if dot.up_converted else None
        flags = take_flags(scratchpad, isa, dot, panels, products)
    return ConvolutionConf(
        src=src,
        weights=weights,
        dst=dst,
        bias=problem.bias,
        post_ops=problem.post_ops,
        quantization=problem.quantization,
        dequantized=dequantized,
        factors=(of_src, of_weights),
        multiply=dot,
        core=core,
        blocking=_blocking(problem, read, panels, dot, isa),
        row_sums=None if rows is None else RowSums(rows, None, 0),
        column_sums=columns,
        channel_sums=channel_sums,
        tap_sums=tap_sums,
        copies_in=tuple(scratchpad.copies),
        copy_out=copy_out,
        scratchpad=scratchpad.size,
        groups=problem.groups,
        channels=problem.channels,
        outputs=problem.outputs,
        pieces=problem.pieces,
        borders=problem.borders,
        border=border,
        up_converted=wide,
        flags=flags,
    )


def _source(
    problem: ConvolutionProblem, dot: Multiply, slot: int, scratchpad: Scratchpad
) -> Argument:
    """src, which is in ``slot``, as the product reads it."""
    src: Argument = (slot, problem.src)
    if _reads(problem, dot):
        return src
    packed = _packed(problem, dot)
    return scratchpad.copy(_of_dims(src, packed.dims, scratchpad), packed)


def _of_dims(src: Argument, dims: tuple[int, ...], scratchpad: Scratchpad) -> Argument:
    """src with these dimensions: its own, or with an additional one of groups."""
    slot, desc = src
    if len(dims) == desc.ndims:
        return src
    try:
        return slot, desc.reshape(dims)
    except InvalidArguments:  # groups cut the blocks of channels
        slot, plain = scratchpad.copy(src, _channels_last(desc))
        return slot, plain.reshape(dims)


def _take_border(
    problem: ConvolutionProblem, dot: Multiply, slot: int, scratchpad: Scratchpad, isa: Isa
) -> Border | None:
    """The padded copy of src, which is in ``slot``, in the layout that the product reads. It is
    written per thread and band unless several products, groups or panels read an image, each of
    which would write it again."""
    layout = _packed(problem, dot)
    src = _of_dims((slot, problem.src), layout.dims, scratchpad)
    spaces = [piece.space for piece in problem.pieces]
    small = problem.weights.nelems() * dot.b.size <= isa.caches.l2 // 2
    once = len(spaces) == problem.groups == 1 and (small or src[1].dims[0] == 1)
    return conv_border.take(
        scratchpad, src, layout, problem.dst.ndims - 2, spaces, isa, in_bands=once
    )


def _blocking(
    problem: ConvolutionProblem, src: MemoryDesc, panels: MemoryDesc, dot: Multiply, isa: Isa
) -> Blocking:
    """Tiles of the panels' width. If all panels do not fit in the cache, one of them stays there
    for all pixels."""
    vectors = _vectors(problem, src, dot, isa)
    rows = max_rows(isa, vectors * dot.span, dot.parts)
    if dot.tiles is not None:
        rows = min(
            product_tiles.tile_rows(isa, vectors, piece.space[2].dst, _pitch(piece, src))
            for piece in problem.pieces
        )
    tile = TileShape(rows, vectors)
    return Blocking(tile, panels=1 if panels.size > isa.caches.l2 // 2 else 0)


def _pitch(piece: Piece, src: MemoryDesc) -> int:
    """The distance, in pixels at the stride of w, between the first pixels of src that consecutive
    rows of dst read; 0 if it is not an integer."""
    if src.ndims < 4:
        return 0
    _, h, w = piece.space
    steps, rest = divmod(src.strides[-2] * h.stride, src.strides[-1] * w.stride)
    return 0 if rest else steps


def build(conf: ConvolutionConf, isa: Isa) -> Kernel:
    """The products, with the sums that compensate them."""
    return phases.build("convolution", conf, isa, products, before_products)


def before_products(module: Module, conf: ConvolutionConf, arguments: Arguments) -> Iterator[Phase]:
    """Write the sums that compensate products, and the padded copy of src."""
    yield from sums.emit(module, conf, arguments)
    if conf.border is not None and not conf.border.in_bands:
        yield conv_border.emit(module, conf.border, arguments)
