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
from functools import partial
from math import prod

from dnnl.codegen.epilogue.product_epilogue import Depth
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.codegen.nest.folds import Fold, at_once, emit_fold, exact_partials_desc
from dnnl.codegen.nest.nest import emit_nest
from dnnl.kernels.convolution.direct.copied_gradient import CopiedGradient, is_copied
from dnnl.kernels.convolution.direct.gradient_blocking import Cut
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient
from dnnl.kernels.convolution.direct.pieces import channel_block
from dnnl.kernels.convolution.direct.unit_gradient import UnitGradient
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.kernels.product.base.problem import LETTERS, Panels
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.product.base.types import refuse_tensors
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.loops.form import ONE, Product, along_line
from dnnl.kernels.product.pack.block_copies import BlockCopy
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.kernels.product.plan.dot_kind import chosen_dot
from dnnl.kernels.product.plan.plan import plan
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.shared.copies import emit_k_groups
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.kernels.shared.sums import bias_gradient, sum_fold
from dnnl.kernels.shared.types import computed_in
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_LINE = LINE // 4  # f32

GradientProduct = ProductConf[WeightsGradient]


@dataclass(frozen=True)
class WeightsGradientConf:
    """The product, whose sums are ``cut``, and ``bias_partial``: scratchpad for parts of the bias.
    ``scratchpad`` is in bytes."""

    product: GradientProduct
    cut: Cut
    bias_partial: Argument | None
    scratchpad: int

    @property
    def summary(self) -> PlanSummary:
        """The decisions, with those about the sums."""
        copied = isinstance(self.product.problem, CopiedGradient)
        said = "; threads copy what a block reads" if copied else ""
        return replace(self.product.summary, cut=f"{self.cut}{said}")


def resolve(problem: WeightsGradient, isa: Isa) -> WeightsGradient:
    """Decide the layouts that are ``any``: f32 in blocks of a cache line of channels (nChw16c);
    others with channels last, or plain for a matrix unit. Output channels are last in weights."""
    of_unit = UnitGradient.of(problem, isa) is not None

    def decided(desc: MemoryDesc, tag: str) -> MemoryDesc:
        return desc.with_tag(FormatTag(tag)) if desc.format_kind is FormatKind.any else desc

    def activation(desc: MemoryDesc, channels: int) -> MemoryDesc:
        blocked = desc.data_type is DataType.f32 is problem.narrow and isa.lanes > 1
        spatial = LETTERS[2 : desc.ndims]
        if blocked and isa.thread_memory and channels % _LINE == 0:
            return decided(desc, f"aB{spatial}{_LINE}b")
        if of_unit:
            return decided(desc, f"ab{spatial}")
        return decided(desc, f"a{spatial}b")

    first = 1 if problem.grouped else 0
    taps = LETTERS[first + 2 : problem.diff_weights.ndims]
    weights = f"{LETTERS[:first]}{taps}{LETTERS[first + 1]}{LETTERS[first]}"
    return replace(
        problem,
        src=activation(problem.src, problem.channels),
        weights=activation(problem.diff_dst, problem.outputs),
        dst=decided(problem.diff_weights, weights),
        diff_bias=decided(problem.diff_bias, "a"),
    )


def configure(problem: WeightsGradient, isa: Isa) -> WeightsGradientConf | Refusal:
    """Plan a gradient whose layouts are all decided (see :func:`resolve`)."""
    src, diff_dst = problem.src, problem.diff_dst
    refusal = refuse_tensors(src, diff_dst, problem.diff_bias, problem.diff_weights)
    if refusal is not None:
        return refusal
    dot = chosen_dot(problem, isa)
    assert dot is not None, "refused before"
    of_unit = UnitGradient.of(problem, isa)
    if of_unit is not None:
        problem = of_unit
    elif is_copied(problem, isa, dot):
        problem = CopiedGradient.of(problem)
    elif dot.group > 1 and problem.channels > problem.outputs and problem.pointwise:
        # Of operands in K groups src alone is always copied: that should be the smaller one.
        problem = problem.exchanged()
    scratchpad = Scratchpad()
    product = plan(problem, isa, scratchpad=scratchpad)
    panels = Panels(product.weights[1], product.blocking.tile.vectors)
    cut, parts = problem.cut(isa, product.multiply, product.src[1], panels), None
    if not problem.diff_bias.is_zero:
        wanted = exact_partials_desc(isa, _bias(problem, Arguments()))
        parts = scratchpad.take(wanted) if wanted.nelems() else None
    return WeightsGradientConf(product, cut, parts, scratchpad.size)


def build(conf: WeightsGradientConf, isa: Isa) -> Kernel:
    """The product, the sum of its parts, and the gradient of the bias."""
    name, product, problem = "convolution_by_weights", conf.product, conf.product.problem
    module, arguments = Module(name, isa), Arguments()
    found: list[Phase] = []
    if not problem.diff_weights.has_zero_dim:
        found += _copies(module, product, arguments)
        given = replace(product, copies_in=())
        found += phases.emit(module, given, arguments, partial(_products, conf.cut))
        found += () if _is_direct(product) else _finished(module, product, arguments)
    if not problem.diff_bias.is_zero:
        fold, scratch = _bias(problem, arguments), (-1, MemoryDesc.zero())
        if conf.bias_partial is not None:
            scratch = arguments.slot(conf.bias_partial[0]), conf.bias_partial[1]
        symbol = f"{name}_bias__{problem.diff_bias.data_type}__{isa.lanes}x1__{isa.name}"
        found.extend(emit_fold(module, symbol, fold, scratch))
    return Kernel(module, tuple(found), arguments.ids)


def _copies(module: Module, conf: GradientProduct, arguments: Arguments) -> Iterator[Phase]:
    """Write the copies of whole tensors."""
    name, isa = module.ir.name, module.isa
    for number, (given, copy) in enumerate(conf.copies_in):
        symbol = f"{name}_in{number}__{copy[1].data_type}__{isa.lanes}x1__{isa.name}"
        yield emit_k_groups(module, symbol, given, copy, arguments)


def _is_direct(conf: GradientProduct) -> bool:
    """Whether the product writes diff_weights, not sums in the scratchpad."""
    return conf.dst[0] != Arg.SCRATCHPAD


@dataclass(frozen=True, eq=False)
class Channels:
    """The channels of src in a group: ``items`` that threads do, each of so many ``blocks`` of a
    ``line`` of channels. Without blocks, there is one line."""

    items: Axis
    blocks: Axis
    line: Axis

    @staticmethod
    def of(conf: GradientProduct, cut: Cut) -> Channels:
        """The channels of a product whose sums are cut."""
        channels, many = conf.problem.channels, cut.channel_blocks
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


def _products(cut: Cut, conf: GradientProduct, isa: Isa, arguments: Arguments) -> Iterator[Product]:
    if isinstance(conf.problem, CopiedGradient):
        yield _product_of_copies(cut, conf, conf.problem, isa, arguments)
        return
    if isinstance(conf.problem, UnitGradient):
        yield _product_of_unit(cut, conf, conf.problem, isa, arguments)
        return
    problem, group = conf.problem, conf.multiply.group
    parts, blocks = cut.axes()
    g, image = Axis(problem.groups, "g"), Axis(cut.images, "n")
    taps = [Axis(own.kernel, f"k{name}") for own, name in zip(problem.space, "dhw", strict=True)]
    pixels = [
        Axis(cut.rows if dim == cut.dim else own.dst, f"o{name}")
        for dim, (own, name) in enumerate(zip(problem.space, "dhw", strict=True))
    ]
    channels = Channels.of(conf, cut)
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
    space, places, walked = _walks(conf, cut, taps, pixels, channels)
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


def _product_of_copies(
    cut: Cut, conf: GradientProduct, problem: CopiedGradient, isa: Isa, arguments: Arguments
) -> Product:
    """The product of what threads copy."""
    tile, group = conf.blocking.tile, conf.multiply.group
    copies = problem.copies(cut, conf.multiply, tile.vectors * isa.lanes)
    parts, blocks = cut.axes()
    columns = Columns.of(copies[1].dims[1], tile, isa.lanes)
    g, line = Axis(problem.groups, "g"), Axis(cut.channels, "ic")
    some_ic = Axis(problem.channels // cut.channels, "ic_item")
    some_oc = Axis(problem.outputs // columns.count, "oc_item")
    image, pixels = Axis(cut.images, "n"), problem.pixels(cut)
    skipped = 5 - problem.src.ndims

    # What a block of an item reads in the tensors, and in the copies.
    first = [cut.first_row(parts, blocks) if dim == cut.dim else ZERO for dim in range(3)]
    n = cut.first_image(parts, blocks) * group
    at = [row * own.stride for row, own in zip(first, problem.space, strict=True)]
    begin_ic, begin_oc = Affine.of(some_ic, cut.channels), Affine.of(some_oc, columns.count)
    ic, oc = (
        Affine.of(g, size) + begin
        for size, begin in ((problem.channels, begin_ic), (problem.outputs, begin_oc))
    )
    src = Operand(arguments.slot(conf.src[0]), problem.src, (n, ic, *at[skipped:]))
    diff_dst = Operand(arguments.slot(conf.weights[0]), problem.diff_dst, (n, oc, *first[skipped:]))
    here = Affine.of(image, group), [Affine.of(axis) for axis in pixels[skipped:]]
    rows = Operand(src.slot, copies[0], (here[0], Affine.of(line), *here[1]))
    panels = Operand(diff_dst.slot, copies[1], (here[0], columns.form, *here[1]))

    taps = [Axis(1, f"k{name}") for name in "dhw"]
    own_oc = begin_oc + columns.form
    dst = _result(conf, arguments, parts, g, taps, begin_ic + Affine.of(line), own_oc)
    nothing = (ZERO,) * problem.src.ndims
    indices = phases.Indices(bias=(own_oc,), src=nothing, weights=nothing)
    space, places, ones = along_line(line)
    return Product(
        (*parts, g, some_oc, some_ic),
        space,
        places,
        ones,
        (),
        (image, *pixels),
        columns,
        rows,
        panels,
        conf.multiply,
        phases.finish(conf, arguments, dst, indices, Depth(problem.terms, problem.terms)),
        conf.blocking,
        exists=(columns.inside,) if columns.inside.needed else (),
        cut=blocks,
        copies=(
            BlockCopy(src, problem.part(problem.src, copies[0], problem.space), rows),
            BlockCopy(diff_dst, problem.part(problem.diff_dst, copies[1]), panels),
        ),
    )


def _product_of_unit(
    cut: Cut, conf: GradientProduct, problem: UnitGradient, isa: Isa, arguments: Arguments
) -> Product:
    """The product of a matrix unit. All taps and pixels are inside of the copy of src."""
    group, pairs = conf.multiply.group, problem.pairs
    border = conf.border
    original = problem.space if border is None else border.space(problem.space)
    parts, blocks = cut.axes()
    g, image = Axis(problem.groups, "g"), Axis(cut.images, "n")
    several = (Axis(pairs, "pair"),) if pairs > 1 else ()
    taps = [Axis(own.kernel, f"k{name}") for own, name in zip(original, "dhw", strict=True)]
    pixels = [
        Axis(cut.rows if dim == cut.dim else own.dst, f"o{name}")
        for dim, (own, name) in enumerate(zip(original, "dhw", strict=True))
    ]
    line, row = Axis(problem.channels, "ic"), Axis(1, "row")
    columns = Columns.of(problem.outputs, conf.blocking.tile, isa.lanes)
    n = (cut.first_image(parts, blocks) + Affine.of(image)) * (pairs * group)
    n = sum((Affine.of(pair, group) for pair in several), n)
    begin = cut.first_row(parts, blocks)
    out = [Affine.of(axis) + (begin if dim == cut.dim else ZERO) for dim, axis in enumerate(pixels)]
    at = [
        Affine.of(tap, own.dilation) + pixel * own.stride + -own.padding
        for own, tap, pixel in zip(original, taps, out, strict=True)
    ]
    skipped = 5 - problem.src.ndims
    ic, oc = Affine.of(g, problem.channels) + Affine.of(line), columns.form
    of_group = Affine.of(g, problem.outputs) + oc
    src = Operand(arguments.slot(conf.read[0]), conf.read[1], (n, ic, *at[skipped:]))
    weights = Operand(
        arguments.slot(conf.weights[0]), conf.weights[1], (n, of_group, *out[skipped:])
    )
    dst = _result(conf, arguments, parts, g, taps, Affine.of(line), oc)
    nothing = (ZERO,) * problem.src.ndims
    indices = phases.Indices(bias=(oc,), src=nothing, weights=nothing)
    places = (*taps, row, line)
    return Product(
        (*parts, g),
        tuple(replace(ONE, src=axis.extent, dst=axis.extent) for axis in places),
        places,
        (Axis(1, "one"),) * len(places),
        (),
        (image, *pixels, *several),
        columns,
        src,
        weights,
        conf.multiply,
        phases.finish(conf, arguments, dst, indices, Depth(problem.terms, problem.terms)),
        conf.blocking,
        exists=(columns.inside,) if columns.inside.needed else (),
        through=tuple(taps),
        cut=blocks,
    )


def _walks(
    conf: GradientProduct, cut: Cut, taps: list[Axis], pixels: list[Axis], channels: Channels
) -> tuple[tuple[Spatial, ...], tuple[Axis, ...], tuple[Axis, ...]]:
    """The space, places and taps of the product. Tiles go along the channels, and along taps of the
    width too if channels are few."""
    problem = conf.problem
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
    conf: GradientProduct,
    arguments: Arguments,
    parts: tuple[Axis, ...],
    g: Axis,
    taps: list[Axis],
    ic: Affine,
    oc: Affine,
) -> Operand:
    """What the product writes."""
    slot = arguments.slot(conf.dst[0])
    if _is_direct(conf):
        return _weights(conf, arguments, g, taps, ic, oc)
    outer = tuple(Affine.of(axis) for axis in (*parts, g, *taps))
    return Operand(slot, conf.dst[1], (*outer, ic, oc))


def _weights(
    conf: GradientProduct,
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


def _finished(module: Module, conf: GradientProduct, arguments: Arguments) -> tuple[Phase, ...]:
    """Add up the parts, and store them as diff_weights."""
    image, row, groups, *taps, channels, outputs = conf.dst[1].dims
    parts, g = (Axis(image, "images"), Axis(row, "rows")), Axis(groups, "g")
    of_taps = [Axis(extent, f"k{name}") for extent, name in zip(taps, "dhw", strict=True)]
    ic, oc = Axis(channels, "ic"), Axis(outputs, "oc")
    given = (parts, g, of_taps, Affine.of(ic), Affine.of(oc))
    read = _result(conf, arguments, *given)
    written = _weights(conf, arguments, *given[1:])
    axes = (g, oc, ic, *of_taps)
    fold = sum_fold(axes, parts, (read,), written, _computed(conf.problem))
    problem, isa = conf.problem, module.isa
    symbol = f"{module.ir.name}_sum__{problem.diff_weights.data_type}__{isa.lanes}x1__{isa.name}"
    return (emit_nest(module, symbol, at_once(fold)),)


def _bias(problem: WeightsGradient, arguments: Arguments) -> Fold:
    """The sum of diff_dst, or of src, over images and pixels."""
    of_src, of_dst, _ = problem.arguments
    given = (of_src, problem.src) if problem.of_src else (of_dst, problem.diff_dst)
    return bias_gradient(given, problem.diff_bias, _computed(problem), arguments)


def _computed(problem: WeightsGradient) -> DataType:
    return computed_in(problem.diff_weights, problem.diff_dst)
