"""The gradient of a convolution's weights on a matrix unit.

The unit wants terms of a sum that are contiguous in both operands. At a tap the pixels that are
read are shifted, and at the end of a row some are padding, so that neighbouring pixels do not suit
every tap. Images do: both operands are copied so that some images of a pixel follow each other, in
K groups of two, and those of the next pixel along the width follow them, also if that is shifted::

    src        | p0: n0 n1 n2 n3 | p1: n0 n1 n2 n3 | p2: ...     for each channel, with a border
    diff_dst   | p0: n0 n1 | p0: n2 n3 | p1: n0 n1 | ...         for each panel of channels

A tile has channels of src as rows, at one tap. A work item does all taps.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from dnnl.codegen.isa import Isa
from dnnl.codegen.product.brgemm import TileShape
from dnnl.codegen.product.multiply import Multiply
from dnnl.codegen.product.tiles import block_of
from dnnl.kernels.convolution.direct.gradient_blocking import Cut, cut_sums
from dnnl.kernels.convolution.direct.gradient_problem import WeightsGradient
from dnnl.kernels.product.base.blocking import Blocking
from dnnl.kernels.product.base.problem import LETTERS, Panels
from dnnl.kernels.product.base.types import dot_of
from dnnl.kernels.product.pack.border import Border, take_border
from dnnl.kernels.product.pack.on_the_fly import PanelPacking
from dnnl.kernels.product.unit import tiles as product_tiles
from dnnl.kernels.shared.scratchpad import Argument, Scratchpad
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_MOST_GROUPS = 16
"""The most K groups of a pixel: those that fill a cache line, and a step of the unit."""
_LEAST_FILLED = 8
"""The unit is used if at least this fraction of a step is filled: vectors take up to 16 times as
long."""


@dataclass(frozen=True, kw_only=True)
class UnitGradient(WeightsGradient):
    """A gradient that a matrix unit computes, of ``pairs`` K groups of images at a time."""

    pairs: int

    @staticmethod
    def of(problem: WeightsGradient, isa: Isa) -> UnitGradient | None:
        """The same gradient, or None if the unit does not take it."""
        types = problem.src.data_type, problem.diff_dst.data_type
        dot = dot_of(isa, *types, problem.narrow, tiled=True)
        empty = problem.diff_weights.has_zero_dim or problem.src.has_zero_dim
        if isa.matrix is None or dot is None or dot.tiles is None or dot.group != 2 or empty:
            return None
        width = product_tiles.panel_vectors(isa, problem.outputs) * isa.lanes
        if problem.groups > 1 and problem.outputs % width:
            return None
        if problem.channels < product_tiles.LEAST_ROWS:
            return None
        given = {field.name: getattr(problem, field.name) for field in fields(WeightsGradient)}
        groups = -(-problem.src.dims[0] // dot.group)
        parts = -(-groups // _MOST_GROUPS)
        for pairs in range(-(-groups // parts), _MOST_GROUPS + 1):
            own = UnitGradient(**given, pairs=pairs)
            step = block_of(isa.matrix, own.line_groups)
            if step < product_tiles.LEAST_K_GROUPS or own.line_groups % step:
                continue
            filled = step * groups / (pairs * parts)
            return own if filled * _LEAST_FILLED >= _MOST_GROUPS else None
        return None

    @property
    def line_groups(self) -> int:
        """The K groups that follow each other in both operands."""
        width = self.space[2]
        return self.pairs * (width.dst if width.stride == 1 else 1)

    def takes_unit(self, isa: Isa) -> bool:
        """Whether a matrix unit multiplies."""
        return True

    def line(self, dot: Multiply) -> int:
        """The images of the pixels of a row."""
        return self.line_groups * dot.group

    def reads(self, src: MemoryDesc, dot: Multiply) -> bool:
        """Both operands are copied."""
        return False

    def packed(self, src: MemoryDesc, dot: Multiply) -> MemoryDesc:
        """Some images of a pixel, in rows of pixels for each channel."""
        last = src.ndims - 1
        tag = FormatTag(f"A{LETTERS[2:last]}b{LETTERS[last]}{self.pairs * dot.group}a")
        return src.with_data_type(dot.a).with_tag(tag)

    def border(
        self, isa: Isa, dot: Multiply, src: Argument, scratchpad: Scratchpad
    ) -> Border | None:
        """The copy of src with zeros around the images, which taps read there."""
        layout, pixels = self.packed(self.src, dot), self.src.ndims - 2
        return take_border(scratchpad, src, layout, pixels, [self.space], isa, in_bands=False)

    def panels(
        self, isa: Isa, src: MemoryDesc, weights: MemoryDesc, dot: Multiply, *, ones: bool = False
    ) -> Panels:
        """A copy of diff_dst in panels of channels."""
        vectors, spatial = (
            product_tiles.panel_vectors(isa, self.outputs),
            LETTERS[2 : weights.ndims],
        )
        pairs = f"{self.pairs}a" if self.pairs > 1 else ""
        tag = FormatTag(f"BA{spatial}{pairs}{vectors * isa.lanes}b{dot.group}a")
        return Panels(weights.with_data_type(dot.b).with_tag(tag), vectors)

    def _tile(self, isa: Isa, panels: Panels) -> TileShape:
        return TileShape(
            product_tiles.tile_rows(isa, panels.vectors, self.channels), panels.vectors
        )

    def cut(self, isa: Isa, dot: Multiply, src: MemoryDesc, panels: Panels) -> Cut:
        """How the sums are cut; images are those that follow each other."""
        return cut_sums(self, isa, self._tile(isa, panels), dot, 0, together=self.pairs)

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
        """Blocks of the channels of a work item."""
        cut = self.cut(isa, dot, src, panels)
        return Blocking(self._tile(isa, panels), cut.panels, cut.channels)
