"""The generator of compute-bound kernels: batch-reduce matrix products on a register tile.

A *tile* is the accumulators in registers: rows x vectors. A product with a panel of weights sums
over nested *levels*: the innermost runs over consecutive k, the outer ones over whatever else is
reduced, such as blocks of channels, taps of a convolution or a batch::

             vectors x lanes columns of B
             +-----------+-----------+
       k ->  |  b0       |  b1       |    one vector load each
             +-----------+-----------+
    row 0  a | sum[0][0] | sum[0][1] |    one broadcast load a row,
    row 1  a | sum[1][0] | sum[1][1] |    one multiply-add a cell
     ...     |           |           |
             +-----------+-----------+

A k is one f32, or a K group of narrower elements (`dnnl.codegen.product.multiply`). Rows of A are
at any constant offsets, and their k at any constant stride. Columns of B are contiguous. The tile
stays in registers until the last level is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, Emitter, Values, i64
from dnnl.codegen.ir.transpose import transpose_registers
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.product.multiply import Multiply
from dnnl.types.size import surely_equal


@dataclass(frozen=True)
class TileShape:
    """The rows of a tile, and its width in vector registers."""

    rows: int
    vectors: int


@dataclass(frozen=True)
class Tile:
    """The accumulators: ``vectors`` values of one vector type in each row, stored row by row."""

    vectors: int
    cells: Values

    @staticmethod
    def of(value: ir.Value, rows: int, vectors: int) -> Tile:
        """A tile with one value in all cells."""
        return Tile(vectors, (value,) * (rows * vectors))

    @staticmethod
    def load(e: Emitter, pointer: ir.Value, kind: ir.VectorType, rows: int, vectors: int) -> Tile:
        """Load a tile of cells of type ``kind`` that `store` wrote to ``pointer``."""
        starts = (_cell(e, pointer, kind, number) for number in range(rows * vectors))
        return Tile(vectors, tuple(vector.load(e, start, kind) for start in starts))

    def store(self, e: Emitter, pointer: ir.Value) -> None:
        """Store the cells to ``pointer``, one behind the other."""
        for number, value in enumerate(self.cells):
            vector.store(e, value, _cell(e, pointer, value.type, number))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.cells) // self.vectors

    def row(self, number: int) -> Values:
        """The vectors of one row."""
        return self.cells[number * self.vectors : (number + 1) * self.vectors]

    def take(self, rows: Iterable[int]) -> Tile:
        """The tile of some rows."""
        return Tile(self.vectors, tuple(cell for row in rows for cell in self.row(row)))

    def put(self, rows: Iterable[int], part: Tile) -> Tile:
        """This tile with ``rows`` replaced by the rows of ``part``."""
        result = [self.row(number) for number in range(self.rows)]
        for number, row in enumerate(rows):
            result[row] = part.row(number)
        return Tile(self.vectors, tuple(cell for row in result for cell in row))

    def map(self, function: Callable[[int, int, ir.Value], ir.Value]) -> Tile:
        """The tile of ``function(row, vector, value)``."""
        values = [
            function(*divmod(number, self.vectors), value)
            for number, value in enumerate(self.cells)
        ]
        return Tile(self.vectors, tuple(values))

    def added_up(self, e: Emitter, rows: int) -> Tile:
        """Sum groups of ``rows`` rows into one; the number of groups is a power of two."""
        parts = [self.take(range(first, first + rows)) for first in range(0, self.rows, rows)]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            add = e.b.add if isinstance(self.cells[0].type.element, ir.IntType) else e.b.fadd
            parts = [
                Tile(self.vectors, tuple(map(add, one.cells, other.cells))) for one, other in pairs
            ]
        return parts[0]

    def transposed(self, e: Emitter) -> Tile:
        """The transposed tile. Rows past the last one are padded with copies of it."""
        lanes = self.cells[0].type.count
        strips = []
        for first in range(0, self.rows, lanes):
            rows = [self.row(min(row, self.rows - 1)) for row in range(first, first + lanes)]
            columns = zip(*rows, strict=True)
            strips.append([c for part in columns for c in transpose_registers(e, part)])
        return Tile(len(strips), tuple(cell for row in zip(*strips, strict=True) for cell in row))


def _cell(e: Emitter, pointer: ir.Value, kind: ir.VectorType, number: int) -> ir.Value:
    """The address of a cell in memory."""
    return e.element(pointer, i64(number * kind.count), kind.element)


def registers(rows: int, vectors: int, parts: int = 1, *, ones: bool = False) -> int:
    """The registers of a tile, with ``vectors`` columns of B and one broadcast.

    Operands of several ``parts`` take as many registers each, and one more holds products. A row of
    ``ones`` has accumulators like any other. With several parts they may be spilled: the arithmetic
    that makes the parts leaves loads and stores idle.
    """
    return (rows + (ones and parts == 1)) * vectors + (vectors + 1) * parts + (parts > 1)


def max_rows(isa: Isa, vectors: int, parts: int = 1, *, ones: bool = False) -> int:
    """The most rows of a tile ``vectors`` vectors wide, at least one."""
    return max(1, (isa.registers - registers(0, vectors, parts, ones=ones)) // vectors)


def choose_vectors(
    isa: Isa,
    columns: int,
    row_step: int = 0,
    span: int = 1,
    rows: int | None = None,
    *,
    far: bool = False,
) -> int:
    """The width of a tile in vectors, for ``columns`` columns.

    Two vectors need the fewest loads for each product among shapes whose rows divide common sizes.
    Another width is chosen only if it leaves fewer columns idle; one vector only if it saves more
    than a few, since it needs a load for each product. ``row_step`` is the distance of A's rows in
    bytes: a tile whose rows would conflict in the first-level cache becomes wide and low. So does a
    tile with very few ``rows``, to have enough accumulators, unless B is ``far``, beyond the
    second-level cache. Scalar tiles are as square as the registers allow. A vector that has a
    ``span`` of two registers counts as two vectors.
    """
    if isa.lanes == 1:
        return 4 if columns > 2 else 2
    if span > 1:
        return 1
    if columns >= 4 * isa.lanes and rows is not None and rows < 4 and not far:
        return 4
    resident = isa.caches.resident_lines(row_step)

    def conflicts(vectors: int) -> bool:
        most = max_rows(isa, vectors)
        return (most if rows is None else min(rows, most)) > resident

    if columns >= 4 * isa.lanes and conflicts(2):
        return 4

    def cost(vectors: int) -> int:
        width = vectors * isa.lanes
        return -(-columns // width) * width * (9 if vectors == 1 else 8)

    return min((2, 3) if conflicts(1) else (2, 3, 1), key=cost)


@dataclass(frozen=True)
class Level:
    """A loop of the reduction: its bounds, and its steps in A and B in elements. A step may be a
    run-time value."""

    begin: ir.Value
    end: ir.Value
    a_step: int
    b_step: int | ir.Value

    @property
    def count(self) -> int | None:
        """The trip count, None if it is known at run time only."""
        constant = isinstance(self.begin, ir.Constant) and isinstance(self.end, ir.Constant)
        return int(self.end.constant - self.begin.constant) if constant else None

    @property
    def from_zero(self) -> bool:
        """Whether it begins at 0 and its end is constant."""
        return self.count is not None and self.begin.constant == 0

    def continues(self, inner: Level) -> bool:
        """Whether a step of this level continues where the steps of ``inner`` end."""
        steps = inner.count
        if steps is None or not (self.from_zero and inner.from_zero):
            return False
        same = surely_equal(self.a_step, inner.a_step * steps)
        return same and self.b_step == inner.b_step * steps

    @staticmethod
    def over(extent: int, a_step: int, b_step: int) -> Level:
        """A level with a constant trip count."""
        return Level(i64(0), i64(extent), a_step, b_step)


def merge_levels(levels: Sequence[Level]) -> list[Level]:
    """The levels, with those merged that walk A and B contiguously."""
    merged: list[Level] = []
    for level in reversed(levels):
        inner = merged[0] if merged else None
        if level.from_zero and level.count == 1 and inner is not None:
            continue
        if inner is not None and level.continues(inner):
            steps = (level.count or 0) * (inner.count or 0)
            merged[0] = Level.over(steps, inner.a_step, inner.b_step)
        else:
            merged.insert(0, level)
    return merged


ACCUMULATOR_CHAINS = 8
"""Independent accumulator chains that keep both multiply-add units of most processors busy."""
_LEAST_STEPS = 16

_SCALES = (1, 2, 4, 8)
"""The sizes of a step in bytes at which instructions take the index of a loop as an address."""

_FIRST = i64(0)
PREFETCH_DISTANCE = 8192
"""The prefetch distance of a single stream in bytes."""


def prefetch_bytes(e: Emitter, pointer: ir.Value, count: int) -> ir.Value:
    """Prefetch the lines of so many bytes into the second-level cache. Returns the address behind
    them."""
    for offset in range(0, count, LINE):
        vector.prefetch(e, e.element(pointer, i64(offset), I8), second_level=True)
    return e.element(pointer, i64(count), I8)


@dataclass(frozen=True)
class Prefetch:
    """Software prefetch during a product: ``step`` bytes in each iteration of the innermost
    level, at ``distance`` bytes past B, or past A if ``of_rows``. If several products share the
    prefetch, ``part`` is the number of this one. ``steps`` is the trip count of a level with
    run-time bounds."""

    distance: ir.Value
    step: int
    part: ir.Value = _FIRST
    steps: int = 0
    of_rows: bool = False

    def begin(self, e: Emitter, factors: Factors, level: Level) -> ir.Value:
        """The first address to prefetch; ``factors`` are at the start of the innermost level."""
        size = (level.count or self.steps) * self.step
        first = factors.a if self.of_rows else factors.b
        return e.element(first, e.add(self.distance, e.mul(self.part, size)), I8)

    def issue(self, e: Emitter, pointer: ir.Value, steps: int = 1) -> ir.Value:
        """Prefetch the lines of ``steps`` iterations. Returns the next address."""
        return prefetch_bytes(e, pointer, steps * self.step)

    def issue_at(self, e: Emitter, pointer: ir.Value, index: ir.Value) -> ir.Value:
        """Prefetch the lines of iteration ``index``. Returns the next address."""
        return self.issue(e, pointer)


@dataclass(frozen=True)
class Stream:
    """Software prefetch during a product: a line in each iteration of the innermost level, or in
    one of ``every`` so many (a power of two); the first at ``start``, the next ones ``step`` bytes
    apart."""

    start: ir.Value
    step: ir.Value
    every: int = 1

    def begin(self, e: Emitter, factors: Factors, level: Level) -> ir.Value:
        """The first address to prefetch."""
        return self.start

    def issue(self, e: Emitter, pointer: ir.Value, steps: int = 1) -> ir.Value:
        """Prefetch the lines of ``steps`` iterations. Returns the next address."""
        for _ in range(steps):
            vector.prefetch(e, pointer, second_level=True)
            pointer = e.element(pointer, self.step, I8)
        return pointer

    def issue_at(self, e: Emitter, pointer: ir.Value, index: ir.Value) -> ir.Value:
        """Prefetch the line of iteration ``index``, if it has one. Returns the next address."""
        if self.every == 1:
            return self.issue(e, pointer)
        own = e.b.icmp_signed("==", e.b.and_(index, i64(self.every - 1)), i64(0))
        (pointer,) = e.branch(own, lambda: (self.issue(e, pointer),), lambda: (pointer,))
        return pointer


@dataclass(frozen=True)
class Factors:
    """The operands of a product: addresses of A and B, the offset of each row in A and of each
    vector in B (in elements), and their dot-product kind. A row with offset None is all ones.

    The k of a group are adjacent in B, or ``row_stride`` elements apart. ``zeros``, one for each
    vector, are subtracted from loaded B. ``prefetch`` is issued meanwhile.
    """

    a: ir.Value
    b: ir.Value
    rows: tuple[int | None, ...]
    vectors: tuple[int, ...]
    multiply: Multiply
    row_stride: int | ir.Value = 0
    prefetch: Prefetch | Stream | None = None
    zeros: Values = ()

    def columns(self, e: Emitter) -> Iterator[list[Values]]:
        """The operands of all vectors of B, for each step in which a K group of A is multiplied."""
        multiply, (_, element) = self.multiply, self.multiply.element
        step = multiply.group if self.row_stride else 1
        starts = [e.element(self.b, e.number(offset), element) for offset in self.vectors[::step]]
        if self.row_stride:
            yield [
                part for start in starts for part in multiply.load_rows(e, start, self.row_stride)
            ]
        elif self.zeros:
            for loaded in multiply.columns(e, starts):
                pairs = zip(loaded, self.zeros, strict=True)
                yield [(e.b.fsub(value, zero),) for (value,), zero in pairs]
        else:
            yield from multiply.columns(e, starts)

    def moved(self, e: Emitter, a_step: ir.Value, b_step: ir.Value) -> Factors:
        """These operands, advanced by ``a_step`` and ``b_step`` elements."""
        a_element, b_element = self.multiply.element
        a, b = e.element(self.a, a_step, a_element), e.element(self.b, b_step, b_element)
        return replace(self, a=a, b=b)

    def of_rows(self, numbers: Iterable[int]) -> Factors:
        """These operands with some of the rows."""
        return replace(self, rows=tuple(self.rows[number] for number in numbers))

    def opaque(self, e: Emitter) -> Factors:
        """These operands at addresses that are opaque to LLVM."""
        return replace(self, a=e.opaque(self.a), b=e.opaque(self.b))


Leaf = Callable[[Emitter, Tile, Factors], Tile]


def accumulate(
    e: Emitter, tile: Tile, factors: Factors, levels: Sequence[Level], leaf: Leaf | None = None
) -> Tile:
    """tile + the sum over all levels of (column of A) x (row of B).

    ``leaf`` replaces the innermost product.
    """
    if not levels:
        return leaf(e, tile, factors) if leaf else _rank_one(e, tile, factors)
    level = levels[0]
    if not e.isa.carried_addresses:
        return _by_index(e, tile, factors, levels, leaf)
    first = factors.moved(e, e.mul(level.begin, level.a_step), e.mul(level.begin, level.b_step))
    first = first.opaque(e)

    prefetch = factors.prefetch if len(levels) == 1 else None
    cursor = () if prefetch is None else (e.opaque(prefetch.begin(e, first, level)),)
    scaled = level.a_step * factors.multiply.a.size in _SCALES and level.from_zero
    carried = () if scaled else (first.a,)
    state = (first.b, *carried, *cursor, *tile.cells)
    head, size, begin = len(state) - len(tile.cells), len(tile.cells), level.begin

    def body(index: ir.Value, *state: ir.Value) -> Values:
        """A step for each set of accumulators that is carried behind the addresses."""
        here = replace(factors, a=first.a if scaled else state[1], b=state[0])
        if scaled:
            here = here.moved(e, e.mul(index, i64(level.a_step)), i64(0))
        cursor, cells = state[1 + len(carried) : head], state[head:]
        sums: Values = ()
        for start in range(0, len(cells), size):
            if prefetch is not None:
                cursor = (prefetch.issue_at(e, cursor[0], e.b.add(index, i64(start // size))),)
            part = Tile(tile.vectors, cells[start : start + size])
            sums += accumulate(e, part, here, levels[1:], leaf).cells
            here = here.moved(e, *(e.mul(i64(1), step) for step in (level.a_step, level.b_step)))
        return (here.b, *((here.a,) if carried else ()), *cursor, *sums)

    unroll = 1 if leaf is not None or len(levels) > 1 else _unroll(tile, level)
    if unroll > 1:
        begin = _even(e, level, unroll)
        state += tuple(ir.Constant(cell.type, None) for cell in tile.cells) * (unroll - 1)
        state = e.loop(level.begin, begin, body, state, step=unroll, unroll=False, name="unrolled")
        state = (*state[:head], *Tile(tile.vectors, state[head:]).added_up(e, tile.rows).cells)
    state = e.loop(begin, level.end, body, state, unroll=False, name="k")
    return Tile(tile.vectors, state[head:])


def _unroll(tile: Tile, level: Level) -> int:
    """The accumulators of each cell: a small tile is unrolled along k, to have enough independent
    chains. Short levels are not worth it."""
    unroll = max(1, ACCUMULATOR_CHAINS // len(tile.cells))
    unroll = 1 << (unroll.bit_length() - 1)
    return unroll if level.count is None or level.count >= _LEAST_STEPS * unroll else 1


def _even(e: Emitter, level: Level, unroll: int) -> ir.Value:
    """The end of the last complete group of ``unroll`` steps."""
    if level.count is not None:
        return i64(level.end.constant - level.count % unroll)
    count = e.larger(e.b.sub(level.end, level.begin), i64(0))
    return e.add(level.begin, e.b.and_(count, i64(-unroll)))


def _by_index(
    e: Emitter, tile: Tile, factors: Factors, levels: Sequence[Level], leaf: Leaf | None
) -> Tile:
    """`accumulate` with addresses that are computed from the index of the step."""
    level = levels[0]

    def body(index: ir.Value, *cells: ir.Value) -> Values:
        here = factors.moved(e, e.mul(index, level.a_step), e.mul(index, level.b_step))
        return accumulate(e, Tile(tile.vectors, cells), here, levels[1:], leaf).cells

    cells = e.loop(level.begin, level.end, body, tile.cells, unroll=False, name="k")
    return Tile(tile.vectors, cells)


def _rank_one(e: Emitter, tile: Tile, factors: Factors) -> Tile:
    """Multiply one k, or one K group. In a tile with several copies of the rows, the steps of a
    group alternate between the copies."""
    multiply, rows = factors.multiply, len(factors.rows)
    a_element, _ = multiply.element
    cells = list(tile.cells)
    for step, columns in enumerate(factors.columns(e)):
        first = step * rows % tile.rows
        for number, offset in enumerate(factors.rows, first):
            if offset is None:
                row = multiply.ones(e)
            else:
                row = multiply.broadcast(e, e.element(factors.a, e.number(offset), a_element), step)
            for cell, column in enumerate(columns, number * tile.vectors):
                cells[cell] = multiply.add(e, row, column, cells[cell])
    return Tile(tile.vectors, tuple(cells))
