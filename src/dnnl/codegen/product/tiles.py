"""Products on a matrix unit, whose registers are *tiles* (`dnnl.codegen.isa.row.Matrix`).

The register tile of `brgemm` is cut into *parts* of rows. Each part has one tile of sums for each
vector of columns. One step multiplies a block of K groups::

                       a vector of columns: 16 groups
                       +--------+--------+
     group 0 .. 15 ->  |   B0   |   B1   |    one load each: 16 groups of 16 columns
                       +--------+--------+
    part 0     A0      | sum 00 | sum 01 |    one load a part: up to 16 rows of a block
    part 1     A1      | sum 10 | sum 11 |    one instruction a cell
                       +--------+--------+

Rows of A are loaded in place, panels of B in the layout that vectors use. Sums are stored to memory
in the order of a `brgemm.Tile`, and vectors finish them. Vectors also multiply the groups that do
not fill a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from llvmlite import ir

from dnnl.codegen.ir.builder import I8, Emitter, Value, Values, i64
from dnnl.codegen.isa.row import Matrix
from dnnl.codegen.product.brgemm import Factors, Level
from dnnl.codegen.product.multiply import Multiply

_GROUP_BYTES = 4
"""The bytes of a K group."""

_LEAST = 8
"""The fewest groups of a block, unless there are no more: smaller blocks take as long."""

AfterTile = Callable[[int], None]
"""Called with the number of a tile after its product or its store, to emit vector code in
between."""

_SIZE = 64
"""The bytes of the tile configuration."""


def block_of(matrix: Matrix, groups: int) -> int:
    """The K groups of a step, out of ``groups`` consecutive ones: a size without remainder, or a
    full tile row."""
    most = matrix.row_bytes // _GROUP_BYTES
    if groups <= most:
        return groups
    even = (size for size in range(most, _LEAST - 1, -1) if groups % size == 0)
    return next(even, most)


def max_parts(matrix: Matrix, vectors: int) -> int:
    """The most parts of a register tile ``vectors`` vectors wide. Each part needs its sums and a
    tile of A, beside the tiles of B."""
    return (matrix.tiles - vectors) // (vectors + 1)


def parts_of(matrix: Matrix, vectors: int, rows: Sequence[int]) -> tuple[int, ...] | None:
    """The rows of each part, as even as possible. ``rows`` are offsets in A; the rows of a part
    must be equidistant. None if the parts are too many."""
    most, begins = max_parts(matrix, vectors), [0]
    for number in range(2, len(rows)):
        distance = rows[begins[-1] + 1] - rows[begins[-1]]
        if number > begins[-1] + 1 and rows[number] - rows[number - 1] != distance:
            begins.append(number)
    sizes = []
    for begin, end in zip(begins, [*begins[1:], len(rows)], strict=True):
        count = -(-(end - begin) // matrix.rows)
        low, more = divmod(end - begin, count)
        sizes += [low + 1] * more + [low] * (count - more)
    return tuple(sizes) if len(sizes) <= most else None


def through(rows: Sequence[int]) -> Sequence[int]:
    """The rows with all rows between them, if they are multiples of the first distance apart; else
    unchanged."""
    if len(rows) < 2:
        return rows
    step = rows[1] - rows[0]
    between = range(rows[0], rows[-1] + 1, step) if step > 0 else ()
    return between if set(rows) <= set(between) else rows


@dataclass(frozen=True)
class Shape:
    """The shapes of the tiles: rows of each part, vectors of columns, K groups of a block."""

    parts: tuple[int, ...]
    vectors: int
    block: int

    @property
    def rows(self) -> int:
        """The rows of all parts."""
        return sum(self.parts)

    @property
    def contents(self) -> bytes:
        """The configuration in memory: the row bytes of each tile from byte 16 on, and the numbers
        of rows from byte 48."""
        whole = self.vectors * len(self.parts)
        rows = [rows for rows in self.parts for _ in range(self.vectors)]
        rows += [*self.parts, *[self.block] * self.vectors]
        widths = (
            [_SIZE] * whole + [self.block * _GROUP_BYTES] * len(self.parts) + [_SIZE] * self.vectors
        )
        content = bytearray(_SIZE)
        content[0] = 1  # the palette
        for number, (count, width) in enumerate(zip(rows, widths, strict=True)):
            content[16 + 2 * number] = width
            content[48 + number] = count
        return bytes(content)


class Tiles:
    """Emits products on the matrix unit of the target."""

    def __init__(self, e: Emitter, multiply: Multiply) -> None:
        assert e.isa.matrix is not None
        assert multiply.tiles is not None
        self.e, self.matrix = e, e.isa.matrix
        self.multiply, self.dot = multiply, multiply.tiles

    def _do(self, name: str, *operands: Value) -> None:
        self.e.intrinsic(name, ir.VoidType(), operands)

    def configure(self, shape: Shape) -> None:
        """Set the shapes of the tiles; their contents are lost."""
        table = self.e.module.table(I8, list(shape.contents))
        self._do(self.matrix.configure, table)

    def release(self) -> None:
        """Return the unit to its initial state."""
        self._do(self.matrix.release)

    def begin(self, shape: Shape) -> None:
        """Zero the sums."""
        for number in range(len(shape.parts) * shape.vectors):
            self._do(self.matrix.zero, _tile(number))

    def fill(self, shape: Shape, pointer: Value) -> None:
        """Fill all rows of the operand tiles with the row at ``pointer``."""
        sums, parts = len(shape.parts) * shape.vectors, len(shape.parts)
        for number in range(sums, sums + parts + shape.vectors):
            self._do(self.matrix.load, _tile(number), pointer, i64(0))

    def multiply_once(self, shape: Shape) -> None:
        """Multiply the operand tiles as they are, one instruction for each tile of sums."""
        parts = len(shape.parts)
        sums = parts * shape.vectors
        for number in range(sums):
            part, v = divmod(number, shape.vectors)
            operands = _tile(sums + part), _tile(sums + parts + v)
            self._do(self.dot.instruction, _tile(number), *operands)

    def load(self, shape: Shape, pointer: Value) -> None:
        """Load the sums that `store` wrote to ``pointer``."""
        self._move(self.matrix.load, shape, pointer)

    def store(self, shape: Shape, pointer: Value, after_tile: AfterTile | None = None) -> None:
        """Store the sums to ``pointer``, row by row."""
        self._move(self.matrix.store, shape, pointer, after_tile)

    def _move(
        self, name: str, shape: Shape, pointer: Value, after_tile: AfterTile | None = None
    ) -> None:
        width = shape.vectors * _SIZE
        row = 0
        for number, rows in enumerate(shape.parts):
            for v in range(shape.vectors):
                where = self.e.element(pointer, i64(row * width + v * _SIZE), I8)
                self._do(name, _tile(number * shape.vectors + v), where, i64(width))
                if after_tile is not None:
                    after_tile(number * shape.vectors + v)
            row += rows

    def accumulate(
        self,
        shape: Shape,
        factors: Factors,
        levels: Sequence[Level],
        after_tile: AfterTile | None = None,
    ) -> None:
        """Add the sum over all levels. The innermost one counts consecutive K groups, a multiple of
        the block."""
        e, (level, *inner) = self.e, levels
        step = 1 if inner else shape.block
        first = factors.moved(e, e.mul(level.begin, level.a_step), e.mul(level.begin, level.b_step))
        first = first.opaque(e)
        prefetch = None if inner else factors.prefetch
        further = () if prefetch is None else (e.opaque(prefetch.begin(e, first, level)),)

        def body(_: Value, a: Value, b: Value, *cursor: Value) -> Values:
            here = replace(factors, a=a, b=b)
            if inner:
                self.accumulate(shape, here, inner, after_tile)
            else:
                self._step(shape, here, level.b_step, after_tile)
            if prefetch is not None:
                cursor = (prefetch.issue(e, cursor[0], shape.block),)
            following = here.moved(e, e.number(step * level.a_step), e.number(step * level.b_step))
            return following.a, following.b, *cursor

        carried = (first.a, first.b, *further)
        e.loop(level.begin, level.end, body, carried, step=step, unroll=False, name="k")

    def _step(
        self, shape: Shape, factors: Factors, b_step: int, after_tile: AfterTile | None
    ) -> None:
        """Multiply one block of K groups."""
        (a_element, b_element), (a_size, b_size) = self.multiply.element, self._sizes
        sums = len(shape.parts) * shape.vectors
        columns = [_tile(sums + len(shape.parts) + v) for v in range(shape.vectors)]
        row = 0
        for number, rows in enumerate(shape.parts):
            first, second = factors.rows[row], factors.rows[row + min(1, rows - 1)]
            assert first is not None
            assert second is not None
            part = _tile(sums + number)
            start = self.e.element(factors.a, self.e.number(first), a_element)
            self._do(self.matrix.load, part, start, self.e.number((second - first) * a_size))
            for v, offset in enumerate(factors.vectors):
                if number == 0:
                    start = self.e.element(factors.b, i64(offset), b_element)
                    self._do(self.matrix.load, columns[v], start, self.e.number(b_step * b_size))
                self._do(self.dot.instruction, _tile(number * shape.vectors + v), part, columns[v])
                if after_tile is not None:
                    after_tile(number * shape.vectors + v)
            row += rows

    @property
    def _sizes(self) -> tuple[int, int]:
        return self.multiply.a.size, self.multiply.b.size


def _tile(number: int) -> ir.Constant:
    return ir.Constant(I8, number)
