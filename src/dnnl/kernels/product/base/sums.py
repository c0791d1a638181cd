"""Sums over K of matrix products, as nested loops: in one piece, or segment by segment."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.epilogue.product_epilogue import ProductEpilogue
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Constant, Emitter, Value, Values, i64
from dnnl.codegen.memory.access import Env
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.product.brgemm import Factors, Level, Tile, accumulate, merge_levels
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.store import Store

_SUMS = 4  # Independent sums that hide the latency of multiply-adds.
_FURTHER = 8  # Distance of the software prefetch of scales, in segments.


@dataclass(frozen=True, eq=False)
class Segments:
    """Parts of a sum along ``axis`` with scales or zero points of their own. ``end`` corrects and
    scales the sums of each part; these are added up in f32."""

    axis: Axis
    end: ProductEpilogue


@dataclass(frozen=True, eq=False)
class Sums:
    """How a matrix product is summed. ``ends`` are the epilogues of the ``segments``, which then
    are the outermost level; tiles are ``vectors`` wide."""

    multiply: Multiply
    segments: Segments | None
    ends: Store | None
    vectors: int

    def zero(self, e: Emitter) -> Constant:
        """The initial value of the sums."""
        if self.segments is not None:
            return vector.splat_constant(vector.vector_type(F32, e.isa.lanes), 0.0)
        return self.multiply.zero(e)

    def merged(self, levels: list[Level]) -> list[Level]:
        """The levels with contiguous loops merged; a level of segments stays apart."""
        own = 0 if self.segments is None else 1
        return [*levels[:own], *merge_levels(levels[own:])]

    @property
    def needs_column_sums(self) -> bool:
        """Whether segments need the sums of their columns of weights."""
        return self.segments is not None and self.segments.end.needs_column_sums

    def add(self, e: Emitter, env: Env, sums: Tile, factors: Factors, levels: list[Level]) -> Tile:
        """``sums`` plus the sum over ``levels``, which contain no taps. Before use, the cells must
        be put in the order of columns by `finished`."""
        segments, ends = self.segments, self.ends
        if segments is None or ends is None:
            return self._add(e, sums, factors, levels)
        level, *inner = levels
        zero = Tile.of(self.multiply.zero(e), len(factors.rows), self.vectors)

        def body(number: Value, *cells: Value) -> Values:
            further = {**env, segments.axis: e.add(number, i64(_FURTHER))}
            ends.at(further, sums.rows, sums.rows).prefetch_weights()
            at = ends.at({**env, segments.axis: number}, sums.rows, sums.rows)
            part = factors.moved(e, e.mul(number, level.a_step), e.mul(number, level.b_step))
            part = replace(part, zeros=at.zeros())
            added = at.segment(self._in_order(e, self._add(e, zero, part, inner)))
            return tuple(map(e.b.fadd, cells, added.cells))

        cells = e.loop(level.begin, level.end, body, sums.cells, unroll=False, name="segment")
        return Tile(sums.vectors, cells)

    def _add(self, e: Emitter, sums: Tile, factors: Factors, levels: list[Level]) -> Tile:
        """``sums`` plus the sum over levels without segments. If there are too few cells to hide
        the latency of multiply-adds, each cell is split into several partial sums."""
        multiply, rows = self.multiply, sums.rows
        times = max(1, min(multiply.steps, _SUMS // len(sums.cells)))
        zeros = Tile.of(multiply.zero(e), rows * (times - 1), sums.vectors)
        several = Tile(sums.vectors, (*sums.cells, *zeros.cells))
        return accumulate(e, several, factors, levels).added_up(e, rows)

    def finished(self, e: Emitter, sums: Tile) -> Tile:
        """The final ``sums``, in the order of columns."""
        return sums if self.segments is not None else self._in_order(e, sums)

    def _in_order(self, e: Emitter, sums: Tile) -> Tile:
        """The sums of a dot-product kind, reordered by columns."""
        rows = (self.multiply.in_order(e, sums.row(row)) for row in range(sums.rows))
        return Tile(sums.vectors, tuple(cell for row in rows for cell in row))
