"""The sums of matrices, from levels of loops: whole, or segment by segment."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.epilogue.finish import Finish
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Constant, Emitter, Value, Values, i64
from dnnl.codegen.memory.access import Env
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.product.brgemm import Factors, Level, Tile, accumulate, merge_levels
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.store import Store

_SUMS = 4  # that keep multiply-adds from waiting for each other
_FURTHER = 8  # segments by which their scales, a row of weights apart each, are fetched ahead


@dataclass(frozen=True, eq=False)
class Segments:
    """Parts of a sum, along ``axis``, that have scales or zero points of their own: what ``end``
    makes of the sums of one is added up in f32."""

    axis: Axis
    end: Finish


@dataclass(frozen=True, eq=False)
class Sums:
    """How a product of matrices sums up. ``ends`` are those of its ``segments``, of which the first
    level is, if there are any, of tiles so many ``vectors`` wide."""

    multiply: Multiply
    segments: Segments | None
    ends: Store | None
    vectors: int

    def zero(self, e: Emitter) -> Constant:
        """The sums of nothing."""
        if self.segments is not None:
            return vector.splat_constant(vector.vector_type(F32, e.isa.lanes), 0.0)
        return self.multiply.zero(e)

    def merged(self, levels: list[Level]) -> list[Level]:
        """Levels without taps: that of segments, if there are any, and what becomes one line
        inside."""
        own = 0 if self.segments is None else 1
        return [*levels[:own], *merge_levels(levels[own:])]

    @property
    def needs_column_sums(self) -> bool:
        """Whether segments need the sums of their columns."""
        return self.segments is not None and self.segments.end.needs_column_sums

    def add(self, e: Emitter, env: Env, sums: Tile, factors: Factors, levels: list[Level]) -> Tile:
        """``sums`` + the sum over ``levels``, among which are no taps; `finished` has their columns
        in order."""
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
        """``sums`` + the sum over levels without segments. The steps of a word are shared out among
        sums where there are so few that each would wait for the one before."""
        multiply, rows = self.multiply, sums.rows
        times = max(1, min(multiply.steps, _SUMS // len(sums.cells)))
        zeros = Tile.of(multiply.zero(e), rows * (times - 1), sums.vectors)
        several = Tile(sums.vectors, (*sums.cells, *zeros.cells))
        return accumulate(e, several, factors, levels).added_up(e, rows)

    def finished(self, e: Emitter, sums: Tile) -> Tile:
        """``sums`` to which nothing is added any more."""
        return sums if self.segments is not None else self._in_order(e, sums)

    def _in_order(self, e: Emitter, sums: Tile) -> Tile:
        """The sums of a way of multiplying by columns."""
        rows = (self.multiply.in_order(e, sums.row(row)) for row in range(sums.rows))
        return Tile(sums.vectors, tuple(cell for row in rows for cell in row))
