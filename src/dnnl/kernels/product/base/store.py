"""The epilogue of a register tile: the address of each cell, and the direction of its stores.

Registers hold vectors of columns. If dst is contiguous along places instead, as in nchw, the tile
is transposed before its epilogue, so that all accesses of the epilogue are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dnnl.codegen.epilogue.product_epilogue import ProductEpilogue
from dnnl.codegen.ir.builder import F32, Emitter, Type, Value, Values, i64
from dnnl.codegen.ir.vector import Mask, known_lanes
from dnnl.codegen.memory.access import Access, Bound, Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.memory.place import Place
from dnnl.codegen.product.brgemm import Tile, TileShape
from dnnl.types.size import is_known

ZERO_PLACE = i64(0)


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a product: ``count`` of them, in panels of vectors.

    ``form`` is ``panel * width + vector * lanes + lane``.
    """

    count: int
    panel: Axis
    vector: Axis
    lane: Axis

    @staticmethod
    def of(count: int, tile: TileShape, lanes: int) -> Columns:
        """The columns for tiles of this shape."""
        panel = Axis(-(-count // (tile.vectors * lanes)), "panel")
        return Columns(count, panel, Axis(tile.vectors, "vector"), Axis(lanes, "lane"))

    def of_lanes(self, count: int, lanes: int) -> Columns:
        """So many other columns in the same panels and vectors, ``lanes`` to a vector."""
        return Columns(count, self.panel, self.vector, Axis(lanes, "lane"))

    @property
    def width(self) -> int:
        """The number of columns of a panel."""
        return self.vector.extent * self.lane.extent

    @property
    def form(self) -> Affine:
        """The number of a column."""
        inner = Affine.of(self.vector, self.lane.extent) + Affine.of(self.lane)
        return Affine.of(self.panel, self.width) + inner

    @property
    def inside(self) -> Bound:
        """The bound of the columns that exist."""
        return Bound(self.form, self.count)

    def masks(self, columns: int) -> tuple[Mask, ...]:
        """The masks of a panel's vectors if only so many columns of it exist."""
        lanes = self.lane.extent
        return tuple(
            known_lanes([first + lane < columns for lane in range(lanes)])
            for first in range(0, self.width, lanes)
        )


class Store:
    """The epilogue of the tiles of a product.

    ``places`` are the axes of dst that tiles go along, the last one innermost. With ``banded``, a
    tile may span several rows of the one before, and covers all of the last.
    """

    def __init__(
        self,
        e: Emitter,
        pointers: Mapping[Operand, Value],
        finish: ProductEpilogue,
        places: tuple[Axis, ...],
        columns: Columns,
        domain: Sequence[Bound],
        exists: Sequence[Bound],
        banded: bool,
    ) -> None:
        self.e, self.pointers, self.end = e, pointers, finish
        self.places, self.columns = places, columns
        self.domain, self.exists = domain, exists
        self.accesses = {op: Access.of(op, op.index) for op in finish.operands}
        self.place = Axis(columns.lane.extent, "place")
        self.transposed = self._transposed_accesses(banded) if e.isa.lanes > 1 else None

    def _transposed_accesses(self, banded: bool) -> dict[Operand, Access] | None:
        """Accesses along places, if dst is contiguous along them and not along columns, and all
        operands can be accessed so; else None."""
        *_, height, width = self.places
        dst = self.accesses[self.end.dst].offset
        lane, vectors = self.columns.lane, self.columns.vector
        if dst is None or dst.stride(width) != 1 or dst.stride(lane) == 1:
            return None
        accesses = {}
        for operand in self.end.operands:
            offset = self.accesses[operand].offset
            if offset is None or self.accesses[operand].window:
                return None
            step = offset.stride(width)
            if banded and offset.stride(height) != step * width.extent:
                return None
            if offset.stride(vectors) != offset.stride(lane) * lane.extent:
                return None
            form = offset + Affine.of(self.place, step)
            accesses[operand] = Access(operand, operand.index, form)
        return accesses

    def at(self, env: Env, width: int, places: int, before: int = 0) -> End:
        """The epilogue of a tile of ``places`` in rows of ``width``. Its first place is ``before``
        places behind that of ``env``, which names the panel too."""
        banded = is_known(width) and before + places > width
        return End(self, env, width, places, banded=banded, first=i64(before))


class End:
    """The epilogue of one tile, or of ``places`` of it from ``first`` on."""

    def __init__(
        self,
        store: Store,
        env: Env,
        width: int,
        places: int,
        *,
        banded: bool,
        first: Value = ZERO_PLACE,
    ) -> None:
        self.store, self.e = store, store.e
        self._env, self._width, self._places = env, width, places
        self.banded, self._first = banded, first

    @property
    def transposed(self) -> bool:
        """Whether the tile is transposed before it is stored."""
        return self.store.transposed is not None

    def part(self, first: Value, places: int) -> End:
        """The epilogue of ``places`` of the tile from ``first`` on."""
        return End(self.store, self._env, self._width, places, banded=self.banded, first=first)

    def finish(self, sums: Tile) -> None:
        """Apply the epilogue to the sums and store the results."""
        store = self.store
        sums = store.end.complete(sums, lambda number, core: self._across(number, core, True))
        if store.transposed is not None:
            self._finish_transposed(sums.transposed(self.e))
            return

        def run(masked: bool) -> Values:
            store.end.store(sums, lambda number, core: self._across(number, core, masked))
            return ()

        window = any(access.window for access in store.accesses.values())
        if not (store.domain or store.exists or window):
            run(False)
            return
        self._unless_last(lambda: run(False), lambda: run(True))

    def segment(self, sums: Tile) -> Tile:
        """The contribution of a segment's sums to the total, in f32."""
        end = self.store.end

        def place_of(number: Value, core: Type) -> Place:
            return self._across(number, core, True)

        return end.scaled(end.complete(sums, place_of), place_of)

    def zeros(self) -> Values:
        """The zero points to subtract from weights when they are loaded, one for each vector of
        columns."""
        return self.store.end.zeros(self._first_row(masked=True))

    def prefetch_weights(self) -> None:
        """Prefetch the scales and zero points of the weights."""
        for place in self._first_row(masked=False):
            for operand in self.store.end.of_weights:
                place.prefetch(operand)

    def _first_row(self, *, masked: bool) -> list[Place]:
        vectors = range(self.store.columns.vector.extent)
        return [self._across(i64(v), F32, masked) for v in vectors]

    def prefetch(self) -> None:
        """Prefetch what the epilogue reads and overwrites beyond the caches, so that it arrives
        during the products."""
        store, core = self.store, self.store.end.core
        far = store.end.far(self.e.isa.caches)
        if not far:
            return
        if store.transposed is None:
            cells = self._places * store.columns.vector.extent
            places = [self._across(i64(number), core, False) for number in range(cells)]
        else:
            places = [self._along(i64(number), core, 1) for number in range(store.columns.width)]
        for place in places:
            for operand in far:
                place.prefetch(operand)

    def _cell(self, number: Value) -> Env:
        """The position of one vector of the tile."""
        *_, height, width = self.store.places
        place, v = self.e.divmod(number, self.store.columns.vector.extent)
        place = self.e.add(place, self._first)
        row, column = self.e.divmod(place, self._width) if self.banded else (i64(0), place)
        here = {height: self.e.add(self._env[height], row)}
        here[width] = self.e.add(self._env[width], column)
        return {**self._env, **here, self.store.columns.vector: v}

    def _across(self, number: Value, core: Type, masked: bool) -> Place:
        """The place of one vector of columns."""
        store, lane = self.store, self.store.columns.lane
        return Place(
            self.e,
            store.pointers,
            store.accesses,
            self._cell(number),
            lane,
            lane.extent,
            masked=masked,
            domain=store.domain,
            exists=store.exists,
            core=core,
        )

    def _along(self, number: Value, core: Type, parts: int) -> Place:
        """The place of one vector of places: a column of the tile has ``parts`` of them."""
        store, e = self.store, self.e
        assert store.transposed is not None
        lane, vectors, width = store.columns.lane, store.columns.vector, store.places[-1]
        column, part = e.divmod(number, parts)
        v, single = e.divmod(column, lane.extent)
        strip = Axis(parts, "strip")
        first = e.add(self._env[width], e.add(self._first, e.mul(part, lane.extent)))
        env = {**self._env, vectors: v, lane: single, strip: part, width: first}
        inside = Bound(Affine.of(strip, lane.extent) + Affine.of(store.place), self._places)
        return Place(
            e,
            store.pointers,
            store.transposed,
            env,
            store.place,
            lane.extent,
            masked=inside.needed,
            exists=[inside] if inside.needed else [],
            core=core,
        )

    def _finish_transposed(self, columns: Tile) -> None:
        store, count = self.store, self.store.columns

        def run(tile: Tile) -> Values:
            store.end.store(tile, lambda number, core: self._along(number, core, tile.vectors))
            return ()

        rest = count.count - (count.panel.extent - 1) * count.width
        if rest == count.width:
            run(columns)
            return
        self._unless_last(lambda: run(columns), lambda: run(columns.take(range(rest))))

    def _unless_last(self, then: Callable[[], Values], otherwise: Callable[[], Values]) -> None:
        """Run ``otherwise`` in the last panel, ``then`` in the others."""
        panel = self.store.columns.panel
        before = self.e.b.icmp_signed("<", self._env[panel], self.e.number(panel.extent - 1))
        self.e.branch(before, then, otherwise)
