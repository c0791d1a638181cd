"""Transposed convolutions with strides whose images only an execution knows.

The outputs of a residue are an image, which a convolution of stride 1 computes (`residues`). As no
stride is known to fit rows of dst, each image is computed as a line, in the scratchpad, and copied
to the pixels of dst, a stride apart. Residues without taps have nothing but the bias.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.convolution.direct.compute import ConvolutionConf, products
from dnnl.kernels.convolution.direct.lines import OPEN
from dnnl.kernels.convolution.direct.open_rows import in_one_line, of_line
from dnnl.kernels.convolution.direct.pieces import channel_block
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.convolution.direct.residue_images import (
    core_of_residue,
    emit_untapped,
    pieces_of,
    pixels_of,
)
from dnnl.kernels.product.base.problem import LETTERS
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.plan.dot_kind import chosen_dot, to_dequantize
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.runtime.image import Phase
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag


@dataclass(frozen=True)
class OpenTransposedConf:
    """The convolution of each residue, with its copy to dst, and the pixels ``without`` a tap.
    ``scratchpad`` is in bytes."""

    problem: ConvolutionProblem
    lines: tuple[ConvolutionConf, ...]
    without: tuple[MemoryDesc, ...]
    scratchpad: int

    @property
    def summary(self) -> PlanSummary:
        """The decisions, which are those of each residue."""
        return self.lines[0].summary


def serves(problem: ConvolutionProblem) -> bool:
    """Whether it is a transposed convolution with strides, of sizes that only an execution
    knows."""
    strided = problem.transposed and any(own.stride > 1 for own in problem.space)
    return strided and any(own.is_open for own in problem.space)


def configure(problem: ConvolutionProblem, isa: Isa) -> OpenTransposedConf | Refusal:
    """Plan a convolution that it `serves`, of floats and without post-ops."""
    dot = chosen_dot(problem, isa)
    given = problem.quantization
    plain = not (problem.post_ops or given.scales or given.zero_points or to_dequantize(problem))
    if dot is None or dot.is_integer or dot.tiles is not None or not plain:
        return OPEN
    scratchpad = Scratchpad()
    lines: list[ConvolutionConf] = []
    without: list[MemoryDesc] = []
    for piece, tapped in pieces_of(problem.space):
        pixels = pixels_of(problem.dst, piece)
        if not tapped:
            without.append(pixels)
            continue
        computed = scratchpad.take(_computed(pixels, problem.outputs))
        before = len(scratchpad.copies)
        try:
            line = in_one_line(problem, isa, piece, scratchpad, (computed[0], of_line(computed[1])))
        except InvalidArguments:  # taps are not evenly apart
            return OPEN
        assert line.copy_out is None, "the product writes whole blocks"
        copies = tuple(scratchpad.copies[before:])
        out = computed, (problem.arguments[2], pixels)
        lines.append(replace(line, copies_in=copies, copy_out=out))
    return OpenTransposedConf(problem, tuple(lines), tuple(without), scratchpad.size)


def build(name: str, conf: OpenTransposedConf, isa: Isa) -> Kernel:
    """The products of all residues, each with its copy, and the pixels without a tap."""
    module, arguments = Module(name, isa), Arguments()
    found: list[Phase] = []
    for number, line in enumerate(conf.lines):
        found += phases.emit(module, line, arguments, products, f"{name}{number}")
    found += emit_untapped(module, name, conf.problem, conf.without, arguments)
    return Kernel(module, tuple(found), arguments.ids)


def _computed(pixels: MemoryDesc, outputs: int) -> MemoryDesc:
    """The results of a piece, without gaps, in blocks of channels if these are whole ones of
    groups, which have so many ``outputs``."""
    block, spatial = channel_block(pixels), LETTERS[2 : pixels.ndims]
    whole = block and outputs % block == 0
    tag = f"aB{spatial}{block}b" if whole else f"a{spatial}b"
    return MemoryDesc(pixels.dims, core_of_residue(pixels), FormatTag(tag))
