"""Gradients of weights whose images only an execution knows: how many there are, and their sizes.

The pixels of an image are a line, in which tap and pixel meet without a bound: those of src where
windows are single pixels, else those of an `Unfolded` copy. Sums go over such lines in blocks of a
fixed number of pixels. Work items take the blocks of all lines in turn, and add up what they have
in the cache; the sums of items are added up behind.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from dnnl.codegen.isa import Isa
from dnnl.codegen.product.brgemm import TileShape
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.direct.gradient_blocking import OpenCut, share_out
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient, channel_block_of
from dnnl.kernels.convolution.direct.lines import in_line, with_pixels
from dnnl.kernels.convolution.direct.pieces import channel_block
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.kernels.product.base.problem import LETTERS, Panels
from dnnl.kernels.product.pack.unfolded import Unfolded
from dnnl.kernels.product.plan.dot_kind import chosen_dot
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.types.dtype import DataType
from dnnl.types.layout import Layout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, smaller, surely_equal, typical
from dnnl.types.tag import FormatTag


@dataclass(frozen=True, kw_only=True)
class OpenGradient(WeightsGradient):
    """A gradient whose pixels are a line: src is (N, channels, taps, taps, pixels), and so is
    diff_dst, with a tap each."""

    @property
    def pixels(self) -> int:
        """The pixels of a line."""
        return self.space[2].dst

    def cut(self, isa: Isa, dot: Multiply, src: MemoryDesc, panels: Panels) -> OpenCut:
        """How the sums are cut, for src and diff_dst as they are read."""
        if not isa.thread_memory:
            return OpenCut(1, 0, 0, 1, 1)
        block = channel_block_of(src, dot)
        tile = TileShape(self._tile_rows(isa, block, panels.vectors, dot), panels.vectors)
        share = share_out(self, isa, tile, typical(self.terms), block)
        blocks = self.src.dims[0] * -(-self.pixels // share.terms)
        parts = smaller(share.parts, blocks) if share.parts > 1 else 1
        return OpenCut(parts, share.terms, share.channels, share.panels, share.channel_blocks)


class Lines(NamedTuple):
    """A gradient of lines, its operands as they are given, and the copy of src that is made before,
    if there is one."""

    problem: OpenGradient
    src: Argument
    weights: Argument
    unfolded: Unfolded | None


def is_open(problem: WeightsGradient) -> bool:
    """Whether only an execution knows some size or stride of an image, or how many there are. Sums
    of nothing are those of known sizes."""
    numbers = *problem.src.layout_numbers, *problem.diff_dst.layout_numbers
    tensors = problem.src, problem.diff_dst, problem.diff_weights
    return not (all(map(is_known, numbers)) or any(own.has_zero_dim for own in tensors))


def in_lines(problem: WeightsGradient, isa: Isa, scratchpad: Scratchpad) -> Lines:
    """The same gradient, of lines, and of f32 where K groups would be of images, of which there may
    be any number. Raises InvalidArguments where rows of diff_dst have gaps, or taps of weights."""
    dot = chosen_dot(problem, isa)
    assert dot is not None, "refused before"
    widens, kind = dot.group > 1, DataType.f32 if dot.group > 1 else dot.a
    of_src, of_weights, _ = problem.arguments
    diff_dst, unfolded = in_line(problem.diff_dst), None
    if problem.pointwise:
        line = in_line(problem.src)
        if _in_one(line) and _in_one(diff_dst):
            line, diff_dst = _joined(line), _joined(diff_dst)
        src = _with_taps(line)
    else:
        block = channel_block(problem.src) if problem.reads(problem.src, dot) else 0

        def layout(dims: tuple[int, ...]) -> MemoryDesc:
            pixels = LETTERS[2 : len(dims)]
            tag = f"aB{pixels}{block}b" if block else f"a{pixels}b"
            return MemoryDesc(dims, kind, FormatTag(tag))

        unfolded = Unfolded.take(scratchpad, (of_src, problem.src), problem.space, layout)
        of_src, src = unfolded.copy[0], unfolded.lines
    weights = _with_taps(diff_dst)
    given = (of_src, src), (of_weights, weights)
    if widens:
        src, weights = src if unfolded else _of_floats(src), _of_floats(weights)
    *_, down, along, pixels = src.dims
    head = 3 if problem.grouped else 2
    fields_of_lines = {
        **{own.name: getattr(problem, own.name) for own in fields(WeightsGradient)},
        "src": src,
        "weights": weights,
        "dst": problem.diff_weights.reshape((*problem.diff_weights.dims[:head], down, along, 1)),
        "space": (
            Spatial(down, 1, down, 1, 0, 1),
            Spatial(along, 1, along, 1, 0, 1),
            Spatial(pixels, pixels, 1, 1, 0, 1),
        ),
        "narrow": DataType.f32 if widens else problem.narrow,
    }
    return Lines(OpenGradient(**fields_of_lines), *given, unfolded)


def _of_floats(line: MemoryDesc) -> MemoryDesc:
    """The f32 tensor of these dims with channels last, which operands of other types become."""
    return MemoryDesc(line.dims, DataType.f32, FormatTag("acdeb"))


def _with_taps(line: MemoryDesc) -> MemoryDesc:
    """A line of pixels with two dimensions for its only tap."""
    return with_pixels(line, (1, 1, line.dims[2]), line.strides[2])


def _in_one(line: MemoryDesc) -> bool:
    """Whether the lines of all images are one."""
    return surely_equal(line.strides[0], line.dims[2] * line.strides[2])


def _joined(line: MemoryDesc) -> MemoryDesc:
    """The lines of all images as that of one."""
    n, channels, pixels = line.dims
    layout = Layout(
        (1, channels, n * pixels),
        (1, line.padded_dims[1], n * pixels),
        line.strides,
        line.inner_blocks,
        line.offset0,
    )
    return MemoryDesc.of_layout(line, layout)
