"""The images of residues of a transposed convolution: which convolutions compute them, and where
their pixels are in dst."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, broadcast, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.convolution.direct.pieces import Piece
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.convolution.direct.residues import each
from dnnl.kernels.product.base.pixel_tiles import Space
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.layout import Layout
from dnnl.types.memory_desc import MemoryDesc


def pieces_of(space: Space) -> Iterator[tuple[Piece, bool]]:
    """The convolution of each residue, and whether it has taps in all dimensions."""
    for chosen in product(*(each(own) for own in space)):
        parts, tapped = zip(*chosen, strict=True)
        (d, h, w), (in_d, in_h, in_w) = zip(*parts, strict=True)
        yield Piece((d, h, w), (in_d, in_h, in_w)), all(tapped)


def emit_untapped(
    module: Module,
    name: str,
    problem: ConvolutionProblem,
    images: Sequence[MemoryDesc],
    arguments: Arguments,
) -> list[Phase]:
    """Write the phases that store the bias as the pixels of these images, or zero without one."""
    isa, found = module.isa, []
    for number, pixels in enumerate(images):
        symbol = f"{name}_untapped{number}__{pixels.data_type}__{isa.lanes}x1__{isa.name}"
        found.append(_emit_bias(module, symbol, problem, pixels, arguments))
    return found


def _emit_bias(
    module: Module,
    symbol: str,
    problem: ConvolutionProblem,
    pixels: MemoryDesc,
    arguments: Arguments,
) -> Phase:
    axes = letters(pixels.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    dst = Operand(arguments.slot(problem.arguments[2]), pixels, index)
    given: tuple[Operand, ...] = ()
    if not problem.bias.is_zero:
        slot = arguments.slot(Arg.BIAS)
        given = (Operand(slot, problem.bias, broadcast(problem.bias, index[1:2])),)

    def body(point: Point) -> None:
        point.store(dst, point.load(given[0]) if given else point.constant(0))

    core = storage(core_of_residue(pixels)).element
    return emit_nest(module, symbol, Nest(axes, (), given, (dst,), body, core=core))


def pixels_of(dst: MemoryDesc, piece: Piece) -> MemoryDesc:
    """The pixels of dst, or of a tensor of its sizes, that a piece computes, as an activation."""
    count = dst.ndims - 2
    outputs = [own.outputs for own in piece.residues][3 - count :]
    sizes = tuple(own.dst for own in piece.space)[3 - count :]
    places = dst.strides[2:]
    begin = sum((own.first * place for own, place in zip(outputs, places, strict=True)), 0)
    layout = Layout(
        (*dst.dims[:2], *sizes),
        (*dst.padded_dims[:2], *sizes),
        (*dst.strides[:2], *(o.step * place for o, place in zip(outputs, places, strict=True))),
        dst.inner_blocks,
        dst.offset0 + begin,
    )
    return MemoryDesc.of_layout(dst, layout)


def core_of_residue(pixels: MemoryDesc) -> DataType:
    """The type in which results are computed."""
    return DataType.f64 if pixels.data_type is DataType.f64 else DataType.f32
