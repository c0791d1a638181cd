"""What the tiles of a product ask for before it is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dnnl.codegen.brgemm import AHEAD, Ahead, Factors, merge_levels
from dnnl.codegen.builder import I8, Emitter, Value, i64
from dnnl.kernels.product_form import Product, Walk


@dataclass(frozen=True, eq=False)
class Foresight:
    """What is asked for, where each sum is computed in so many ``blocks`` of so many ``steps`` of
    the outermost level, and a panel meets ``tiles`` before the next one does."""

    e: Emitter
    problem: Product
    walk: Walk
    blocks: int
    steps: int
    tiles: int

    def of_panel(self, b: Value, tile: Value, block: Value) -> Ahead | None:
        """What tile number ``tile`` of those that meet a panel asks for of panels that come from
        beyond the caches: its part of the next one, where several do, of which the first would wait
        for the whole panel; what lies a little further on, where there is one."""
        e, problem, panel = self.e, self.problem, self.problem.columns.panel
        axes = (*problem.around, *problem.taps, *problem.inside)
        line, *rest = merge_levels([self.walk.level(axis) for axis in axes])
        bits, size = problem.multiply.b.bits * problem.unit, self.walk.b.stride(panel)
        side_by_side = not rest and (line.count or 0) * line.b_step == size
        in_parts = self.blocks > 1 and problem.segments is not None
        unit = problem.multiply.tiles is not None
        near = unit and problem.weights.desc.size <= e.isa.caches.l2 // 2
        asks = problem.blocking.panels and panel.extent > 1 and problem.made is None
        asks = asks and not (in_parts or near)
        if not (asks and side_by_side):
            return None
        steps = self.steps if self.blocks > 1 else line.count or 0
        part = steps * line.b_step * bits // 8
        begin = i64(size * bits // 8 if self.tiles > 1 else AHEAD)
        step = -(-part // (steps * self.tiles))
        begin = e.add(begin, e.add(e.mul(tile, steps * step), e.mul(block, part)))
        return Ahead(e.element(b, begin, I8), step)

    def of_rows(self, factors: Factors, panel: Value, rows: int) -> Ahead | None:
        """What a tile of ``rows`` asks for of a matrix A that comes from beyond the caches: its
        part of the next tile's rows, where rows are one stream. To read as many rows side by side
        as a tile has is more than processors foresee."""
        e, problem, multiply = self.e, self.problem, factors.multiply
        line, *rest = merge_levels([self.walk.level(axis) for axis in problem.inside])
        step = self.walk.a.stride(problem.places[-1])
        in_stream = not rest and problem.is_matrix and (line.count or 0) * line.a_step == step
        far = self._src_bytes > e.isa.caches.l2
        if not (in_stream and far) or self.blocks > 1 or problem.multiply.tiles is not None:
            return None
        size = rows * step * multiply.word_bytes // multiply.group
        passes = 1 if problem.blocking.panels else problem.columns.panel.extent
        part = -(-size // passes)
        begin = i64(size) if passes == 1 else e.add(i64(size), e.mul(panel, part))
        return Ahead(e.element(factors.a, begin, I8), -(-part // (line.count or 1)))

    @property
    def streams(self) -> bool:
        """Whether src is read once, block of channels by block, from beyond the caches: then each
        tile prefetches the next one's, since the gaps between blocks hide the stream."""
        problem = self.problem
        large = self._src_bytes > self.e.isa.caches.l2 // 2
        taps = prod(axis.extent for axis in problem.taps)
        return large and taps == 1 and any(axis.extent > 1 for axis in problem.around)

    @property
    def _src_bytes(self) -> int:
        """How much memory src spans."""
        desc, times = self.problem.src.desc, 1 + self.problem.multiply.widened
        return (desc.size - desc.offset0 * desc.data_type.size) * times
