"""The gradient of a convolution's weights: a product that sums over images and pixels.

Its rows are channels of src, at one tap or at several, its columns are the channels of diff_dst::

    diff_weights[tap, i, o] = sum over n, p of src[n, p * stride + tap, i] * diff_dst[n, p, o]

What a tap is to a convolution, a pixel of diff_dst is here, and vice versa: the strides are those
of taps, the dilations those of pixels. Sums are long and results are few. A work item holds the
sums of some channels and all taps, and goes through the images a few rows at a time, so that both
operands come from memory once. If there are too few results for all threads, images are divided
into parts whose sums are added up at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from dnnl.codegen.epilogue.product_epilogue import Depth, core_type
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis, linear_offset
from dnnl.codegen.nest.folds import Fold, at_once, emit_fold, exact_partials_desc, sums
from dnnl.codegen.nest.nest import emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.product.brgemm import TileShape, choose_vectors, max_rows
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.direct.compute import channel_block
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient, exchanged
from dnnl.kernels.convolution.gradient_blocking import Cut, cut_sums
from dnnl.kernels.product.base.blocking import Blocking
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.kernels.product.base.problem import LETTERS, NONE
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.product.base.types import dot_of, refuse_tensors
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.loops.form import ONE, Product
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.kernels.product.plan.dot_kind import even_rows
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.kernels.shared.types import computed_in
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_LINE = LINE // 4  # f32
_USES = 42
"""diff_dst is copied into panels if each of its elements is used at least so many times for each
row of a tile. Panels are read in one stream, rows at a stride of all channels."""


@dataclass(frozen=True, kw_only=True)
class WeightsGradientConf(ProductConf):
    """The product that computes ``problem``, whose sums are ``cut``.

    ``dst`` is diff_weights, or sums in the scratchpad: for parts of images, of rows, groups, taps,
    channels of src and of diff_dst. ``bias_partial`` is scratchpad for parts of the bias.
    """

    problem: WeightsGradient
    cut: Cut
    bias_partial: Argument | None = None

    @property
    def summary(self) -> PlanSummary:
        """The decisions, with those about the sums."""
        return replace(super().summary, cut=str(self.cut))

    @property
    def direct(self) -> bool:
        """Whether the product writes diff_weights."""
        return self.dst[0] != Arg.SCRATCHPAD


def resolve(problem: WeightsGradient, isa: Isa) -> WeightsGradient:
    """Decide the layouts that are ``any``: f32 in blocks of a cache line of channels (nChw16c);
    others with channels last. Output channels are last in weights."""

    def decided(desc: MemoryDesc, tag: str) -> MemoryDesc:
        return desc.with_tag(FormatTag(tag)) if desc.format_kind is FormatKind.any else desc

    def activation(desc: MemoryDesc, channels: int) -> MemoryDesc:
        blocked = desc.data_type is DataType.f32 is problem.narrow and isa.lanes > 1
        spatial = LETTERS[2 : desc.ndims]
        if blocked and isa.thread_memory and channels % _LINE == 0:
            return decided(desc, f"aB{spatial}{_LINE}b")
        return decided(desc, f"a{spatial}b")

    first = 1 if problem.grouped else 0
    taps = LETTERS[first + 2 : problem.diff_weights.ndims]
    weights = f"{LETTERS[:first]}{taps}{LETTERS[first + 1]}{LETTERS[first]}"
    return replace(
        problem,
        src=activation(problem.src, problem.channels),
        diff_dst=activation(problem.diff_dst, problem.outputs),
        diff_weights=decided(problem.diff_weights, weights),
        diff_bias=decided(problem.diff_bias, "a"),
    )


def configure(problem: WeightsGradient, isa: Isa) -> WeightsGradientConf | Refusal:
    """Plan a gradient whose layouts are all decided (see :func:`resolve`)."""
    src, diff_dst = problem.src, problem.diff_dst
    refusal = refuse_tensors(src, diff_dst, problem.diff_bias, problem.diff_weights)
    if refusal is not None:
        return refusal
    dot = dot_of(isa, src.data_type, diff_dst.data_type, problem.narrow)
    assert dot is not None, "refused before"
    if dot.group > 1 and problem.channels > problem.outputs and _is_pointwise(problem):
        problem = _exchanged(problem)
    return _plan(problem, isa, dot)


def _plan(problem: WeightsGradient, isa: Isa, dot: Multiply) -> WeightsGradientConf:
    """Plan a gradient that nothing refuses."""
    src, diff_dst, diff_weights = problem.src, problem.diff_dst, problem.diff_weights
    scratchpad = Scratchpad()
    of_src, of_dst, of_weights = problem.arguments
    read: Argument = (of_src, src)
    if not _in_place(problem, dot):
        read = scratchpad.copy(read, _packed(src, dot))
    block = channel_block(read[1]) if dot.group == 1 else 0
    step = 0 if block else read[1].strides[1] * read[1].data_type.size
    vectors = choose_vectors(isa, problem.outputs, step, dot.span)
    columns: Argument = (of_dst, diff_dst)
    rows = _rows(block or problem.channels, isa, vectors, dot)
    taps = prod(own.kernel for own in problem.space)
    often = problem.channels * taps >= _USES * rows and not diff_dst.inner_blocks
    if often or not _in_rows(problem, dot, vectors * isa.lanes, isa.lanes):
        columns = _panels(problem, columns, dot, vectors * isa.lanes, scratchpad)
    tile = TileShape(rows, vectors)
    cut = cut_sums(problem, isa, tile, dot, block)
    core = core_type(dot, diff_weights.data_type, NONE, bare=True)
    dst: Argument = (of_weights, diff_weights)
    if cut.parts > 1 or not _stores(problem):
        kernel = (own.kernel for own in problem.space)
        dims = (cut.image_parts, cut.row_parts, problem.groups, *kernel)
        dst = scratchpad.take(MemoryDesc((*dims, problem.channels, problem.outputs), core))
    conf = WeightsGradientConf(
        src=read,
        weights=columns,
        dst=dst,
        bias=MemoryDesc.zero(),
        post_ops=(),
        quantization=NONE,
        dequantized=NONE,
        factors=(int(of_src), int(of_dst)),
        multiply=dot,
        core=core,
        blocking=Blocking(tile, cut.panels, block or cut.channels),
        row_sums=None,
        copies_in=tuple(scratchpad.copies),
        copy_out=None,
        scratchpad=scratchpad.size,
        problem=problem,
        cut=cut,
    )
    if problem.diff_bias.is_zero:
        return conf
    partial = exact_partials_desc(isa, _bias(conf, Arguments()))
    bias = scratchpad.take(partial) if partial.nelems() else None
    return replace(conf, bias_partial=bias, scratchpad=scratchpad.size)


def _is_pointwise(problem: WeightsGradient) -> bool:
    """Whether src and diff_dst have the same pixels, which meet one by one."""
    return all((s.kernel, s.stride, s.padding, s.src) == (1, 1, 0, s.dst) for s in problem.space)


def _exchanged(problem: WeightsGradient) -> WeightsGradient:
    """The gradient with diff_dst as src and vice versa, as it may be for single pixels. Of operands
    in K groups src alone is always copied: that should be the smaller one."""
    of_src, of_dst, of_weights = problem.arguments
    return replace(
        problem,
        src=problem.diff_dst,
        diff_dst=problem.src,
        diff_weights=exchanged(problem.diff_weights, 1 if problem.grouped else 0),
        arguments=(of_dst, of_src, of_weights),
        of_src=not problem.of_src,
    )


def _in_place(problem: WeightsGradient, dot: Multiply) -> bool:
    """Whether the product reads src in place: single elements at any stride, or whole blocks of
    channels."""
    src = problem.src
    if src.data_type is not dot.a or dot.group > 1:
        return False
    return not src.inner_blocks or _in_blocks(src, problem.channels)


def _in_blocks(desc: MemoryDesc, channels: int) -> bool:
    """Whether the only blocks are of channels, whole ones of each group."""
    whole = desc.dims == desc.padded_dims and len(desc.inner_blocks) == 1
    return whole and desc.inner_blocks[0][0] == 1 and channels % channel_block(desc) == 0


def _packed(src: MemoryDesc, dot: Multiply) -> MemoryDesc:
    """The layout to which src is copied. Images are summed over, so a K group is of images."""
    spatial = LETTERS[2 : src.ndims]
    tag = f"a{spatial}b" if dot.group == 1 else f"A{spatial}b{dot.group}a"
    return src.with_data_type(dot.a).with_tag(FormatTag(tag))


def _in_rows(problem: WeightsGradient, dot: Multiply, width: int, lanes: int) -> bool:
    """Whether the product reads diff_dst in place: whole panels, in vectors of consecutive
    channels."""
    desc = problem.diff_dst
    if desc.data_type is not dot.b or problem.outputs % width:
        return False
    if dot.group > 1:
        whole = desc.dims[0] % dot.group == 0 and width % (dot.row_vectors * lanes) == 0
        return whole and desc.strides[1] == 1 and not desc.inner_blocks
    if desc.inner_blocks:
        return _in_blocks(desc, problem.outputs) and _in_vectors(problem, width, lanes)
    return desc.strides[1] == 1


def _in_vectors(problem: WeightsGradient, width: int, lanes: int) -> bool:
    """Whether the vectors of panels of ``width`` channels of diff_dst are in blocks, evenly
    apart."""
    desc = problem.diff_dst
    index = [Affine.of(Axis(max(2, extent), "i")) for extent in desc.dims]
    columns = Columns.of(problem.outputs, TileShape(1, width // lanes), lanes)
    index[1] = Affine.of(Axis(problem.groups, "g"), problem.outputs) + columns.form
    offset = linear_offset(desc, index)
    return offset is not None and offset.stride(columns.lane) == 1


def _panels(
    problem: WeightsGradient, diff_dst: Argument, dot: Multiply, width: int, scratchpad: Scratchpad
) -> Argument:
    """A copy of diff_dst in panels of ``width`` channels; groups have a dimension of their own."""
    slot, desc = diff_dst
    spatial = LETTERS[2 : desc.ndims]
    split = problem.groups > 1 and problem.outputs % width != 0
    if split:
        if desc.inner_blocks:
            slot, desc = scratchpad.copy(diff_dst, desc.with_tag(FormatTag(f"a{spatial}b")))
        desc = desc.reshape((desc.dims[0], problem.groups, problem.outputs, *desc.dims[2:]))
        spatial = LETTERS[3 : desc.ndims]
    head, channel = ("b", "c") if split else ("", "b")
    if dot.group == 1:
        tag = f"{head}{channel.upper()}a{spatial}{width}{channel}"
    else:
        tag = f"{head}{channel.upper()}A{spatial}{width}{channel}{dot.group}a"
    return scratchpad.copy((slot, desc), desc.with_data_type(dot.b).with_tag(FormatTag(tag)))


def _rows(channels: int, isa: Isa, vectors: int, dot: Multiply) -> int:
    """The rows of a tile: channels, of several taps along the width if there are few."""
    most = max_rows(isa, vectors * dot.span, dot.parts)
    return most if channels * 2 <= most else even_rows(channels, most)


def _stores(problem: WeightsGradient) -> bool:
    """Whether the product writes diff_weights in place, in vectors of either channels."""
    desc, first = problem.diff_weights, 1 if problem.grouped else 0
    if desc.data_type.bits < 8 or desc.inner_blocks or desc.dims != desc.padded_dims:
        return False
    return desc.strides[first] == 1 or desc.strides[first + 1] == 1


def build(conf: WeightsGradientConf, isa: Isa) -> Kernel:
    """The product, the sum of its parts, and the gradient of the bias."""
    name = "convolution_by_weights"
    module, arguments = Module(name, isa), Arguments()
    found = []
    if not conf.problem.diff_weights.has_zero_dim:
        found += phases.emit(module, conf, arguments, _products)
        found += () if conf.direct else _finished(module, conf, arguments)
    if not conf.problem.diff_bias.is_zero:
        fold, scratch = _bias(conf, arguments), (-1, MemoryDesc.zero())
        if conf.bias_partial is not None:
            scratch = arguments.slot(conf.bias_partial[0]), conf.bias_partial[1]
        symbol = f"{name}_bias__{conf.problem.diff_bias.data_type}__{isa.lanes}x1__{isa.name}"
        found.extend(emit_fold(module, symbol, fold, scratch))
    return Kernel(module, tuple(found), arguments.ids)


@dataclass(frozen=True, eq=False)
class Channels:
    """The channels of src in a group: ``items`` that threads do, each of so many ``blocks`` of a
    ``line`` of channels. Without blocks, there is one line."""

    items: Axis
    blocks: Axis
    line: Axis

    @staticmethod
    def of(conf: WeightsGradientConf) -> Channels:
        """The channels of a configuration."""
        channels, many = conf.problem.channels, conf.cut.channel_blocks
        block = channel_block(conf.src[1])
        if not block or conf.multiply.group > 1:
            return Channels(Axis(1, "items"), Axis(1, "blocks"), Axis(channels, "ic"))
        items = Axis(channels // (block * many), "items")
        return Channels(items, Axis(many, "icb"), Axis(block, "ic"))

    @property
    def form(self) -> Affine:
        """The number of a channel."""
        size = self.line.extent
        outer = Affine.of(self.items, size * self.blocks.extent)
        return outer + Affine.of(self.blocks, size) + Affine.of(self.line)


def _products(conf: WeightsGradientConf, isa: Isa, arguments: Arguments) -> Iterator[Product]:
    problem, cut, group = conf.problem, conf.cut, conf.multiply.group
    parts, blocks = cut.axes()
    g, image = Axis(problem.groups, "g"), Axis(cut.images, "n")
    taps = [Axis(own.kernel, f"k{name}") for own, name in zip(problem.space, "dhw", strict=True)]
    pixels = [
        Axis(cut.rows if dim == cut.dim else own.dst, f"o{name}")
        for dim, (own, name) in enumerate(zip(problem.space, "dhw", strict=True))
    ]
    channels = Channels.of(conf)
    columns = Columns.of(problem.outputs, conf.blocking.tile, isa.lanes)
    n = (cut.first_image(parts, blocks) + Affine.of(image)) * group
    begin = cut.first_row(parts, blocks)
    out = [Affine.of(axis) + (begin if dim == cut.dim else ZERO) for dim, axis in enumerate(pixels)]
    at = [
        Affine.of(tap, own.dilation) + pixel * own.stride + -own.padding
        for own, tap, pixel in zip(problem.space, taps, out, strict=True)
    ]
    ic, oc = Affine.of(g, problem.channels) + channels.form, columns.form
    spatial = problem.src.ndims - 2
    src = Operand(arguments.slot(conf.src[0]), conf.src[1], (n, ic, *at[3 - spatial :]))
    split = conf.weights[1].ndims > problem.diff_dst.ndims
    of_group = (Affine.of(g), oc) if split else (Affine.of(g, problem.outputs) + oc,)
    weights = Operand(
        arguments.slot(conf.weights[0]), conf.weights[1], (n, *of_group, *out[3 - spatial :])
    )
    dst = _result(conf, arguments, parts, g, taps, channels.form, oc)
    terms = problem.src.dims[0] * prod(own.dst for own in problem.space)
    nothing = (ZERO,) * problem.src.ndims
    indices = phases.Indices(bias=(oc,), src=nothing, weights=nothing)
    finish = phases.finish(conf, arguments, dst, indices, Depth(terms, terms))
    space, places, walked = _walks(conf, taps, pixels, channels)
    in_rows = group > 1 and not conf.weights[1].inner_blocks
    tail = (columns.inside,) if columns.inside.needed else ()
    begins = tuple(
        begin * own.stride if dim == cut.dim else ZERO for dim, own in enumerate(problem.space)
    )
    yield Product(
        (*parts, g),
        space,
        places,
        walked,
        (image,),
        (),
        columns,
        src,
        weights,
        conf.multiply,
        finish,
        conf.blocking,
        exists=tail,
        through=tuple(
            axis for axis in places[:-2] if isa.thread_memory and axis is not channels.items
        ),
        cut=blocks,
        begins=begins,
        k_stride=conf.weights[1].strides[0] if in_rows else 0,
    )


def _walks(
    conf: WeightsGradientConf, taps: list[Axis], pixels: list[Axis], channels: Channels
) -> tuple[tuple[Spatial, ...], tuple[Axis, ...], tuple[Axis, ...]]:
    """The space, places and taps of the product. Tiles go along the channels, and along taps of the
    width too if channels are few."""
    problem, cut = conf.problem, conf.cut
    space = [
        Spatial(own.src, own.kernel, axis.extent, own.dilation, own.padding, own.stride)
        for own, axis in zip(problem.space, pixels, strict=True)
    ]
    one, channel = Axis(1, "one"), channels.line
    outer, inner, line = (
        replace(ONE, src=axis.extent, dst=axis.extent)
        for axis in (channels.items, channels.blocks, channel)
    )
    whole = channels.items.extent == channels.blocks.extent == 1
    if whole and 2 * channel.extent <= conf.blocking.tile.rows and cut.dim != 2:
        return (*space, line), (*taps, channel), (*pixels, one)
    places = (*taps, channels.items, channels.blocks, Axis(1, "row"), channel)
    return (*space, outer, inner, ONE, line), places, (*pixels, one, one, one, one)


def _result(
    conf: WeightsGradientConf,
    arguments: Arguments,
    parts: tuple[Axis, ...],
    g: Axis,
    taps: list[Axis],
    ic: Affine,
    oc: Affine,
) -> Operand:
    """What the product writes."""
    slot = arguments.slot(conf.dst[0])
    if conf.direct:
        return _weights(conf, arguments, g, taps, ic, oc)
    outer = tuple(Affine.of(axis) for axis in (*parts, g, *taps))
    return Operand(slot, conf.dst[1], (*outer, ic, oc))


def _weights(
    conf: WeightsGradientConf,
    arguments: Arguments,
    g: Axis,
    taps: list[Axis],
    ic: Affine,
    oc: Affine,
) -> Operand:
    """diff_weights."""
    problem = conf.problem
    group = (Affine.of(g),) if problem.grouped else ()
    spatial = problem.src.ndims - 2
    index = (*group, oc, ic, *(Affine.of(tap) for tap in taps[3 - spatial :]))
    return Operand(arguments.slot(problem.arguments[2]), problem.diff_weights, index)


def _finished(module: Module, conf: WeightsGradientConf, arguments: Arguments) -> tuple[Phase, ...]:
    """Add up the parts, and store them as diff_weights."""
    image, row, groups, *taps, channels, outputs = conf.dst[1].dims
    parts, g = (Axis(image, "images"), Axis(row, "rows")), Axis(groups, "g")
    of_taps = [Axis(extent, f"k{name}") for extent, name in zip(taps, "dhw", strict=True)]
    ic, oc = Axis(channels, "ic"), Axis(outputs, "oc")
    given = (parts, g, of_taps, Affine.of(ic), Affine.of(oc))
    read = _result(conf, arguments, *given)
    written = _weights(conf, arguments, *given[1:])
    fold = _sum(conf, (g, oc, ic, *of_taps), parts, read, written)
    problem, isa = conf.problem, module.isa
    symbol = f"{module.ir.name}_sum__{problem.diff_weights.data_type}__{isa.lanes}x1__{isa.name}"
    return (emit_nest(module, symbol, at_once(fold)),)


def _bias(conf: WeightsGradientConf, arguments: Arguments) -> Fold:
    """The sum of diff_dst, or of src, over images and pixels."""
    problem = conf.problem
    slot, desc = problem.arguments[1], problem.diff_dst
    if problem.of_src:
        slot, desc = problem.arguments[0], problem.src
    axes = [Axis(extent, letter) for extent, letter in zip(desc.dims, LETTERS, strict=False)]
    index = tuple(Affine.of(axis) for axis in axes)
    read = Operand(arguments.slot(slot), desc, index)
    bias = Operand(arguments.slot(Arg.DIFF_BIAS), problem.diff_bias, (index[1],))
    return _sum(conf, (axes[1],), (axes[0], *axes[2:]), read, bias)


def _sum(
    conf: WeightsGradientConf,
    parallel: tuple[Axis, ...],
    reduced: tuple[Axis, ...],
    read: Operand,
    written: Operand,
) -> Fold:
    """The sum of one operand over ``reduced``."""
    held = computed_in(conf.problem.diff_weights, conf.problem.diff_dst)
    reduction = sums(lambda p, total: (p.e.b.fadd(total, p.load(read)),), 1, held)

    def store(point: Point, values: tuple[object, ...]) -> None:
        point.store(written, *values)

    return Fold(parallel, reduced, (read,), (written,), reduction, store)
