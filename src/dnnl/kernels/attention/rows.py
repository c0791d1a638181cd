"""Blocks of query rows, which are the lanes of vectors, and their products with keys and values.

    scores[key, row]     sum over e of key[key, e] * query[row, e]      keys are broadcast
    dst[row, column]     sum over keys of share[key, row] * value       shares are broadcast

So keys and values are read where they are, the softmax is computed in all lanes at once, and only
the queries are transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Emitter, Value, Values, i64
from dnnl.codegen.ir.transpose import transpose_registers
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.product.brgemm import (
    Factors,
    Level,
    Tile,
    accumulate,
    choose_vectors,
    max_rows,
)
from dnnl.codegen.product.multiply import as_f32
from dnnl.types.dtype import DataType

_FIRST = i64(0)


@dataclass(frozen=True)
class Rows:
    """Rows of contiguous elements in memory: the address of the first one, and how many elements
    they are apart."""

    pointer: Value
    stride: int
    data_type: DataType = DataType.f32

    def row(self, e: Emitter, number: Value) -> Value:
        """The address of a row."""
        return e.element(self.pointer, e.mul(number, self.stride), storage(self.data_type).element)

    def from_row(self, e: Emitter, number: Value) -> Rows:
        """The rows from a number on."""
        return Rows(self.row(e, number), self.stride, self.data_type)

    def element(self, e: Emitter, column: Value) -> Value:
        """The address of an element of the first row."""
        return e.element(self.pointer, column, storage(self.data_type).element)

    def splat(self, e: Emitter, element: Value) -> Value:
        """The element at an address in all lanes, in f32."""
        form = storage(self.data_type)
        loaded = vector.load(e, element, vector.vector_type(form.element, 1))
        return vector.splat(e, vector.only(e, form.to_core(e, loaded)), e.isa.lanes)

    def load(self, e: Emitter, row: Value, column: Value, mask: Mask) -> Value:
        """A vector of a row at its address, in f32."""
        form = storage(self.data_type)
        kind = vector.vector_type(form.element, e.isa.lanes)
        at = e.element(row, column, form.element)
        return form.to_core(e, vector.load(e, at, kind, mask))

    def store(self, e: Emitter, row: Value, column: Value, value: Value, mask: Mask) -> None:
        """Store a vector of f32 to a row at its address."""
        form = storage(self.data_type)
        at = e.element(row, column, form.element)
        vector.store(e, form.from_core(e, value), at, mask)

    def vectors(self, e: Emitter, row: Value, column: Value, count: int) -> Values:
        """So many vectors of a row from a column on."""
        start = self.row(e, row)
        places = (e.add(column, i64(v * e.isa.lanes)) for v in range(count))
        return tuple(self.load(e, start, place, None) for place in places)

    def put(self, e: Emitter, row: Value, column: Value, values: Values) -> None:
        """Store vectors to a row from a column on."""
        start = self.row(e, row)
        for v, value in enumerate(values):
            self.store(e, start, e.add(column, i64(v * e.isa.lanes)), value, None)


@dataclass(frozen=True)
class _Columns(Factors):
    """Operands whose last vector of columns has a mask."""

    mask: Mask = field(default=None, kw_only=True)

    def columns(self, e: Emitter) -> Iterator[list[Values]]:
        """The operands of all vectors of B."""
        if self.mask is None:
            yield from super().columns(e)
            return
        form, kind = storage(self.multiply.b), self.multiply.element[1]
        loaded = []
        for number, offset in enumerate(self.vectors, 1):
            own = self.mask if number == len(self.vectors) else None
            at = e.element(self.b, i64(offset), kind)
            value = vector.load(e, at, vector.vector_type(form.element, e.isa.lanes), own)
            loaded.append((form.to_core(e, value),))
        yield loaded


@dataclass(frozen=True)
class Lanes:
    """Emits what is done with a block of ``vectors`` vectors of query rows."""

    e: Emitter
    vectors: int

    @property
    def count(self) -> int:
        """The rows of the block."""
        return self.vectors * self.e.isa.lanes

    def mask(self, columns: int) -> Mask:
        """The lanes of the last vector of so many columns."""
        lanes = self.e.isa.lanes
        rest = columns % lanes
        return vector.known_lanes([lane < (rest or lanes) for lane in range(lanes)])

    def at(self, pointer: Value, row: Value, v: int = 0) -> Value:
        """The address of vector ``v`` in row ``row`` of an array of [.., rows of the block]."""
        offset = self.e.add(self.e.mul(row, self.count), i64(v * self.e.isa.lanes))
        return self.e.element(pointer, offset, F32)

    def load(self, pointer: Value, row: Value = _FIRST) -> Values:
        """A row of an array of [.., rows of the block]."""
        kind = vector.vector_type(F32, self.e.isa.lanes)
        places = (self.at(pointer, row, v) for v in range(self.vectors))
        return tuple(vector.load(self.e, place, kind) for place in places)

    def store(self, values: Values, pointer: Value, row: Value = _FIRST) -> None:
        """Store a row of an array of [.., rows of the block]."""
        for v, value in enumerate(values):
            vector.store(self.e, value, self.at(pointer, row, v))

    def clear(self, pointer: Value, count: int) -> None:
        """Write ``count`` zeros, in whole vectors."""
        e = self.e
        zero = vector.splat_constant(vector.vector_type(F32, e.isa.lanes), 0)

        def one(at: Value) -> None:
            vector.store(e, zero, e.element(pointer, at, F32))

        e.loop(i64(0), e.number(count), one, step=e.isa.lanes, unroll=False, name="clear")

    def transpose(
        self,
        read: Callable[[Value, Value, Mask], Value],
        count: Value,
        columns: int | Value,
        write: Callable[[int, Value, list[Value]], None],
    ) -> None:
        """Transpose ``columns`` columns of the first ``count`` rows. ``read(row, column, mask)`` is
        a vector of a row, ``write(v, column, rows)`` gets as many transposed columns from one on,
        for the rows of vector ``v``. Rows behind the last one are copies of it."""
        e, lanes = self.e, self.e.isa.lanes
        final = e.b.sub(count, i64(1))
        for v in range(self.vectors):
            rows = [e.smaller(i64(v * lanes + lane), final) for lane in range(lanes)]

            def piece(column: Value, mask: Mask, v: int = v, rows: list[Value] = rows) -> None:
                loaded = [read(row, column, mask) for row in rows]
                write(v, column, transpose_registers(e, loaded))

            self.each_vector(columns, piece)

    def pack(self, source: Rows, count: Value, depth: int, to: Value, factor: float) -> None:
        """Write ``to[k, row] = factor * source[row, k]``."""
        e, lanes = self.e, self.e.isa.lanes
        scale = vector.splat_constant(vector.vector_type(F32, lanes), factor)

        def read(row: Value, column: Value, mask: Mask) -> Value:
            return source.load(e, source.row(e, row), column, mask)

        def write(v: int, column: Value, columns: list[Value]) -> None:
            for number, value in enumerate(columns):
                own = value if factor == 1.0 else e.b.fmul(value, scale)
                vector.store(e, own, self.at(to, e.add(column, i64(number)), v))

        self.transpose(read, count, depth, write)

    def each_vector(self, columns: int | Value, body: Callable[[Value, Mask], None]) -> None:
        """``body(column, mask)`` for each vector of so many columns."""
        e, lanes = self.e, self.e.isa.lanes

        def masked(at: Value) -> None:
            body(at, vector.first_lanes(e, e.b.sub(columns, at), lanes))

        if not isinstance(columns, int):
            e.loop(i64(0), columns, masked, step=lanes, unroll=False, name="column")
            return
        whole = columns - columns % lanes
        e.loop(
            i64(0), i64(whole), lambda at: body(at, None), step=lanes, unroll=False, name="column"
        )
        if whole < columns:
            body(i64(whole), self.mask(columns))

    def fold(self, columns: int, add: Callable[[Value, Mask, Value], Value], first: Value) -> Value:
        """The last total of ``add(column, mask, total)`` for each vector of so many columns."""
        lanes = self.e.isa.lanes
        whole = columns - columns % lanes
        (total,) = self.e.loop(
            i64(0), i64(whole), lambda at, total: (add(at, None, total),), (first,),
            step=lanes, unroll=False, name="column",
        )  # fmt: skip
        return add(i64(whole), self.mask(columns), total) if whole < columns else total

    def scores(
        self, keys: Rows, depth: int, packed: Value, height: int, first: Tile | None = None
    ) -> Tile:
        """``first`` + the products of ``height`` rows of keys with the packed queries."""
        e, lanes = self.e, self.e.isa.lanes
        multiply = as_f32()
        factors = Factors(
            keys.pointer, packed, tuple(row * keys.stride for row in range(height)),
            tuple(v * lanes for v in range(self.vectors)), multiply,
        )  # fmt: skip
        tile = first or Tile.of(multiply.zero(e), height, self.vectors)
        return accumulate(e, tile, factors, [Level.over(depth, 1, self.count)])

    def each_product(
        self,
        shares: Value,
        steps: tuple[int, int],
        rows: int | Value,
        values: Rows,
        columns: int,
        count: Value,
        first: Callable[[Value, Value, int, int], Tile],
        finish: Callable[[Value, Value, Tile, Mask], None],
    ) -> None:
        """Tiles of products: at row r and column c the sum over k < ``count`` of ``shares`` at
        r * steps[0] + k * steps[1] times ``values[k, c]``.

        ``first(row, column, height, vectors)`` is what a tile is added to; ``finish(row, column,
        tile, mask)`` takes the sums, and the mask of the last vector. Where ``rows`` are known at
        run time only, the last tile has more of them.
        """
        e, lanes = self.e, self.e.isa.lanes
        wide = choose_vectors(e.isa, columns)
        per_row, per_k = steps
        levels = [Level(i64(0), count, per_k, values.stride)]
        element = storage(values.data_type).element

        def strip(column: Value, vectors: int, mask: Mask) -> None:
            start = e.element(values.pointer, column, element)

            def tile(row: Value, height: int) -> None:
                factors = _Columns(
                    e.element(shares, e.mul(row, per_row), F32), start,
                    tuple(r * per_row for r in range(height)),
                    tuple(v * lanes for v in range(vectors)), as_f32(values.data_type), mask=mask,
                )  # fmt: skip
                sums = accumulate(e, first(row, column, height, vectors), factors, levels)
                finish(row, column, sums, mask)

            self._each_height(rows, max_rows(e.isa, vectors), tile)

        every, mask = -(-columns // lanes), self.mask(columns)
        whole = (every - (mask is not None)) // wide
        step = wide * lanes
        e.loop(
            i64(0), i64(whole * step), lambda column: strip(column, wide, None),
            step=step, unroll=False, name="column",
        )  # fmt: skip
        if every > whole * wide:
            strip(i64(whole * step), every - whole * wide, mask)

    def add_product(
        self,
        shares: Value,
        steps: tuple[int, int],
        rows: int | Value,
        values: Rows,
        columns: int,
        count: Value,
        sums: Rows,
    ) -> None:
        """Add the products of `each_product` to ``sums``, whose rows have whole vectors."""
        e = self.e

        def first(row: Value, column: Value, height: int, vectors: int) -> Tile:
            every = (sums.vectors(e, e.add(row, i64(n)), column, vectors) for n in range(height))
            return Tile(vectors, tuple(cell for cells in every for cell in cells))

        def finish(row: Value, column: Value, tile: Tile, _: Mask) -> None:
            for number in range(tile.rows):
                sums.put(e, e.add(row, i64(number)), column, tile.row(number))

        self.each_product(shares, steps, rows, values, columns, count, first, finish)

    def copy(self, source: Rows, to: Rows, count: Value, columns: int, factor: float) -> None:
        """Copy the columns of some rows, times a factor."""
        e = self.e
        scale = vector.splat_constant(vector.vector_type(F32, e.isa.lanes), factor)

        def row(number: Value) -> None:
            start, result = source.row(e, number), to.row(e, number)

            def column(at: Value, mask: Mask) -> None:
                value = source.load(e, start, at, mask)
                scaled = value if factor == 1.0 else e.b.fmul(value, scale)
                to.store(e, result, at, scaled, mask)

            self.each_vector(columns, column)

        e.loop(i64(0), count, row, unroll=False, name="row")

    def _each_height(
        self, rows: int | Value, most: int, body: Callable[[Value, int], None]
    ) -> None:
        """Cover rows by tiles of at most ``most``, as equal as they can be."""
        e = self.e
        if not isinstance(rows, int):
            e.loop(i64(0), rows, lambda row: body(row, most), step=most, unroll=False, name="row")
            return
        height, longer = divmod(rows, -(-rows // most))
        cut = longer * (height + 1)
        for begin, end, own in ((0, cut, height + 1), (cut, rows, height)):
            e.loop(
                i64(begin), i64(end), partial(_exchanged, body, own),
                step=own, unroll=False, name="row",
            )  # fmt: skip


def _exchanged(body: Callable[[Value, int], None], height: int, row: Value) -> None:
    body(row, height)
