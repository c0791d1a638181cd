"""Which depthwise convolutions tiles of outputs compute (`tiles`), and how many outputs one has."""

from __future__ import annotations

from dataclasses import fields, replace

from dnnl.codegen.epilogue.product_epilogue import core_type
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.address import Affine, Axis, linear_offset
from dnnl.codegen.product.brgemm import TileShape
from dnnl.kernels.convolution.depthwise import factors
from dnnl.kernels.convolution.depthwise.groups import DEPTHWISE, Groups
from dnnl.kernels.convolution.depthwise.lines import Line
from dnnl.kernels.convolution.depthwise.rows import (
    has_scalar_src_zero_point,
)
from dnnl.kernels.convolution.depthwise.tiles import DepthwisePiecesConf, DepthwiseTilesConf
from dnnl.kernels.convolution.direct import residue_images
from dnnl.kernels.convolution.direct.pieces import Piece
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.convolution.direct.residue_images import pieces_of, pixels_of, post_ops_of
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.kernels.shared.types import BYTES, FLOATS, SMALL_FLOATS
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import larger
from dnnl.types.tag import FormatTag

_MOST_PLACES = 8
_USUAL_PLACES = 7  # which divides the widths of the images of many models
_MOST_TAPS = 16  # of a row, which is unrolled
_MOST_BORDERS = 4  # tiles, which are unrolled
_MOST_LINES = 2**12  # multiplications that are unrolled for them


def plan(
    problem: ConvolutionProblem,
    isa: Isa,
    groups: Groups = DEPTHWISE,
    scratchpad: Scratchpad | None = None,
) -> DepthwiseTilesConf | None:
    """The configuration of a depthwise convolution, or None if it is left to nests.

    Each output may be a group of its own that shares its channels with others of ``groups``, and
    has weights in vectors. ``scratchpad`` has what was copied before.
    """
    src, weights, dst = problem.src, problem.weights, problem.dst
    if isa.lanes == 1 or dst.has_zero_dim:
        return None
    types = {src.data_type, weights.data_type}
    if (
        not types <= FLOATS | BYTES | SMALL_FLOATS
        or dst.data_type.bits < 8
        or not has_scalar_src_zero_point(problem)
    ):
        return None
    scratchpad = scratchpad or Scratchpad()
    read: Argument = (problem.arguments[1], weights)
    if groups == DEPTHWISE and not in_vectors(weights, 0, isa.lanes):
        letters = "bcdefg"[: weights.ndims - 1]
        read = scratchpad.copy(read, weights.with_tag(FormatTag(f"{letters}a")))
    if problem.transposed and any(own.is_open for own in problem.space):
        return _pieces(problem, isa, groups, read, scratchpad)
    return _tiles(problem, isa, groups, read, scratchpad)


def _tiles(
    problem: ConvolutionProblem, isa: Isa, groups: Groups, read: Argument, scratchpad: Scratchpad
) -> DepthwiseTilesConf | None:
    """The configuration for weights that are ``read`` as they are."""
    src, dst = problem.src, problem.dst
    width = Line(problem.space[2], problem.transposed)
    places = _places(width, isa, groups.k_groups)
    if places is None or width.space.kernel > _MOST_TAPS:
        return None
    given = isa.lanes * groups.channels // groups.outputs
    if not all(in_vectors(desc, 1, lanes) for desc, lanes in ((src, given), (dst, isa.lanes))):
        return None
    if not (_whole(src, isa) and _whole(dst, isa)):
        return None
    dot = factors.multiply_of(isa, {src.data_type, problem.weights.data_type})
    bare = problem.bias.is_zero and not problem.post_ops
    core = core_type(dot, dst.data_type, problem.quantization, bare=bare)
    vectors = _vectors(problem.groups, width, places, isa)
    return DepthwiseTilesConf(
        problem,
        read,
        dot,
        core,
        vectors,
        tuple(scratchpad.copies),
        scratchpad.size,
        places,
        groups,
    )


def _pieces(
    problem: ConvolutionProblem, isa: Isa, groups: Groups, read: Argument, scratchpad: Scratchpad
) -> DepthwisePiecesConf | None:
    """A transposed convolution as those of its residues, unless attributes forbid that."""
    if not residue_images.serves(problem):
        return None
    given = {own.name: getattr(problem, own.name) for own in fields(ConvolutionProblem)}
    pieces: list[DepthwiseTilesConf] = []
    untapped: list[Piece] = []
    for piece, tapped in pieces_of(problem.space):
        if not tapped:
            untapped.append(piece)
            continue
        pixels, post_ops = pixels_of(problem.dst, piece), post_ops_of(problem, piece)
        of_piece = {"dst": pixels, "space": piece.space, "post_ops": post_ops}
        own = ConvolutionProblem(**{**given, **of_piece})
        planned = _tiles(own, isa, groups, read, scratchpad)
        if planned is None:
            return None
        d, h, w = (residues.taps for residues in piece.residues)
        pieces.append(replace(planned, taps=(d, h, w)))
    if not pieces:
        return None
    one = {own.name: getattr(pieces[0], own.name) for own in fields(DepthwiseTilesConf)}
    every = {"problem": problem, "pieces": tuple(pieces), "untapped": tuple(untapped)}
    return DepthwisePiecesConf(**{**one, **every})


def _vectors(channels: int, width: Line, places: int, isa: Isa) -> int:
    """The vectors of a tile: two, if there are registers, and channels for both."""
    used = 2 * (places + width.space.kernel + 1)
    needed = -(-channels // isa.lanes)
    wide = needed % 2 == 0 or needed > 2 * _MOST_PLACES
    return 2 if wide and used < isa.registers else 1


def _places(width: Line, isa: Isa, k_groups: int) -> int | None:
    """The outputs of a tile, which share registers with a row of weights; None if too many tiles
    would have borders, or the stride of a transposed convolution is longer."""
    own = width.space
    most = max(2, min(_MOST_PLACES, isa.registers - own.kernel - 2))
    if own.is_open:
        return min(most, _USUAL_PLACES)
    places = -(-own.dst // -(-own.dst // most))
    if width.transposed:
        places = min(-(-places // own.stride), most // own.stride) * own.stride
        if not places:
            return None
    inner, last = width.inner(places)
    borders = inner + -(-own.dst // places) - last
    written = (borders + 1) * places * own.kernel * k_groups
    return places if borders <= _MOST_BORDERS and written <= _MOST_LINES else None


def in_vectors(desc: MemoryDesc, dim: int, lanes: int) -> bool:
    """Whether vectors of elements along ``dim`` are contiguous, at affine offsets."""
    columns = Columns.of(desc.dims[dim], TileShape(1, 1), lanes)
    index = [Affine.of(Axis(larger(2, extent), "i")) for extent in desc.dims]
    index[dim] = columns.form
    form = linear_offset(desc, index)
    return form is not None and form.stride(columns.lane) == 1


def _whole(desc: MemoryDesc, isa: Isa) -> bool:
    """Whether only the last vector of channels is padded."""
    channels = desc.dims[1]
    wanted = [
        -(-channels // isa.lanes) * isa.lanes if n == 1 else size
        for n, size in enumerate(desc.dims)
    ]
    return desc.padded_dims in (desc.dims, tuple(wanted))
