"""The compute phase of all products: one writer of loops for matrices, convolutions, their
gradients, and groups whose sizes are known at execution only.

All compute ``dst[.., place, column] = sum src[.., place, k] * weights[.., k, column]``. The places
of a matrix are its rows. Those of a convolution are pixels in three dimensions, and its sums go
over taps as well. A `Product` gives the index forms.

A *tile* is what registers hold: places x columns. A *block* is what a cache holds while it is
reused (`Blocking`): places, panels and steps of the sums. A work item computes all K blocks of its
sums, one after the other; partial sums of its tiles are spilled to memory of the thread in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from dnnl.codegen.epilogue.product_epilogue import ProductEpilogue
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, Module, Value, Values, i64
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis, decode
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.brgemm import Factors, Level, Prefetch, Stream, Tile
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.border_bands import BandWriter
from dnnl.kernels.product.base.pixel_tiles import BandRun, TileRun, rows_per_band
from dnnl.kernels.product.base.store import End, Store
from dnnl.kernels.product.base.sums import Sums
from dnnl.kernels.product.loops.form import Product, Walk
from dnnl.kernels.product.loops.joined_rows import SEGMENTS
from dnnl.kernels.product.loops.k_blocks import KBlocks
from dnnl.kernels.product.loops.prefetch import Prefetching
from dnnl.kernels.product.loops.taps import Taps
from dnnl.kernels.product.loops.work import Band, Work
from dnnl.kernels.product.pack.block_copies import BlockCopies
from dnnl.kernels.product.pack.on_the_fly import PanelBuffer, PanelPacker
from dnnl.kernels.product.unit.deferred_epilogue import DeferredEpilogue, tile_bytes
from dnnl.kernels.product.unit.tiles import Part, UnitTile
from dnnl.runtime.image import Phase
from dnnl.types.size import bounds, is_known, surely_divides, typical


def emit_product(module: Module, symbol: str, problem: Product) -> Phase:
    """Write the phase ``symbol``."""
    phase = PhaseFunction.of(module, symbol, problem.operands)
    writer = _ProductWriter(phase, problem)
    with writer.unit.configured() if writer.unit else nullcontext():
        phase.each_item(writer.work.count, writer.item)
        if writer.deferred is not None:
            writer.deferred.finish_rest()
    return phase.end(writer.work.count)


class _ProductWriter:
    """Writes one product."""

    def __init__(self, phase: PhaseFunction, problem: Product) -> None:
        self.e, self.problem = phase.e, problem
        self.pointers = phase.pointers(problem.operands)
        self.bands_of_src: BandWriter | None = None
        self.packer: PanelPacker | None = None
        self.copies: BlockCopies | None = None
        self.walk = Walk.of(self.e, problem)
        tile = problem.blocking.tile
        # Integer epilogues take longest to compile, and integer additions have a latency of one
        # cycle.
        multiply, single = problem.multiply, problem.blocking.single_rows
        sums = 0 if multiply.is_integer else tile.vectors * multiply.span
        self.band_rows = 1 if single else rows_per_band(problem.space, tile, sums)
        self.work = Work.of(problem, self.e.isa, self.band_rows)
        self.store = self._store(problem.finish)
        segments = problem.segments
        ends = None if segments is None else self._store(segments.end)
        self.sums = Sums(problem.multiply, segments, ends, problem.columns.vector.extent)
        self.unit = self._unit()
        self._cut_sums(phase)
        self.deferred = self._deferred_epilogue()
        self.prefetching = Prefetching(self.e, problem, self.walk, self.blocks, self.work.meets)
        self.taps = Taps(self.e, problem, self.walk, self.sums, streams=self.prefetching.streams)

    def _store(self, finish: ProductEpilogue) -> Store:
        problem = self.problem
        return Store(
            self.e,
            self.pointers,
            finish,
            problem.places,
            problem.columns,
            problem.domain,
            problem.exists,
            self.band_rows > 1,
        )

    def _cut_sums(self, phase: PhaseFunction) -> None:
        """Choose the K blocks, and take memory for partial sums between two, panel by panel."""
        problem, work, self.buffer_offset = self.problem, self.work, ZERO
        self.blocks = KBlocks.of(problem, self.walk, self.sums, self.unit)
        tile, sums = problem.blocking.tile, problem.multiply.zero(self.e).type
        own = 0
        if self.unit is not None:
            own = tile_bytes(problem.multiply, self.e, self.unit.sum_rows, tile.vectors)
        if self.blocks.single:
            self.segment_sums = own
            self._take_scratch(phase, 2 * own)
            return
        rows = tile.rows + problem.finish.needs_column_sums
        size = rows * tile.vectors * sums.count
        panel = work.slots * size
        self.buffer_offset = Affine.of(work.number, size) + Affine.of(
            work.chunks, -work.chunk * size
        )
        self.buffer_offset += Affine.of(problem.columns.panel, panel)
        self.buffer_offset += Affine.of(work.groups, -work.group * panel)
        size = work.group * panel
        for axis in problem.through:
            self.buffer_offset += Affine.of(axis, size)
            size *= axis.extent
        self.segment_sums = int(bounds(size)[1]) * vector.bits(sums) // 8
        self._take_scratch(phase, self.segment_sums + (own if problem.segments else 0))

    def _take_scratch(self, phase: PhaseFunction, sums: int) -> None:
        """Take per-thread memory for ``sums`` bytes of partial sums, for padded rows of src, for
        packed panels, and for copies of a block."""
        problem, sums = self.problem, -(-sums // LINE) * LINE
        bands, packing = problem.bands, problem.packing
        nbytes, panel = sums + (bands.nbytes if bands else 0), None
        if packing is not None:
            given = packing, self.pointers, problem.columns, problem.multiply
            k_groups, most = self.blocks.k_groups, problem.blocking.steps
            panel = PanelBuffer(self.e, *given, k_groups, self.work.group, most)
            nbytes += panel.nbytes
        if problem.copies:
            self.copies = BlockCopies(self.e, problem.copies, self.pointers)
            nbytes += self.copies.nbytes
        if not nbytes:
            return
        self.scratch = phase.scratch(nbytes)
        own = self.e.element(self.scratch, i64(sums), I8)
        if bands is not None:
            self.bands_of_src = BandWriter(self.e, bands, self.pointers[bands.src], own)
            self.pointers[problem.src] = own
        if panel is not None:
            self.packer = PanelPacker(panel, own)
        if self.copies is not None:
            self.pointers |= self.copies.at(own)

    def item(self, item: Value) -> None:
        """One work item."""
        work = self.work
        env = decode(self.e, item, work.loops)
        if self.copies is not None or self._looks_ahead:
            self.following = decode(self.e, self.e.add(item, i64(1)), work.loops)
        if self.bands_of_src is not None:
            first = self.e.mul(env[work.band], self.band_rows)
            self.bands_of_src.need(env, first, self.band_rows)
        for own in self.problem.ranges:
            env = {**env, **own.env(self.e, env, self.pointers)}
        if work.rows is None:
            self._bands(env, work.bands)
            return
        size = work.chunk * self.problem.blocking.tile.rows
        work.rows.in_parts(self.e, env, size, lambda part: self._bands(part, work.bands))

    def _bands(self, env: Env, runs: Sequence[Band]) -> None:
        """Branch to the code of the run that the band belongs to."""
        band = runs[0]
        if len(runs) == 1:
            self._blocks(env, band)
            return

        def here() -> Values:
            self._blocks(env, band)
            return ()

        def later() -> Values:
            self._bands(env, runs[1:])
            return ()

        run, _ = band
        past = self.e.number(run.first + run.count)
        before = self.e.b.icmp_signed("<", env[self.work.band], past)
        self.e.branch(before, here, later)

    def _blocks(self, env: Env, band: Band) -> None:
        """The tiles of one band of the work item, for each K block."""
        problem, height = self.problem, self.problem.places[-2]
        env = {**env, height: self.e.mul(env[self.work.band], self.band_rows)}

        def one(block: Value) -> None:
            here = {**env, **self.blocks.env(self.e, env, block)}
            if self.copies is not None:
                self.copies.write(here)
                self.copies.look_ahead(self._next(here, block)[0])
            self._through(problem.through, here, band, block)

        self.e.loop(i64(0), self.blocks.number(self.e, env), one, unroll=False, name="block")

    def _next(self, env: Env, block: Value) -> tuple[Env, Value]:
        """The next K block, and its number: of the same work item, or the first of the following
        one."""
        e, select = self.e, self.e.b.select
        more = e.b.icmp_signed("<", block, self.e.number(self.blocks.count - 1))
        block = select(more, e.add(block, i64(1)), i64(0))
        items = {axis: select(more, env[axis], at) for axis, at in self.following.items()}
        env = {**env, **items}
        return {**env, **self.blocks.env(e, env, block)}, block

    @property
    def _looks_ahead(self) -> bool:
        """Whether tiles prefetch what is packed next: there are enough for all streams."""
        problem, packer, work = self.problem, self.packer, self.work
        if packer is None or problem.ranges or problem.multiply.tiles is not None:
            return False
        return 0 < packer.streams <= typical(work.chunk * work.group)

    def _through(self, axes: Sequence[Axis], env: Env, band: Band, block: Value) -> None:
        """The panels of one K block, for each of the places along ``axes``."""
        if not axes:
            self._panels(env, band, block)
            return
        axis, *rest = axes

        def one(place: Value) -> None:
            self._through(rest, {**env, axis: place}, band, block)

        self.e.loop(i64(0), self.e.number(axis.extent), one, unroll=False, name=axis.name)

    def _panels(self, env: Env, band: Band, block: Value) -> None:
        """The panels of the work item, as a loop outside of its tiles if blocking asks for it."""
        e, work, panel = self.e, self.work, self.problem.columns.panel
        if panel in env or not self.problem.blocking.panels:
            self._tiles(env, band, block)
            return
        low = e.mul(env[work.groups], work.group)
        high = e.add(low, e.number(work.group))
        if not surely_divides(work.group, panel.extent):
            high = e.smaller(high, e.number(panel.extent))

        packer, packed = self.packer, None
        if packer is not None:
            k_groups = self.blocks.packed(e, env, block, packer.buffer)
            packed = packer.pack(env, (low, high), k_groups)
            if self._looks_ahead:
                following, number = self._next(env, block)
                first = e.mul(following[work.groups], work.group)
                k_groups = self.blocks.packed(e, following, number, packer.buffer)
                packer.look_ahead({**following, panel: first}, k_groups)

        def one(number: Value) -> None:
            if packer is not None and packed is not None:
                own = packer.buffer.panel(packed, e.b.sub(number, low))
                self.pointers[self.problem.weights] = own
            self._tiles({**env, panel: number}, band, block)

        e.loop(low, high, one, unroll=False, name="panel")

    def _tiles(self, env: Env, band: Band, block: Value) -> None:
        if self.problem.rows is None:
            self._runs(env, band, block)
            return

        def segment(number: Value) -> None:
            self._runs({**env, **self.work.segment(self.e, env, self.problem, number)}, band, block)

        self.e.loop(i64(0), i64(SEGMENTS), segment, unroll=False, name="segment")

    def _runs(self, env: Env, band: Band, block: Value) -> None:
        run, tiles = band
        for tile, begin, end, start in self.work.tiles(self.e, env, tiles):
            body = self._tile_body(env, run, tile, block, start)
            self.e.loop(begin, end, body, unroll=False, name="tile")

    def _tile_body(
        self, env: Env, run: BandRun, tile: TileRun, block: Value, start: Value
    ) -> Callable[[Value], None]:
        width, panel = self.problem.places[-1], self.problem.columns.panel

        def body(number: Value) -> None:
            begin = self.e.add(self.e.mul(number, tile.width), start)
            if self.problem.rows is not None:
                begin = self.problem.rows.inside(self.e, env, begin, tile.width)
            here = {**env, width: begin, self.work.number: number}
            if panel in here:
                self._tile(here, run, tile, block)
                return
            self.e.loop(
                i64(0),
                self.e.number(panel.extent),
                lambda number: self._tile({**here, panel: number}, run, tile, block),
                unroll=False,
                name="panel",
            )

        return body

    def _tile(self, env: Env, run: BandRun, tile: TileRun, block: Value) -> None:
        """One register tile: all products, then its epilogue."""
        e, problem = self.e, self.problem
        places, row = tile.width, problem.places[-1].extent
        at = self.store.at(env, row, places, tile.before)
        factors = partial(self._factors, env, tile, block)
        if self.unit is not None:
            self.unit.switch_to(self._offsets(tile))
            usual = factors(problem.src, problem.multiply)
            self._unit_tile(self.unit, env, usual, block, at)
            return
        sum_rows = places + problem.finish.needs_column_sums
        zero = Tile.of(self.sums.zero(e), sum_rows, problem.columns.vector.extent)
        if self.blocks.single:
            at.prefetch()

            def whole(src: Operand, multiply: Multiply) -> Tile:
                return self.taps.add(env, zero, factors(src, multiply), run, tile)

            at.finish(self.sums.finished(e, self._either(env, whole)))
            return
        buffer = e.element(
            self.scratch, self.buffer_offset.emit(e, env), zero.cells[0].type.element
        )
        initial = self._initial(buffer, zero, block)

        def part(src: Operand, multiply: Multiply) -> Tile:
            if not self.blocks.steps:
                return self.taps.add(env, initial, factors(src, multiply), run, tile)
            levels = self.blocks.levels(e, env, block, self.blocks.line)
            return self.sums.add(e, env, initial, factors(src, multiply), levels)

        sums = self._either(env, part)
        last = self.blocks.is_last(e, env, block)

        def finish() -> Values:
            at.finish(self.sums.finished(e, sums))
            return ()

        def spill() -> Values:
            sums.store(e, buffer)
            return ()

        e.branch(last, finish, spill)

    def _factors(
        self, env: Env, tile: TileRun, block: Value, src: Operand, multiply: Multiply
    ) -> Factors:
        """The operands of a tile: its addresses in ``src`` and in weights, and what to prefetch."""
        e, problem, vectors = self.e, self.problem, self.problem.columns.vector
        rows: list[int | None] = [*self._offsets(tile)]
        places = len(rows)
        if problem.finish.needs_column_sums or self.sums.needs_column_sums:
            rows.append(None)
        form = src.offset(src.index)
        assert form is not None, "configure admits only affine layouts"
        of_panel = self.walk.b.along(env if self.packer is None else ())
        a, b = (
            e.element(self.pointers[operand], offset.emit(e, env), element)
            for operand, offset, element in zip(
                (src, problem.weights), (form.along(env), of_panel), multiply.element, strict=True
            )
        )
        columns = tuple(self.walk.b.stride(vectors) * v for v in range(vectors.extent))
        k_stride = problem.k_stride
        apart = k_stride if is_known(k_stride) else e.number(k_stride)
        factors = Factors(a, b, tuple(rows), columns, multiply, apart)
        return replace(factors, prefetch=self._prefetch(env, multiply, places))

    def _either(self, env: Env, sums: Callable[[Operand, Multiply], Tile]) -> Tile:
        """The sums of a tile, by the narrow path if there is one and the panel allows it."""
        e, problem, narrow = self.e, self.problem, self.problem.narrow
        if narrow is None:
            return sums(problem.src, problem.multiply)
        axes = (*problem.order, problem.columns.panel)
        cells = e.branch(
            narrow.takes(e, env, self.pointers[narrow.flags], self.walk.b, axes),
            lambda: sums(narrow.src, narrow.pairs).cells,
            lambda: sums(problem.src, problem.multiply).cells,
        )
        return Tile(problem.columns.vector.extent, cells)

    def _unit_tile(self, unit: UnitTile, env: Env, factors: Factors, block: Value, at: End) -> None:
        """One register tile that a matrix unit computes."""
        e = self.e
        if self.deferred is not None:
            at.prefetch()
            unit.compute_deferred(factors, self.deferred)
            self.deferred.begin(env, len(factors.rows))
            return
        buffer = e.element(
            self.scratch, self.buffer_offset.emit(e, env), self.problem.multiply.accumulator
        )
        if self.problem.segments is not None:
            self._unit_segments(unit, env, factors, block, buffer, at)
            return
        if self.blocks.single:
            at.prefetch()
        part = self._part(env, unit.line.whole(unit.levels), buffer, block)
        unit.compute(factors, part, at)

    def _unit_segments(
        self, unit: UnitTile, env: Env, factors: Factors, block: Value, total: Value, at: End
    ) -> None:
        """One register tile whose sums a matrix unit computes segment by segment."""
        e, segments, ends, rows = self.e, self.problem.segments, self.sums.ends, len(factors.rows)
        assert segments is not None
        assert ends is not None
        store, axis = ends, segments.axis
        buffer = e.element(self.scratch, i64(self.segment_sums), I8)
        part = self._part(env, unit.levels, buffer, block)

        def own(number: Value) -> End:
            return store.at({**env, axis: number}, rows, rows)

        unit.compute_segments(factors, part, own, total, at)

    def _part(self, env: Env, levels: Sequence[Level], buffer: Value, block: Value) -> Part:
        """The K block of a sum over ``levels``."""
        if self.blocks.single:
            return Part(levels, buffer)
        e, blocks = self.e, self.blocks
        first, last = blocks.is_first(e, block), blocks.is_last(e, env, block)
        return Part(blocks.levels(e, env, block, levels), buffer, first, last)

    def _unit(self) -> UnitTile | None:
        """The tiles of a matrix unit, if it computes the product."""
        problem = self.problem
        if problem.multiply.tiles is None:
            return None
        tilings = [self._offsets(tile) for _, tiles in self.work.bands for tile in tiles]
        taps = () if problem.is_matrix else problem.taps
        axes = (*problem.around, *taps, *problem.inside)
        levels = self.sums.merged([self.walk.level(axis) for axis in axes])
        vectors = problem.blocking.tile.vectors
        return UnitTile(self.e, problem.multiply, levels, vectors, tilings)

    def _deferred_epilogue(self) -> DeferredEpilogue | None:
        """The software-pipelined epilogue: that of a tile runs while the unit multiplies the next
        one. None if the product does not allow it."""
        problem, unit = self.problem, self.unit
        ones = problem.finish.needs_column_sums or self.sums.needs_column_sums
        deferrable = self.blocks.single and problem.segments is None and not ones
        if unit is None or not deferrable or not unit.can_defer(self.store):
            return None
        tile = problem.blocking.tile
        width = problem.places[-1].extent

        def end_at(env: Env) -> End:
            return self.store.at(env, width, width * self.band_rows)

        places = (*problem.through, *problem.places[-2:])
        axes = dict.fromkeys((*self.work.loops, *places, problem.columns.panel))
        return DeferredEpilogue(
            self.e,
            problem.multiply,
            unit.sum_rows,
            tile.vectors,
            self.scratch,
            axes,
            end_at,
            unit.line_of(width, self._offsets(self.work.bands[0][1][0])),
        )

    def _offsets(self, tile: TileRun) -> list[int]:
        """The offsets of the rows of a tile in A."""
        *_, h, w = self.problem.places
        pixels = tile.pixels(w.extent)
        return [
            row * self.walk.a.stride(h) + column * self.walk.a.stride(w) for row, column in pixels
        ]

    def _prefetch(self, env: Env, multiply: Multiply, rows: int) -> Prefetch | Stream | None:
        """The software prefetch of a tile."""
        e, work = self.e, self.work
        tile, panel = env[work.number], env[self.problem.columns.panel]
        if self.copies is not None:
            return self.copies.stream(e.add(e.mul(panel, work.per_band), tile))
        if self.problem.ranges:
            tile = i64(0)  # as many as there are, each prefetches on its own
        elif self.problem.blocking.places:
            tile = e.b.sub(tile, e.mul(env[work.chunks], work.chunk))
        elif not work.band.single:
            tile = e.add(tile, e.mul(env[work.band], work.per_band))
        if self.packer is not None and self._looks_ahead:
            low = e.mul(env[work.groups], work.group)
            number = e.add(e.mul(e.b.sub(panel, low), work.chunk), tile)
            return self.packer.stream(number, typical(work.chunk * work.group))
        of_panel = self.prefetching.of_panel(tile)
        return of_panel or self.prefetching.of_rows(panel, rows, multiply)

    def _initial(self, buffer: Value, zero: Tile, block: Value) -> Tile:
        """The sums at the begin of a K block: those in ``buffer``, zero in the first block."""
        e, kind = self.e, zero.cells[0].type
        first = self.blocks.is_first(e, block)
        cells = e.branch(
            first,
            lambda: zero.cells,
            lambda: Tile.load(e, buffer, kind, zero.rows, zero.vectors).cells,
        )
        return Tile(zero.vectors, cells)
