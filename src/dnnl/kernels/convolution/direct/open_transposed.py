"""Transposed convolutions with strides whose images only an execution knows.

The outputs of a residue are an image, which a convolution of stride 1 computes (`residues`). As no
stride is known to fit rows of dst, each image is computed as a line, in the scratchpad. A copy to
the pixels of dst, a stride apart, applies post-ops and the quantization of dst. Sums of residues
without taps are zero.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from dnnl.codegen.epilogue.product_epilogue import core_type
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import Multiply
from dnnl.errors import InvalidArguments
from dnnl.kernels.convolution.direct import residue_images
from dnnl.kernels.convolution.direct.compute import ConvolutionConf, products
from dnnl.kernels.convolution.direct.lines import OPEN
from dnnl.kernels.convolution.direct.open_rows import in_one_line, of_line
from dnnl.kernels.convolution.direct.pieces import Piece, channel_block
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.convolution.direct.residue_images import (
    emit_untapped,
    pieces_of,
    pixels_of,
    post_ops_of,
)
from dnnl.kernels.convolution.direct.residues import Residues
from dnnl.kernels.convolution.direct.sums import PixelSums
from dnnl.kernels.product.base.problem import LETTERS
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.plan.dot_kind import chosen_dot, to_dequantize
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag


@dataclass(frozen=True)
class OpenTransposedConf:
    """The convolution of each residue, with its copy to dst, and the pieces ``without`` a tap.
    ``scratchpad`` is in bytes."""

    problem: ConvolutionProblem
    lines: tuple[ConvolutionConf, ...]
    without: tuple[Piece, ...]
    scratchpad: int

    @property
    def summary(self) -> PlanSummary:
        """The decisions, which are those of each residue."""
        return self.lines[0].summary


@dataclass(frozen=True, kw_only=True)
class _Residue(ConvolutionProblem):
    """The convolution of a ``piece``: its sizes, but the kernel of all taps."""

    piece: Piece

    @staticmethod
    def of(problem: ConvolutionProblem, piece: Piece) -> _Residue:
        """The convolution of a piece of ``problem``."""
        given = {own.name: getattr(problem, own.name) for own in fields(ConvolutionProblem)}
        sizes = zip(problem.space, piece.space, strict=True)
        space = tuple(replace(own, kernel=whole.kernel) for whole, own in sizes)
        return _Residue(**{**given, "space": space}, piece=piece)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """One, whose outputs are all there are."""
        d, h, w = (Residues(taps=own.taps) for own in self.piece.residues)
        return (Piece(self.piece.space, (d, h, w)),)

    @property
    def borders(self) -> bool:
        """Whether taps of the piece are outside of src."""
        return any(own.padded for own in self.piece.space)


def serves(problem: ConvolutionProblem) -> bool:
    """Whether it is a transposed convolution with strides, of sizes that only an execution
    knows."""
    strided = problem.transposed and any(own.stride > 1 for own in problem.space)
    return strided and any(own.is_open for own in problem.space)


def configure(problem: ConvolutionProblem, isa: Isa) -> OpenTransposedConf | Refusal:
    """Plan a convolution that it `serves`."""
    dot = chosen_dot(problem, isa)
    if dot is None:
        return OPEN
    if to_dequantize(problem) or not residue_images.serves(problem):
        return OPEN
    scratchpad = Scratchpad()
    lines: list[ConvolutionConf] = []
    without: list[Piece] = []
    for piece, tapped in pieces_of(problem.space):
        if not tapped:
            without.append(piece)
            continue
        try:
            line = _line(problem, isa, dot, piece, scratchpad)
        except InvalidArguments:  # taps are not evenly apart, or blocks of open channels not whole
            return OPEN
        sums, first = line.compensation, lines[0].compensation if lines else None
        if isinstance(sums, PixelSums) and isinstance(first, PixelSums):
            line = replace(line, compensation=sums.sharing(first))
        lines.append(line)
    return OpenTransposedConf(problem, tuple(lines), tuple(without), scratchpad.size)


def _line(
    problem: ConvolutionProblem, isa: Isa, dot: Multiply, piece: Piece, scratchpad: Scratchpad
) -> ConvolutionConf:
    """The convolution of a piece, and the copy that finishes its results. Raises InvalidArguments
    where its taps are not evenly apart."""
    bare = problem.bias.is_zero and not problem.post_ops
    core = core_type(dot, problem.dst.data_type, problem.quantization, bare=bare)
    pixels = pixels_of(problem.dst, piece)
    computed = scratchpad.take(_computed(pixels, problem.outputs, core))
    before = len(scratchpad.copies)
    result, image = (computed[0], of_line(computed[1])), _Residue.of(problem, piece)
    line = in_one_line(replace(problem, post_ops=()), isa, piece, scratchpad, result, image)
    if line.copy_out is not None:
        raise InvalidArguments("dst_desc", problem.dst, "whole blocks, which the product writes")
    return replace(
        line,
        problem=replace(line.problem, post_ops=post_ops_of(problem, piece)),
        copies_in=tuple(scratchpad.copies[before:]),
        copy_out=(computed, (problem.arguments[2], pixels)),
    )


def build(name: str, conf: OpenTransposedConf, isa: Isa) -> Kernel:
    """The products of all residues, each with its copy, and the pixels without a tap."""
    module, arguments = Module(name, isa), Arguments()
    found: list[Phase] = []
    for number, line in enumerate(conf.lines):
        found += phases.emit(module, line, arguments, products, f"{name}{number}")
    found += emit_untapped(module, name, conf.problem, conf.without, arguments)
    return Kernel(module, tuple(found), arguments.ids)


def _computed(pixels: MemoryDesc, outputs: int, core: DataType) -> MemoryDesc:
    """The results of a piece, of type ``core`` and without gaps, in blocks of channels if these are
    whole ones of groups, which have so many ``outputs``."""
    block, spatial = channel_block(pixels), LETTERS[2 : pixels.ndims]
    whole = block and outputs % block == 0
    tag = f"aB{spatial}{block}b" if whole else f"a{spatial}b"
    return MemoryDesc(pixels.dims, core, FormatTag(tag))
