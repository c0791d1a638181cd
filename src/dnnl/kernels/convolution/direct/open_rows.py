"""Convolutions of images of which only an execution knows how long their rows are."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields, replace

from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import Multiply
from dnnl.errors import InvalidArguments
from dnnl.kernels.convolution.direct.compute import ConvolutionConf
from dnnl.kernels.convolution.direct.lines import OPEN, fits_line, in_line, with_pixels
from dnnl.kernels.convolution.direct.pieces import Piece, channel_block
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem, most_rows
from dnnl.kernels.convolution.direct.residues import Residues, Steps
from dnnl.kernels.product.base.edge_tiles import EdgeTiles
from dnnl.kernels.product.base.pixel_tiles import Space, Spatial
from dnnl.kernels.product.base.problem import LETTERS
from dnnl.kernels.product.pack.unfolded import Unfolded
from dnnl.kernels.product.plan.dot_kind import chosen_dot, to_dequantize
from dnnl.kernels.product.plan.plan import plan
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpSum
from dnnl.types.tag import FormatTag


def has_open_windows(problem: ConvolutionProblem) -> bool:
    """Whether pixels miss taps, or share elements of src, in rows of open sizes."""
    space = problem.pieces[0].space
    w = space[2]
    return any(own.is_open for own in space) and (w.kernel > 1 or w.padded)


def configure(problem: ConvolutionProblem, isa: Isa) -> ConvolutionConf | Refusal:
    """Plan a convolution that `has_open_windows`: from rows of two tiles on in place, for shorter
    ones, where no result may be stored twice, and for a matrix unit with an unfolded src."""
    dot, w = chosen_dot(problem, isa), problem.pieces[0].space[2]
    assert dot is not None, "refused before"
    vectors = problem.panels(isa, problem.as_read(dot), problem.weights, dot).vectors
    twice = not any(isinstance(entry, PostOpSum) for entry in problem.post_ops)
    in_place = dot.tiles is None and twice and w.is_open
    if in_place and EdgeTiles(w, most_rows(isa, dot, vectors)).serves:
        return plan(problem, isa)
    if not to_dequantize(problem) and fits_line(problem):
        with suppress(InvalidArguments):  # rows of some tensor have gaps
            return in_one_line(problem, isa, problem.pieces[0], Scratchpad())
    return OPEN


@dataclass(frozen=True, kw_only=True)
class _Line(ConvolutionProblem):
    """A convolution of an unfolded src, whose panels are ``vectors`` wide as those of src are. Its
    ``taps`` are some of those of the weights, below each other and along a row. ``given`` is the
    convolution of src, or the piece of it."""

    given: ConvolutionProblem
    vectors: int
    taps: tuple[Steps, Steps]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """One, with these taps."""
        down, along = (Residues(taps=steps) for steps in self.taps)
        return (Piece(self.space, (down, along, Residues())),)

    @property
    def image(self) -> ConvolutionProblem:
        """The convolution of src, whose borders an unfolded src does not have."""
        return self.given

    def as_read(self, dot: Multiply) -> MemoryDesc:
        """The unfolded src."""
        return self.src

    def _vectors(self, isa: Isa, src: MemoryDesc, dot: Multiply) -> int:
        return self.vectors


def in_one_line(
    problem: ConvolutionProblem,
    isa: Isa,
    piece: Piece,
    scratchpad: Scratchpad,
    dst: Argument | None = None,
    image: ConvolutionProblem | None = None,
) -> ConvolutionConf:
    """Plan a piece of a convolution by an unfolded copy of src; its results are those of ``dst`` if
    given, whose pixels are a line, and its borders those of ``image``. Raises InvalidArguments
    where rows of some tensor have gaps."""
    dot = chosen_dot(problem, isa)
    assert dot is not None, "refused before"
    vectors = problem.panels(isa, problem.as_read(dot), problem.weights, dot).vectors
    block = channel_block(problem.as_read(dot))

    def layout(dims: tuple[int, ...]) -> MemoryDesc:
        """That for which the panels of weights are, too."""
        pixels = LETTERS[2 : len(dims)]
        if block:
            return MemoryDesc(dims, dot.a, FormatTag(f"aB{pixels}{block}b"))
        return problem.packed(MemoryDesc(dims, dot.a, FormatTag(f"a{pixels}b")), dot)

    taps = _taps(piece, problem.space)
    given = problem.arguments[0], problem.src
    unfolded = Unfolded.take(scratchpad, given, piece.space, layout)
    lines = unfolded.lines
    *_, down, along, pixels = lines.dims
    head = 3 if problem.grouped else 2
    d, h, w = problem.space
    kernel = d.kernel * h.kernel, w.kernel, 1
    slot, result = dst or (problem.arguments[2], of_line(problem.dst))
    of_lines = {
        **{own.name: getattr(problem, own.name) for own in fields(problem)},
        "src": lines,
        "weights": problem.weights.reshape((*problem.weights.dims[:head], *kernel)),
        "dst": result,
        "post_ops": tuple(entry.mapped(of_line) for entry in problem.post_ops),
        "arguments": (*problem.arguments[:2], slot),
        "space": (
            Spatial(down, 1, down, 1, 0, 1),
            Spatial(along, 1, along, 1, 0, 1),
            Spatial(pixels, pixels, 1, 1, 0, 1),
        ),
    }
    line = _Line(**of_lines, given=image or problem, vectors=vectors, taps=taps)
    copy = unfolded.copy[0], lines
    made = plan(line, isa, src=copy, scratchpad=scratchpad, whole=False)
    return replace(made, unfolded=unfolded)


def of_line(desc: MemoryDesc) -> MemoryDesc:
    """An activation whose pixels are a line; raises InvalidArguments where rows have gaps."""
    line = in_line(desc)
    return with_pixels(line, (1, 1, line.dims[2]), line.strides[2])


def _taps(piece: Piece, space: Space) -> tuple[Steps, Steps]:
    """The taps of a piece, where depth and height are one dimension of the weights. Raises
    InvalidArguments where they are not evenly apart there."""
    (d, h, w), height = piece.residues, space[1].kernel
    first = d.taps.first * height + h.taps.first
    if piece.space[0].kernel > 1:
        whole = piece.space[1].kernel == height
        if not whole or d.taps.step != h.taps.step:
            raise InvalidArguments("strides", (space[0].stride, space[1].stride), "1 in a volume")
    return Steps(first=first, step=h.taps.step), w.taps
