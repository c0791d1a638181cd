"""Compensation of zero points and shifted operands in a convolution, pixel by pixel.

Padding takes no part in a sum. Near borders fewer taps are inside of the image, so that the
compensation differs there::

    channel sums    of src, over the channels of a group             for each pixel of src
    row sums        of channel sums, over the taps in the image      for each pixel of dst
    tap sums        of za * (w - zw), over the channels of a group   for each tap and output
    column sums     of tap sums, over the taps in the image          for each pixel and output

Without padding all pixels of a convolution have the same column sums. In a transposed one, taps
differ between residues.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dnnl.codegen.epilogue.quantization import Quantization, Quantizer
from dnnl.codegen.ir.builder import Module, Value
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Bound, Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.codegen.nest.point import Point
from dnnl.kernels.convolution.direct.compute import ConvolutionConf, Piece, Space, walk
from dnnl.kernels.product.compensation.integer_sums import emit_sums
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc


def take_row_sums(
    scratchpad: Scratchpad, batch: int, groups: int, space: Space
) -> tuple[Argument, Argument]:
    """Scratchpad for the channel sums and the row sums."""
    before = (batch, groups, *(s.src for s in space))
    after = (batch, groups, *(s.dst for s in space))
    return scratchpad.take(MemoryDesc(before, "s32")), scratchpad.take(MemoryDesc(after, "s32"))


def take_column_sums(
    scratchpad: Scratchpad, outputs: int, space: Space, *, borders: bool
) -> tuple[Argument, Argument]:
    """Scratchpad for the tap sums and the column sums of ``outputs`` output channels; column sums
    vary with pixels if there are ``borders``."""
    taps = (*(s.kernel for s in space), outputs)
    pixels = (*(s.dst if borders else 1 for s in space), outputs)
    return scratchpad.take(MemoryDesc(taps, "s32")), scratchpad.take(MemoryDesc(pixels, "s32"))


def emit(module: Module, conf: ConvolutionConf, arguments: Arguments) -> Iterator[Phase]:
    """Write the phases that ``conf`` needs."""
    isa = module.isa

    def symbol(name: str, part: Argument, number: int = 0) -> str:
        return (
            f"convolution_{name}{number or ''}__{part[1].data_type}_s32__{isa.lanes}x1__{isa.name}"
        )

    if conf.channel_sums is not None and conf.row_sums is not None:
        yield _channel_sums(module, symbol("channel_sums", conf.src), conf, arguments)
        for number, piece in enumerate(conf.pieces):
            name = symbol("row_sums", conf.row_sums.sums, number)
            yield _row_sums(module, name, conf, piece, arguments)
    if conf.tap_sums is not None and conf.column_sums is not None:
        yield _tap_sums(module, symbol("tap_sums", conf.weights), conf, arguments)
        for number, piece in enumerate(conf.pieces if conf.borders else conf.pieces[:1]):
            name = symbol("column_sums", conf.column_sums, number)
            yield _column_sums(module, name, conf, piece, arguments)


def _operand(part: Argument | None, index: tuple[Affine, ...], arguments: Arguments) -> Operand:
    assert part is not None
    return Operand(arguments.slot(part[0]), part[1], index)


def _channel_sums(
    module: Module, symbol: str, conf: ConvolutionConf, arguments: Arguments
) -> Phase:
    n, g = Axis(conf.dst[1].dims[0], "n"), Axis(conf.groups, "g")
    assert conf.channel_sums is not None
    at = [Axis(size, "pixel") for size in conf.channel_sums[1].dims[2:]]
    c = Axis(conf.channels, "ic")
    batch, group, *pixel = (Affine.of(axis) for axis in (n, g, *at))
    src = _operand(conf.src, conf.src_index(batch, group, Affine.of(c), pixel), arguments)
    total = _operand(conf.channel_sums, (batch, group, *pixel), arguments)
    axes = (n, g, *at), (c,)
    return emit_sums(module, symbol, axes, (src,), total, lambda point: point.load(src))


def _row_sums(
    module: Module, symbol: str, conf: ConvolutionConf, piece: Piece, arguments: Arguments
) -> Phase:
    n, g = Axis(conf.dst[1].dims[0], "n"), Axis(conf.groups, "g")
    here, batch, group = walk(piece), Affine.of(n), Affine.of(g)
    sums = _operand(conf.channel_sums, (batch, group, *here.src_pixel), arguments)
    assert conf.row_sums is not None
    total = _operand(conf.row_sums.sums, (batch, group, *here.at), arguments)
    axes = (n, g, *here.residues, *here.places), here.taps
    return emit_sums(module, symbol, axes, (sums,), total, lambda point: point.load(sums))


def _tap_sums(module: Module, symbol: str, conf: ConvolutionConf, arguments: Arguments) -> Phase:
    assert conf.tap_sums is not None
    taps, g = [Axis(size, "tap") for size in conf.tap_sums[1].dims[:-1]], Axis(conf.groups, "g")
    o, c = Axis(conf.outputs, "oc"), Axis(conf.channels, "ic")
    offsets = [Affine.of(axis) for axis in taps]
    group, output, channel = Affine.of(g), Affine.of(o), Affine.of(c)
    index = conf.weights_index(group, output, channel, offsets)
    weights = _operand(conf.weights, index, arguments)
    number = group * conf.outputs + output
    total = _operand(conf.tap_sums, (*offsets, number), arguments)
    # The zero points of src as given, with all channels in one dimension.
    spatial = conf.dst[1].ndims - 2
    pixel = MemoryDesc((1, conf.groups * conf.channels, *[1] * spatial), "u8")
    src = Operand(0, pixel, (ZERO, group * conf.channels + channel, *[ZERO] * spatial))
    source, factor = conf.factors
    quantizer = Quantizer(
        Quantization(zero_points=conf.quantization.zero_points).of_arguments(conf.factors),
        {source: src, factor: weights},
        arguments,
    )
    zero, shift = quantizer.zero_point(source), quantizer.zero_point(factor)
    assert zero is not None, "there is nothing to compensate"

    def term(point: Point) -> Value:
        value = point.load(weights)
        if shift is not None:
            value = point.e.b.sub(value, point.load(shift))
        return point.e.b.mul(value, point.load(zero))

    inputs = (weights, *quantizer.operands)
    return emit_sums(module, symbol, ((*taps, g, o), (c,)), inputs, total, term)


def _column_sums(
    module: Module, symbol: str, conf: ConvolutionConf, piece: Piece, arguments: Arguments
) -> Phase:
    here, o = walk(piece), Axis(conf.groups * conf.outputs, "oc")
    output = Affine.of(o)
    places = (*here.residues, *here.places) if conf.borders else ()
    at = here.at if conf.borders else [ZERO] * 3
    inside = tuple(
        Bound(form, s.src)
        for form, s in zip(here.src_pixel, piece.space, strict=True)
        if conf.borders and s.padded
    )
    sums = _operand(conf.tap_sums, (*here.offsets, output), arguments)
    sums = replace(sums, inside=inside)
    total = _operand(conf.column_sums, (*at, output), arguments)
    axes = (*places, o), here.taps
    return emit_sums(module, symbol, axes, (sums,), total, lambda point: point.load(sums))
