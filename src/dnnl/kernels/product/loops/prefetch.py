"""Software prefetch of the tiles of a product."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from dnnl.codegen.ir.builder import Emitter, Value, i64
from dnnl.codegen.product.brgemm import PREFETCH_DISTANCE, Prefetch, merge_levels
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.loops.form import Product, Walk
from dnnl.kernels.product.loops.k_blocks import KBlocks
from dnnl.types.size import is_known, surely_equal, typical


@dataclass(frozen=True, eq=False)
class Prefetching:
    """Which operand a tile prefetches. Sums have ``blocks``, and a panel meets ``tiles`` tiles
    before the next panel does."""

    e: Emitter
    problem: Product
    walk: Walk
    blocks: KBlocks
    tiles: int

    def of_panel(self, tile: Value) -> Prefetch | None:
        """The prefetch of panels from beyond the caches by tile number ``tile`` of a panel. If a
        panel meets several tiles, each prefetches its share of the next panel, so that the first
        tile does not wait for it; a single tile prefetches a little further on in its own."""
        e, problem, panel = self.e, self.problem, self.problem.columns.panel
        axes = (*problem.around, *problem.taps, *problem.inside)
        levels = [self.walk.level(axis) for axis in axes]
        unit = problem.multiply.tiles is not None
        near = unit and typical(problem.weights.desc.size) <= e.isa.caches.l2 // 2
        in_parts = not self.blocks.single and problem.segments is not None
        asks = problem.blocking.panels and panel.typical > 1 and problem.packing is None
        asks = asks and not problem.copies
        # With taps, a matrix unit would prefetch the same weights again in each band.
        asks = asks and not (in_parts or near or (unit and len(merge_levels(levels)) > 1))
        size, step = self.walk.b.stride(panel), levels[-1].b_step
        if not asks or not surely_equal(prod(axis.extent for axis in axes) * step, size):
            return None
        bits = problem.multiply.b.bits * problem.unit
        tiles = typical(self.tiles)
        distance = size * bits // 8 if tiles > 1 else PREFETCH_DISTANCE
        share = -(-typical(step) * bits // (8 * tiles))
        inner = axes[-1].extent
        steps = self.blocks.steps or (0 if is_known(inner) else inner)
        return Prefetch(e.number(distance), share, tile, steps)

    def of_rows(self, panel: Value, rows: int, multiply: Multiply) -> Prefetch | None:
        """The prefetch of a matrix A from beyond the caches by a tile of ``rows`` rows: its share
        of the next tile's rows, if rows are contiguous. A hardware prefetcher cannot follow as many
        streams as a tile has rows."""
        problem = self.problem
        if not problem.is_matrix:
            return None
        line, *rest = merge_levels([self.walk.level(axis) for axis in problem.inside])
        step = self.walk.a.stride(problem.places[-1])
        count = prod(axis.extent for axis in problem.inside)
        in_stream = not rest and surely_equal(count * line.a_step, step)
        far = self._src_bytes > self.e.isa.caches.l2
        if not (in_stream and far) or not self.blocks.single or problem.multiply.tiles is not None:
            return None
        size = typical(rows * step * multiply.group_bytes // multiply.group)
        passes = 1 if problem.blocking.panels else problem.columns.panel.typical
        each = -(-size // passes // max(1, typical(count)))
        part = panel if passes > 1 else i64(0)
        return Prefetch(i64(size), each, part, count, of_rows=True)

    @property
    def streams(self) -> bool:
        """Whether src is read once, channel block by channel block, from beyond the caches. Each
        tile then prefetches the next one's pixels, as the gaps between blocks defeat the hardware
        prefetcher."""
        problem = self.problem
        large = self._src_bytes > self.e.isa.caches.l2 // 2
        taps = prod(axis.typical for axis in problem.taps)
        return large and taps == 1 and any(axis.typical > 1 for axis in problem.around)

    @property
    def _src_bytes(self) -> int:
        """The memory span of src in bytes, typically."""
        desc, times = self.problem.src.desc, 1 + self.problem.multiply.up_converted
        return typical(desc.size - desc.offset0 * desc.data_type.size) * times
