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
from dnnl.kernels.product.base.blocking import Blocking
from dnnl.kernels.product.base.pixel_tiles import Spatial
from dnnl.kernels.product.base.problem import LETTERS, Panels
from dnnl.kernels.product.pack.on_the_fly import PanelPacking
from dnnl.kernels.product.pack.unfolded import Unfolded
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
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
        steps = min(share.terms, typical(self.pixels))
        blocks = self.src.dims[0] * -(-self.pixels // steps)
        parts = smaller(share.parts, blocks) if share.parts > 1 else 1
        return OpenCut(parts, steps, share.channels, share.panels, share.channel_blocks)

    def blocking(
        self,
        isa: Isa,
        dot: Multiply,
        src: MemoryDesc,
        panels: Panels,
        *,
        ones: bool,
        packing: PanelPacking | None,
    ) -> Blocking:
        """Blocks of the channels of a work item, and of pixels."""
        cut, block = self.cut(isa, dot, src, panels), channel_block_of(src, dot)
        tile = TileShape(self._tile_rows(isa, block, panels.vectors, dot), panels.vectors)
        return Blocking(tile, cut.panels, block or cut.channels, cut.steps)


class Lines(NamedTuple):
    """A gradient of lines, where its src is, and the copy that is made before, if there is one."""

    problem: OpenGradient
    src: Argument
    unfolded: Unfolded | None


def is_open(problem: WeightsGradient) -> bool:
    """Whether only an execution knows some size of an image, or how many images there are."""
    return not all(is_known(size) for size in (*problem.src.dims, *problem.diff_dst.dims))


def in_lines(problem: WeightsGradient, dot: Multiply, scratchpad: Scratchpad) -> Lines:
    """The same gradient, of lines; raises InvalidArguments where rows of diff_dst have gaps, or
    taps of the weights."""
    diff_dst, unfolded = in_line(problem.diff_dst), None
    if problem.pointwise:
        of_src, src, down, along = problem.arguments[0], in_line(problem.src), 1, 1
        if _in_one(src) and _in_one(diff_dst):
            src, diff_dst = _joined(src), _joined(diff_dst)
        src = _with_taps(src)
    else:
        reads = problem.reads(problem.src, dot)
        block = channel_block(problem.src) if reads else 0

        def layout(dims: tuple[int, ...]) -> MemoryDesc:
            pixels = LETTERS[2 : len(dims)]
            tag = f"aB{pixels}{block}b" if block else f"a{pixels}b"
            return MemoryDesc(dims, dot.a, FormatTag(tag))

        given = problem.arguments[0], problem.src
        unfolded = Unfolded.take(scratchpad, given, problem.space, layout)
        of_src, src = unfolded.copy[0], unfolded.lines
        down, along = src.dims[2:4]
    pixels, head = src.dims[-1], 3 if problem.grouped else 2
    line = {
        **{own.name: getattr(problem, own.name) for own in fields(WeightsGradient)},
        "src": src,
        "weights": _with_taps(diff_dst),
        "dst": problem.diff_weights.reshape((*problem.diff_weights.dims[:head], down, along, 1)),
        "space": (
            Spatial(down, 1, down, 1, 0, 1),
            Spatial(along, 1, along, 1, 0, 1),
            Spatial(pixels, pixels, 1, 1, 0, 1),
        ),
    }
    return Lines(OpenGradient(**line), (of_src, src), unfolded)


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
