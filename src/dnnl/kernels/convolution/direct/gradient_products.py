"""The products of a gradient of weights: the axes of their sums, and index forms of operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dnnl.codegen.epilogue.product_epilogue import Depth
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.kernels.convolution.direct.copied_gradient import CopiedGradient
from dnnl.kernels.convolution.direct.gradient_blocking import Cut, OpenCut
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient
from dnnl.kernels.convolution.direct.pieces import channel_block
from dnnl.kernels.convolution.direct.unit_gradient import UnitGradient
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.loops.form import ONE, Product, along_line
from dnnl.kernels.product.pack.block_copies import BlockCopy
from dnnl.kernels.product.plan.conf import ProductConf
from dnnl.types.arg import Arg

GradientProduct = ProductConf[WeightsGradient]


@dataclass(frozen=True, eq=False)
class Channels:
    """The channels of src in a group: ``items`` that threads do, each of so many ``blocks`` of a
    ``line`` of channels. Without blocks, there is one line."""

    items: Axis
    blocks: Axis
    line: Axis

    @staticmethod
    def of(conf: GradientProduct, cut: Cut | OpenCut) -> Channels:
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

    def are_few(self, rows: int) -> bool:
        """Whether they fill at most half of a tile of so many ``rows``."""
        whole = self.items.extent == self.blocks.extent == 1
        return whole and 2 * self.line.extent <= rows


def products(
    cut: Cut | OpenCut, conf: GradientProduct, isa: Isa, arguments: Arguments
) -> Iterator[Product]:
    """The product of a gradient whose sums are ``cut``."""
    if isinstance(cut, OpenCut):
        yield _product_of_lines(cut, conf, isa, arguments)
        return
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
    dst = result(conf, arguments, parts, g, taps, channels.form, oc)
    nothing = (ZERO,) * problem.src.ndims
    indices = phases.Indices(bias=(oc,), src=nothing, weights=nothing)
    finish = phases.finish(conf, arguments, dst, indices, Depth(problem.terms, problem.terms))
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
    dst = result(conf, arguments, parts, g, taps, begin_ic + Affine.of(line), own_oc)
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
    dst = result(conf, arguments, parts, g, taps, Affine.of(line), oc)
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


def _product_of_lines(
    cut: OpenCut, conf: GradientProduct, isa: Isa, arguments: Arguments
) -> Product:
    """The product of lines of pixels, for each image. Tiles go along the channels, and along taps
    of the width too if channels are few."""
    problem = conf.problem
    parts, g = (Axis(cut.image_parts, "images"), Axis(1, "rows")), Axis(problem.groups, "g")
    image, pixel = Axis(problem.src.dims[0], "n"), Axis(problem.space[2].dst, "pixel")
    taps = [Axis(own.kernel, f"k{name}") for own, name in zip(problem.space, "dhw", strict=True)]
    down, along, _ = taps
    channels = Channels.of(conf, cut)
    columns = Columns.of(problem.outputs, conf.blocking.tile, isa.lanes)
    n, at = Affine.of(image), Affine.of(pixel)
    ic, oc = Affine.of(g, problem.channels) + channels.form, columns.form
    split = conf.weights[1].ndims > problem.diff_dst.ndims
    of_group = (Affine.of(g), oc) if split else (Affine.of(g, problem.outputs) + oc,)
    src = Operand(
        arguments.slot(conf.src[0]), conf.src[1], (n, ic, Affine.of(down), Affine.of(along), at)
    )
    weights = Operand(
        arguments.slot(conf.weights[0]), conf.weights[1], (n, *of_group, ZERO, ZERO, at)
    )
    dst = result(conf, arguments, parts, g, taps, channels.form, oc)
    nothing = (ZERO,) * problem.src.ndims
    indices = phases.Indices(bias=(oc,), src=nothing, weights=nothing)
    rows: tuple[Axis, ...] = (channels.items, channels.blocks, Axis(1, "row"))
    if channels.are_few(conf.blocking.tile.rows):
        rows = ()
    places = (down, along, *rows, channels.line)
    return Product(
        (*parts, g),
        tuple(replace(ONE, src=axis.extent, dst=axis.extent) for axis in places),
        places,
        (Axis(1, "one"),) * len(places),
        (),
        (pixel,) if cut.steps else (image, pixel),
        columns,
        src,
        weights,
        conf.multiply,
        phases.finish(conf, arguments, dst, indices, Depth(problem.terms, problem.terms)),
        conf.blocking,
        exists=(columns.inside,) if columns.inside.needed else (),
        through=tuple(
            axis for axis in places[:-2] if isa.thread_memory and axis is not channels.items
        ),
        cut=(image,) if cut.steps else (),
        shared=parts[0] if cut.steps else None,
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
    if channels.are_few(conf.blocking.tile.rows) and cut.dim != 2:
        return (*space, line), (*taps, channel), (*pixels, one)
    places = (*taps, channels.items, channels.blocks, Axis(1, "row"), channel)
    return (*space, outer, inner, ONE, line), places, (*pixels, one, one, one, one)


def result(
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
    if is_direct(conf):
        return diff_weights(conf, arguments, g, taps, ic, oc)
    outer = tuple(Affine.of(axis) for axis in (*parts, g, *taps))
    return Operand(slot, conf.dst[1], (*outer, ic, oc))


def diff_weights(
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


def is_direct(conf: GradientProduct) -> bool:
    """Whether the product writes diff_weights, not sums in the scratchpad."""
    return conf.dst[0] != Arg.SCRATCHPAD
