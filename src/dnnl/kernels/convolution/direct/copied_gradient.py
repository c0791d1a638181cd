"""The gradient of the weights of a kernel of one tap, whose operands threads copy.

Without neighbouring taps, the pixels that a block of the sums reads belong to it alone. Each work
item copies its channels of them (`block_copies`): rows of src, panels of diff_dst. Operands may
then have any layout, and the product reads the second-level cache only. A K group is the same pixel
of two images.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import lcm

from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.product.brgemm import TileShape, choose_vectors, max_rows
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.direct.gradient_blocking import Cut, cut_sums
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient
from dnnl.kernels.convolution.direct.pieces import channel_block
from dnnl.kernels.product.base.blocking import Blocking, even_rows
from dnnl.kernels.product.base.pixel_tiles import Space
from dnnl.kernels.product.base.problem import LETTERS, Panels
from dnnl.kernels.product.pack.on_the_fly import PanelPacking
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_SUMS = 2
"""The sums of a work item may fill this fraction of the second-level cache."""
_F32 = 4


def is_copied(problem: WeightsGradient, isa: Isa, dot: Multiply) -> bool:
    """Whether threads should copy the operands of a gradient. Not if neighbouring pixels share
    taps, if blocks share K groups or blocks of a layout, if pixels to skip are contiguous, which
    takes gathers, or if the sums of a work item would not stay in the second-level cache."""
    src, diff_dst = problem.src, problem.diff_dst
    if not _gains(problem, dot):
        return False
    single = all(own.kernel == 1 and not own.padded for own in problem.space)
    if not (single and isa.thread_memory) or problem.diff_weights.has_zero_dim or src.has_zero_dim:
        return False
    divisible = _in_parts(src, problem.channels) and _in_parts(diff_dst, problem.outputs)
    gathers = src.strides[-1] == 1 and problem.space[2].stride > 1
    if src.dims[0] % dot.group or not divisible or gathers:
        return False
    own = CopiedGradient.of(problem)
    panels = own.panels(isa, src, diff_dst, dot)
    cut = own.cut(isa, dot, src, panels)
    sums = cut.channels * cut.panels * panels.vectors * isa.lanes
    return sums * _F32 <= isa.caches.l2 // _SUMS


def _gains(problem: WeightsGradient, dot: Multiply) -> bool:
    """Whether copies of blocks save time: always those into K groups or into another type. Those of
    single f32 do if channels are contiguous; else they would transpose."""
    operands = problem.src, problem.diff_dst
    if dot.group > 1 or any(desc.data_type is not dot.a for desc in operands):
        return True
    in_vectors = all(desc.inner_blocks or desc.strides[1] == 1 for desc in operands)
    return dot.a is DataType.f32 and in_vectors


def _in_parts(desc: MemoryDesc, channels: int) -> bool:
    """Whether the strides and blocks of a tensor are those of its parts, with whole bytes. Groups
    have so many ``channels``."""
    blocks = all(dim == 1 and channels % size == 0 for dim, size in desc.inner_blocks)
    return blocks and desc.data_type.bits >= 8


def _divisor(count: int, size: int) -> int:
    """``size`` if it divides ``count``, else all of that."""
    return count if count % size else size


@dataclass(frozen=True, kw_only=True)
class CopiedGradient(WeightsGradient):
    """A gradient whose operands threads copy, block by block."""

    @staticmethod
    def of(problem: WeightsGradient) -> CopiedGradient:
        """The same gradient."""
        given = {field.name: getattr(problem, field.name) for field in fields(WeightsGradient)}
        return CopiedGradient(**given)

    def as_read(self, dot: Multiply) -> MemoryDesc:
        """The tensor itself, of which parts are copied."""
        return self.src

    def panels(
        self, isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, *, ones: bool = False
    ) -> Panels:
        """The tensor itself, and the width of the panels into which parts are copied."""
        return Panels(weights, choose_vectors(isa, self.outputs, span=dot.span))

    def cut(self, isa: Isa, dot: Multiply, src: MemoryDesc, panels: Panels) -> Cut:
        """Parts of equal sizes, in whole vectors of channels of src and in whole panels, unless an
        item has all channels."""
        width = panels.vectors * isa.lanes
        block = _divisor(self.channels, lcm(isa.lanes, channel_block(self.src) or 1))
        columns = _divisor(self.outputs, lcm(width, channel_block(self.diff_dst) or 1))
        tile = self._tile(isa, dot, self.channels, panels)
        return cut_sums(self, isa, tile, dot, block, -(-columns // width))

    def _tile(self, isa: Isa, dot: Multiply, channels: int, panels: Panels) -> TileShape:
        most = max_rows(isa, panels.vectors * dot.span, dot.parts)
        return TileShape(even_rows(channels, most), panels.vectors)

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
        """All tiles of an item meet one panel after the other."""
        cut = self.cut(isa, dot, src, panels)
        return Blocking(self._tile(isa, dot, cut.channels, panels), cut.panels)

    def pixels(self, cut: Cut) -> list[Axis]:
        """The pixels of diff_dst in a block, in three dimensions."""
        return [
            Axis(cut.rows if dim == cut.dim else own.dst, f"o{name}")
            for dim, (own, name) in enumerate(zip(self.space, "dhw", strict=True))
        ]

    def copies(self, cut: Cut, dot: Multiply, width: int) -> tuple[MemoryDesc, MemoryDesc]:
        """The copies of src, and of diff_dst in panels: images and pixels of a block, and channels
        of an item."""
        spatial = LETTERS[2 : self.src.ndims]
        image, group = ("A", f"{dot.group}a") if dot.group > 1 else ("a", "")
        images, outputs = cut.images * dot.group, min(self.outputs, cut.panels * width)
        sizes = tuple(axis.extent for axis in self.pixels(cut))[5 - self.src.ndims :]
        rows = FormatTag(f"{image}{spatial}b{group}")
        panels = FormatTag(f"B{image}{spatial}{width}b{group}")
        return (
            MemoryDesc((images, cut.channels, *sizes), dot.a, rows),
            MemoryDesc((images, outputs, *sizes), dot.b, panels),
        )

    @staticmethod
    def part(desc: MemoryDesc, copy: MemoryDesc, space: Space | None = None) -> MemoryDesc:
        """The part of a tensor that ``copy`` is a copy of, at the strides of ``space``."""
        strides = list(desc.strides)
        if space is not None:
            steps = (own.stride for own in space[5 - desc.ndims :])
            strides[2:] = [own * step for own, step in zip(strides[2:], steps, strict=True)]
        blocks = desc.inner_blocks
        return MemoryDesc(
            copy.dims, desc.data_type, strides, inner_blocks=blocks, offset0=desc.offset0
        )
