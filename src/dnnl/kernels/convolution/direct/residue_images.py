"""The images of residues of a transposed convolution: which convolutions compute them, and where
their pixels are in dst."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.epilogue.attributes import Attributes, Result
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
from dnnl.types.post_ops import PostOp, PostOpPrelu
from dnnl.types.size import is_one

_CHANNELS = 3
"""The mask of what varies along images and channels."""


def pieces_of(space: Space) -> Iterator[tuple[Piece, bool]]:
    """The convolution of each residue, and whether it has taps in all dimensions."""
    for chosen in product(*(each(own) for own in space)):
        parts, tapped = zip(*chosen, strict=True)
        (d, h, w), (in_d, in_h, in_w) = zip(*parts, strict=True)
        yield Piece((d, h, w), (in_d, in_h, in_w)), all(tapped)


def serves(problem: ConvolutionProblem) -> bool:
    """Whether the pixels of a residue are a tensor, and attributes mean the same for it: dst and
    operands have no blocks of pixels, and nothing else depends on where in dst a pixel is."""
    given = problem.quantization
    specs = (*given.scales, *given.zero_points)
    masks = [spec.mask for _, spec in specs]
    masks += [entry.mask for entry in problem.post_ops if isinstance(entry, PostOpPrelu)]
    operands = (desc for entry in problem.post_ops for _, desc in entry.operands)
    blocked = any(dim > 1 for own in (problem.dst, *operands) for dim, _ in own.inner_blocks)
    return not blocked and all(mask <= _CHANNELS for mask in masks)


def emit_untapped(
    module: Module,
    name: str,
    problem: ConvolutionProblem,
    pieces: Sequence[Piece],
    arguments: Arguments,
) -> list[Phase]:
    """Write the phases that compute the pixels of ``pieces`` without taps: their sums are zero."""
    isa, found = module.isa, []
    for number, piece in enumerate(pieces):
        symbol = f"{name}_untapped{number}__{problem.dst.data_type}__{isa.lanes}x1__{isa.name}"
        found.append(_emit_bias(module, symbol, problem, piece, arguments))
    return found


def _emit_bias(
    module: Module,
    symbol: str,
    problem: ConvolutionProblem,
    piece: Piece,
    arguments: Arguments,
) -> Phase:
    pixels = pixels_of(problem.dst, piece)
    axes = letters(pixels.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    dst = Operand(arguments.slot(problem.arguments[2]), pixels, index)
    attributes = Attributes(post_ops_of(problem, piece), problem.quantization)
    result = Result(attributes, dst, arguments, requantizes=True)
    given: tuple[Operand, ...] = ()
    if not problem.bias.is_zero:
        slot = arguments.slot(Arg.BIAS)
        given = (Operand(slot, problem.bias, broadcast(problem.bias, index[1:2])),)

    def body(point: Point) -> None:
        result.store(point, point.load(given[0]) if given else point.constant(0))

    nest = Nest(
        axes,
        (),
        (*given, *result.inputs),
        result.outputs,
        body,
        reads_dst=result.reads_dst,
        core=storage(core_of_residue(pixels)).element,
    )
    return emit_nest(module, symbol, nest)


def post_ops_of(problem: ConvolutionProblem, piece: Piece) -> tuple[PostOp, ...]:
    """The post-ops for the pixels that a piece computes."""
    return tuple(entry.mapped(lambda own: pixels_of(own, piece)) for entry in problem.post_ops)


def pixels_of(dst: MemoryDesc, piece: Piece) -> MemoryDesc:
    """The pixels of dst that a piece computes, as an activation. ``dst`` may also be an operand
    that is broadcast to it."""
    each = list(zip(piece.space, piece.residues, strict=True))[5 - dst.ndims :]
    sizes, steps, begin = [], [], dst.offset0
    for extent, place, (space, residues) in zip(dst.dims[2:], dst.strides[2:], each, strict=True):
        if is_one(extent):
            sizes.append(extent)
            steps.append(place)
            continue
        sizes.append(space.dst)
        steps.append(residues.outputs.step * place)
        begin += residues.outputs.first * place
    layout = Layout(
        (*dst.dims[:2], *sizes),
        (*dst.padded_dims[:2], *sizes),
        (*dst.strides[:2], *steps),
        dst.inner_blocks,
        begin,
    )
    return MemoryDesc.of_layout(dst, layout)


def core_of_residue(pixels: MemoryDesc) -> DataType:
    """The type in which results are computed."""
    return DataType.f64 if pixels.data_type is DataType.f64 else DataType.f32
