"""Which part of a product a work item computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from dnnl.codegen.ir.builder import Emitter, Value, i64
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Env
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.nest import work_items
from dnnl.kernels.product.base.blocking import LEAST_ITEMS
from dnnl.kernels.product.base.edge_tiles import EdgeTiles
from dnnl.kernels.product.base.pixel_tiles import BandRun, TileRun, band_runs, tile_runs
from dnnl.kernels.product.loops.form import Product
from dnnl.kernels.product.loops.joined_rows import JoinedRows
from dnnl.kernels.product.loops.run_time import RunTimeRange, run_time_tiles, tiles_between
from dnnl.types.size import bounds, is_known, smaller

Band = tuple[BandRun, tuple[TileRun, ...]]
"""Bands with the same shape, and their tiles."""


@dataclass(frozen=True, eq=False)
class Work:
    """The work items: one for each point of ``loops``, ``count`` in total.

    An item has a band of places, or a ``chunk`` of its tiles, and a ``group`` of panels. ``number``
    is that of a tile in a band of ``per_band``. A panel ``meets`` so many tiles before the next
    panel does. If ``rows`` are known at execution only, an item has all of them, in chunks one
    after the other. If only an execution knows how many ``places`` a line has, tiles at the end of
    a chunk have several heights.
    """

    bands: list[Band]
    band: Axis
    group: int
    groups: Axis
    per_band: int
    chunk: int
    chunks: Axis
    number: Axis
    loops: list[Axis]
    meets: int
    rows: RunTimeRange | None
    places: int
    edges: EdgeTiles | None
    joined: JoinedRows | None

    @staticmethod
    def of(problem: Product, isa: Isa, band_rows: int) -> Work:
        """For each point of ``order``, a band of ``band_rows`` or a part of it, and some panels."""
        blocking = problem.blocking
        run_time = problem.range_of(problem.places[-1])
        bands = _bands(problem, band_rows, run_time)
        panels = problem.columns.panel.extent
        grouped = blocking.panels and problem.columns.panel not in problem.order
        group = smaller(panels, blocking.panels) if grouped else panels
        groups = Axis(-(-panels // group), "group")
        per_band = _tiles_per_band(problem, bands, run_time)
        band = Axis(sum(run.count for run, _ in bands), "band")
        places = [axis for axis in problem.places[:-2] if axis not in problem.through]
        rows = (*problem.order, *places, band)
        outer = prod(axis.extent for axis in (*rows, groups))
        if run_time is not None or problem.copies or problem.shared is not None:
            wanted, items = blocking.places, 1
        elif problem.packing is not None:
            wanted, items = blocking.places, LEAST_ITEMS
        elif blocking.places:
            wanted, items = blocking.places, work_items.FEW_ITEMS
        else:
            work = problem.multiply_adds // work_items.MULTIPLY_ADDS
            wanted, items = 0, work_items.target_items(isa, work)
        chunk = work_items.chunk(per_band, outer, items)
        if wanted:
            chunk = smaller(-(-wanted // blocking.tile.rows), chunk)
        parts = 1 if run_time is not None else -(-per_band // chunk)
        chunks, number = Axis(parts, "chunk"), Axis(per_band, "tile")
        # Panels meet a block of places one after the other, or one panel meets all places in turn.
        inner = (chunks, groups) if blocking.places else (groups, chunks)
        meets = chunk if blocking.places else per_band * band.extent
        if problem.ranges:
            meets = 1
        return Work(
            bands,
            band,
            group,
            groups,
            per_band,
            chunk,
            chunks,
            number,
            [*rows, *inner],
            meets,
            run_time,
            problem.space[-1].dst,
            _edges(problem),
            problem.rows,
        )

    @property
    def count(self) -> int:
        """The number of items."""
        return prod(axis.extent for axis in self.loops)

    @property
    def slots(self) -> int:
        """The most tiles of a chunk. One of run-time rows ends with up to one tile of each lower
        height."""
        most = int(bounds(self.chunk)[1])
        if self.rows is None and is_known(self.places):
            return most
        return most + len(self.bands[0][1]) - 1

    def segment(self, e: Emitter, env: Env, problem: Product, number: Value) -> Env:
        """The part of a chunk in segment ``number`` of the joined rows of a problem."""
        rows, width = problem.rows, problem.blocking.tile.rows
        assert rows is not None
        first = e.mul(e.mul(env[self.chunks], self.chunk), width)
        return rows.env(e, number, first, e.add(first, e.number(self.chunk * width)))

    def tiles(
        self, e: Emitter, env: Env, runs: Sequence[TileRun]
    ) -> Iterator[tuple[TileRun, Value, Value, Value]]:
        """The tiles of a chunk: each run with the numbers of its first tile and of the one behind
        its last, and the place at which tile 0 would begin."""
        if self.rows is not None:
            yield from self.rows.tiles(e, env, runs)
            return
        if self.joined is not None:
            yield from self.joined.tiles(e, env, runs)
            return
        if self.edges is not None:
            low = e.mul(env[self.chunks], self.chunk)
            yield from self.edges.between(e, low, e.add(low, e.number(self.chunk)))
            return
        if not is_known(self.places):
            first, width = e.mul(env[self.chunks], self.chunk), runs[0].width
            row, past = e.mul(first, width), e.number(self.places)
            if not self.chunks.single:
                past = e.smaller(e.add(row, e.number(self.chunk * width)), past)
            yield from tiles_between(e, row, past, runs, first)
            return
        low = e.mul(env[self.chunks], self.chunk)
        high = e.add(low, e.number(self.chunk))
        for run in runs:
            first, last = i64(run.first), i64(run.first + run.count)
            whole = self.chunks.single
            begin = first if whole else _clamp(e, low, first, last)
            end = last if whole else _clamp(e, high, first, last)
            yield run, begin, end, i64(run.begin - run.first * run.width)


def _bands(problem: Product, band_rows: int, rows: RunTimeRange | None) -> list[Band]:
    *_, h, w = problem.space
    most, every = problem.blocking.tile.rows, problem.blocking.few
    known, edges = rows is None and is_known(w.dst), _edges(problem)
    if problem.rows is not None:
        return [(run, problem.rows.runs(most)) for run in band_runs(h, band_rows, w.kernel)]
    if edges is not None:
        return [(run, edges.runs) for run in band_runs(h, band_rows, w.kernel)]
    return [
        (run, tile_runs(w, most, run.rows) if known else run_time_tiles(w.dst, most, every=every))
        for run in band_runs(h, band_rows, w.kernel)
    ]


def _edges(problem: Product) -> EdgeTiles | None:
    """The tiles of rows of pixels that miss taps, if only an execution knows their lengths."""
    w = problem.space[-1]
    if is_known(w.dst) or (w.kernel == 1 and not w.padded):
        return None
    return EdgeTiles(w, problem.blocking.tile.rows)


def _tiles_per_band(problem: Product, bands: Sequence[Band], rows: RunTimeRange | None) -> int:
    """The most tiles of a band; those at its end that have other heights count as one."""
    places, most = problem.space[-1].dst, problem.blocking.tile.rows
    if rows is None and not is_known(places):
        return 1 if problem.blocking.few else -(-places // most)
    return max(tiles[-1].first + tiles[-1].count for _, tiles in bands)


def _clamp(e: Emitter, value: Value, low: Value, high: Value) -> Value:
    return e.smaller(e.larger(value, low), high)
