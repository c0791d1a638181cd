"""Sums over the taps of a convolution that are inside the image for each pixel, and over the axes
inside of a tap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Value, Values, i64
from dnnl.codegen.memory.access import Env
from dnnl.codegen.memory.address import ZERO, Axis
from dnnl.codegen.product.brgemm import Factors, Level, Tile, accumulate, merge_levels
from dnnl.kernels.product.base.pixel_tiles import BandRun, Span, Spatial, TileRun, static_taps
from dnnl.kernels.product.base.sums import Sums
from dnnl.kernels.product.loops.form import Product, Walk
from dnnl.kernels.product.loops.joined_rows import JoinedRows

FIRST_ELEMENT = i64(0)


class _PixelTaps(NamedTuple):
    """Some pixels of a tile, and the taps that they have."""

    pixels: list[int]
    taps: Level


class Taps:
    """Writes the sums of the tiles of a product. If src ``streams``, each tile prefetches the
    pixels of the next one."""

    def __init__(
        self, e: Emitter, problem: Product, walk: Walk, sums: Sums, *, streams: bool
    ) -> None:
        self.e, self._problem, self._walk, self._sums = e, problem, walk, sums
        self._streams = streams

    def add(self, env: Env, sums: Tile, factors: Factors, run: BandRun, tile: TileRun) -> Tile:
        """``sums`` of one tile plus the sum over all levels."""
        e, problem = self.e, self._problem
        inner = [self._walk.level(axis, env) for axis in problem.inside]
        if problem.is_matrix:
            return self._sums.add(e, env, sums, factors, self._sums.merged(inner))
        if problem.rows is not None:
            levels = [*self._joined(problem.rows, env[problem.places[-1]], tile.width), *inner]
            return accumulate(e, sums, factors, [*map(self._walk.level, problem.around), *levels])
        return self._of_windows(env, sums, factors, run, tile, inner)

    def _of_windows(
        self,
        env: Env,
        sums: Tile,
        factors: Factors,
        run: BandRun,
        tile: TileRun,
        inner: list[Level],
    ) -> Tile:
        """``sums`` plus the sum over the taps that each pixel has."""
        e, problem = self.e, self._problem
        *outer, h, w = problem.space
        (*_, row, column), (*_, kh, kw) = problem.places, problem.taps
        levels = [self._walk.level(axis) for axis in problem.around]
        begins = problem.begins or (ZERO,) * len(outer)
        each = zip(outer, problem.places, problem.taps, begins, strict=False)
        levels += [
            _inside(e, s, env[place], self._walk.steps(tap), begin=begin.emit(e, env))
            for s, place, tap, begin in each
        ]
        if run.taps is None and run.rows > 1:
            rows = self._taps_of(h, kh, env[row], [at for at, _ in tile.pixels(column.extent)])
            return self._by_pixel(sums, factors, levels, rows, [self._walk.level(kw), *inner])
        if run.taps is None or len(set(run.taps)) == 1:
            spans = run.taps[0] if run.taps else None
            levels.append(_inside(e, h, env[row], self._walk.steps(kh), spans))
            rows_h: Sequence[Span] = ((0, 1),) * run.rows
        else:
            rows_h = run.taps
        if tile.taps is None:
            columns = self._taps_of(w, kw, env[column], range(tile.width))
            return self._by_pixel(sums, factors, levels, columns, inner)
        if not static_taps(run, tile, w.kernel):
            levels.append(self._walk.level(kw))
            distance = tile.width * self._walk.a.stride(column) if self._streams else 0
            if not distance:
                return accumulate(self.e, sums, factors, merge_levels([*levels, *inner]))

            def block(e: Emitter, sums: Tile, at: Factors) -> Tile:
                for offset in at.rows:
                    if offset is not None:
                        further = at.moved(e, i64(offset + distance), i64(0))
                        vector.prefetch(e, further.a)
                return accumulate(e, sums, at, inner)

            return accumulate(self.e, sums, factors, levels, block)

        def leaf(e: Emitter, sums: Tile, at: Factors) -> Tile:
            for column in range(w.kernel):
                sums = self._taps(sums, at, inner, column, rows_h, tile)
            return sums

        return accumulate(self.e, sums, factors, levels, leaf)

    def _joined(self, rows: JoinedRows, first: Value, places: int) -> list[Level]:
        """The taps that some of the ``places`` from ``first`` on has, in a line of rows."""
        e, h, w = self.e, rows.height, rows.width
        down, along, _ = self._problem.taps
        ends = first, e.add(first, i64(places - 1))
        top, bottom = (e.b.udiv(end, e.number(w.dst)) for end in ends)
        return [
            _of_some(e, h, top, bottom, self._walk.steps(down)),
            _of_some(e, w, i64(0), e.number(w.dst - 1), self._walk.steps(along)),
        ]

    def _taps_of(
        self, space: Spatial, tap: Axis, first: Value, outs: Iterable[int]
    ) -> list[_PixelTaps]:
        """The taps of the pixels at outputs ``first`` + each of ``outs``, grouped by output."""
        e, steps = self.e, self._walk.steps(tap)
        return [
            _PixelTaps(
                [number for number, _ in own], _inside(e, space, e.add(first, i64(out)), steps)
            )
            for out, own in groupby(enumerate(outs), key=lambda pair: pair[1])
        ]

    def _by_pixel(
        self,
        sums: Tile,
        factors: Factors,
        levels: list[Level],
        seen: list[_PixelTaps],
        inner: list[Level],
    ) -> Tile:
        """``sums`` with the taps that each pixel has, inside of ``levels``: one loop over the taps
        that all pixels have, then for each pixel those before and behind."""
        # Taps begin and end earlier for later pixels.
        low = seen[0].taps.begin
        high = self.e.larger(low, seen[-1].taps.end)

        def leaf(e: Emitter, sums: Tile, at: Factors) -> Tile:
            sums = accumulate(e, sums, at, [replace(seen[0].taps, end=high), *inner])
            for pixels, own in seen:
                part = _sides(e, sums.take(pixels), at.of_rows(pixels), own, (low, high), inner)
                sums = sums.put(pixels, part)
            return sums

        return accumulate(self.e, sums, factors, levels, leaf)

    def _taps(
        self,
        sums: Tile,
        factors: Factors,
        inner: list[Level],
        column: int,
        rows_h: Sequence[Span],
        tile: TileRun,
    ) -> Tile:
        """The taps of one column for the pixels that have them: one loop for each run of taps with
        the same pixels."""
        assert tile.taps is not None, "otherwise taps are computed at run time"
        pixels = tile.pixels(self._problem.places[-1].extent)
        seen = [
            rows_h[row] if left <= column < right else (0, 0)
            for (row, _), (left, right) in zip(pixels, tile.taps, strict=True)
        ]

        def chosen(tap: int) -> list[int]:
            return [number for number, (top, bottom) in enumerate(seen) if top <= tap < bottom]

        *_, kh, kw = self._problem.taps
        down, along = self._walk.steps(kh), self._walk.steps(kw)
        a_step, b_step = (step * column for step in along)
        moved = factors.moved(self.e, i64(a_step), i64(b_step))
        for numbers, run in groupby(range(max(bottom for _, bottom in rows_h)), key=chosen):
            taps = list(run)
            if numbers:
                levels = [Level(i64(taps[0]), i64(taps[-1] + 1), *down), *inner]
                part = accumulate(self.e, sums.take(numbers), moved.of_rows(numbers), levels)
                sums = sums.put(numbers, part)
        return sums


def _sides(
    e: Emitter,
    sums: Tile,
    factors: Factors,
    own: Level,
    done: tuple[Value, Value],
    inner: list[Level],
) -> Tile:
    """``sums`` with the ``own`` taps before and behind the range ``done``."""
    low, high = done
    before = e.smaller(low, own.end)

    def side(number: Value, *cells: Value) -> Values:
        first = e.b.icmp_signed("==", number, i64(0))
        begin, end = e.b.select(first, own.begin, high), e.b.select(first, before, own.end)
        level = replace(own, begin=begin, end=end)
        return accumulate(e, Tile(sums.vectors, cells), factors, [level, *inner]).cells

    return Tile(sums.vectors, e.loop(i64(0), i64(2), side, sums.cells, unroll=False, name="side"))


def _inside(
    e: Emitter,
    space: Spatial,
    out: Value,
    steps: tuple[int, int],
    span: Span | None = None,
    begin: Value = FIRST_ELEMENT,
) -> Level:
    """The taps of output ``out`` along one dimension, with the strides ``steps`` in A and B;
    ``span`` is their range where it is known. The output reads src from ``begin`` on."""
    if span is not None:
        return Level(i64(span[0]), i64(span[1]), *steps)
    if not space.padded:
        return Level(i64(0), i64(space.kernel), *steps)
    first = e.add(e.add(e.mul(out, space.stride), begin), i64(-space.padding))
    missing = _ceil_div(e, e.b.neg(first), space.dilation)
    reach = _ceil_div(e, e.b.sub(e.number(space.src), first), space.dilation)
    low, high = e.larger(missing, i64(0)), e.smaller(reach, i64(space.kernel))
    return Level(low, high, *steps)


def _of_some(
    e: Emitter, space: Spatial, first: Value, last: Value, steps: tuple[int, int]
) -> Level:
    """The taps that some of the outputs from ``first`` to ``last`` have."""
    begin, end = _inside(e, space, last, steps).begin, _inside(e, space, first, steps).end
    return Level(begin, e.larger(begin, end), *steps)


def _ceil_div(e: Emitter, value: Value, divisor: int) -> Value:
    """ceil(value / divisor) for values above -divisor; anything at most 0 for those below."""
    if divisor == 1:
        return value
    return e.b.sdiv(e.b.add(value, i64(divisor - 1)), i64(divisor))
