"""Register tiles of a product that a matrix unit computes (`dnnl.codegen.product.tiles`).

Sums go through memory between the unit and the epilogue, which takes some rows of them at a time,
adds what the unit has left to vectors, and stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Emitter, Value, Values, i64
from dnnl.codegen.ir.variable import Variable
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.row import Matrix
from dnnl.codegen.product.brgemm import Factors, Level, Tile, accumulate
from dnnl.codegen.product.multiply import Multiply
from dnnl.codegen.product.tiles import (
    AfterTile,
    Shape,
    Tiles,
    block_of,
    max_parts,
    parts_of,
    through,
)
from dnnl.kernels.product.base.store import End, Store
from dnnl.kernels.product.unit.deferred_epilogue import (
    DeferredEpilogue,
    EpilogueSchedule,
    load_rows,
)
from dnnl.types.size import is_known

LEAST_ROWS = 2
"""With fewer rows vectors are as fast: reading the weights dominates."""

LEAST_K_GROUPS = 4
"""With fewer contiguous K groups most of each instruction is idle."""


def takes(dot: Multiply, rows: int, k_groups: int) -> bool:
    """Whether the unit multiplies: M is ``rows``, and ``k_groups`` K groups, whose number must be
    known, are contiguous in src."""
    if dot.tiles is None or not is_known(k_groups):
        return False
    return rows >= LEAST_ROWS and k_groups >= LEAST_K_GROUPS


def whole_k_groups(isa: Isa, k_groups: int) -> int:
    """The K groups of a segment if the unit can take them in whole blocks, else 0."""
    assert isa.matrix is not None
    return 0 if k_groups % block_of(isa.matrix, k_groups) else k_groups


def panel_vectors(isa: Isa, columns: int) -> int:
    """The width of panels in vectors."""
    return 1 if columns <= isa.lanes else 2


def part_rows(isa: Isa) -> int:
    """How many rows one instruction of the unit multiplies."""
    assert isa.matrix is not None
    return isa.matrix.rows


def tile_rows(isa: Isa, vectors: int, width: int, pitch: int = 0) -> int:
    """The rows of a tile whose places are in lines of ``width``: whole lines as separate parts, or
    a part of one line, as where only executions know the width. If lines begin ``pitch`` places
    apart, a tile may compute the places in between as well, and have more lines."""
    assert isa.matrix is not None
    parts, most = max_parts(isa.matrix, vectors), isa.matrix.rows
    if not is_known(width):
        return parts * most
    apart = parts // -(-width // most) * width or parts * most
    if pitch < width or width > parts * most:
        return apart
    return max(apart, ((parts * most - width) // pitch + 1) * width)


@dataclass(frozen=True)
class Line:
    """Contiguous K groups: the unit takes ``block`` of them at a time (``blocked`` in total),
    vectors the rest."""

    k_groups: int
    block: int

    @staticmethod
    def of(matrix: Matrix, k_groups: int) -> Line:
        """How a line of ``k_groups`` is blocked."""
        return Line(k_groups, block_of(matrix, k_groups))

    @property
    def blocked(self) -> int:
        """The K groups in whole blocks."""
        return self.k_groups // self.block * self.block

    def whole(self, levels: Sequence[Level]) -> list[Level]:
        """The levels restricted to whole blocks of the innermost one, if that is a whole line."""
        *outer, inner = levels
        if inner.count != self.k_groups:
            return list(levels)
        return [*outer, replace(inner, end=i64(self.blocked))]

    def rest(self, levels: Sequence[Level]) -> list[Level]:
        """The levels restricted to the rest of the innermost one; empty if there is none."""
        *outer, inner = levels
        return (
            [*outer, replace(inner, begin=i64(self.blocked))] if self.k_groups % self.block else []
        )


@dataclass(frozen=True)
class Part:
    """A K block of the sums of a tile: the ``levels`` that it computes, without the rest of a line.
    Sums are loaded from ``buffer`` unless it is the ``first`` block; the epilogue follows if it is
    the ``last``. None stands for true."""

    levels: Sequence[Level]
    buffer: Value
    first: Value | None = None
    last: Value | None = None


class UnitTile:
    """Writes the tiles of a product, each of which is a sum over ``levels``. ``tilings`` are all
    combinations of row offsets in A."""

    def __init__(
        self,
        e: Emitter,
        multiply: Multiply,
        levels: Sequence[Level],
        vectors: int,
        tilings: Sequence[Sequence[int]],
    ) -> None:
        assert e.isa.matrix is not None
        self.e, self.multiply, self.levels = e, multiply, list(levels)
        self._unit, self._matrix, self._vectors = Tiles(e, multiply), e.isa.matrix, vectors
        assert self.levels[-1].a_step == multiply.group, "K groups of a line are contiguous"
        self.line = Line.of(self._matrix, self.levels[-1].count or 0)
        self._rows = max(map(len, tilings))
        parts = (parts_of(self._matrix, vectors, rows) for rows in tilings)
        self._through = None in parts
        self._shapes = list(dict.fromkeys(self.shape(rows) for rows in tilings))
        self._current = Variable(e) if len(self._shapes) > 1 else None

    @property
    def sum_rows(self) -> int:
        """The rows of sums of the largest tile."""
        return max(shape.rows for shape in self._shapes)

    def computed(self, rows: Sequence[int]) -> Sequence[int]:
        """The row offsets that are computed for those of ``rows``. If some tile has more parts than
        fit, tiles compute the places between their lines as well."""
        return through(rows) if self._through else rows

    def line_of(self, width: int, rows: Sequence[int]) -> tuple[int, int]:
        """The places of a line, and the rows of sums from one line to the next."""
        if not self._through:
            return width, width
        return width, list(self.computed(rows)).index(rows[width])

    def shape(self, rows: Sequence[int]) -> Shape:
        """The unit's tiles for rows at these offsets in A."""
        parts = parts_of(self._matrix, self._vectors, self.computed(rows))
        assert parts is not None, "tiles have as many rows as the unit takes"
        return Shape(parts, self._vectors, self.line.block)

    @contextmanager
    def configured(self) -> Iterator[None]:
        """A context in which the unit is configured if all tiles have the same shape; it is
        released at the end."""
        if self._current is None:
            self._unit.configure(*self._shapes)
        yield
        self._unit.release()

    def switch_to(self, rows: Sequence[int]) -> None:
        """Configure the unit for a tile of rows at these offsets, if its shape differs from the
        current one."""
        current, shape = self._current, self.shape(rows)
        if current is None:
            return
        wanted = i64(1 + self._shapes.index(shape))

        def switch() -> Values:
            self._unit.configure(shape)
            current.set(wanted)
            return ()

        self.e.branch(self.e.b.icmp_signed("!=", current.value, wanted), switch, lambda: ())

    def can_defer(self, store: Store) -> bool:
        """Whether the epilogue of a tile can be deferred: it needs only sums, a few rows at a
        time."""
        return store.transposed is None and not self.line.rest(self.levels)

    def compute_deferred(self, factors: Factors, deferred: DeferredEpilogue) -> None:
        """Compute the sums of a tile, interleaved with the deferred epilogue of the one before."""
        rows, levels = _known(factors.rows), self.line.whole(self.levels)
        shape, blocks = self.shape(rows), replace(factors, rows=tuple(self.computed(rows)))
        dots = len(shape.parts) * shape.vectors
        steps = prod(level.count or 1 for level in levels) // shape.block
        schedule = EpilogueSchedule.of(self._rows, dots, steps)

        def interleaved(wanted: int) -> AfterTile:
            chosen = {turn * dots // wanted for turn in range(wanted)}
            return lambda number: deferred.finish_some(schedule.count) if number in chosen else None

        buffer = deferred.buffer
        self._unit.begin(shape)
        self._unit.accumulate(shape, blocks, levels, interleaved(schedule.per_step))
        self._unit.store(shape, buffer, interleaved(schedule.per_end))
        deferred.finish_rest()

    def compute(self, factors: Factors, part: Part, end: End) -> None:
        """Compute one K block of a tile, and the epilogue behind the last one."""
        rows = _known(factors.rows)
        shape, blocks = self.shape(rows), replace(factors, rows=tuple(self.computed(rows)))
        self._begin(shape, part)
        self._unit.accumulate(shape, blocks, part.levels)
        self._unit.store(shape, part.buffer)

        def finish() -> Values:
            self._finish(factors, part.buffer, end)
            return ()

        if part.last is None:
            finish()
        else:
            self.e.branch(part.last, finish, lambda: ())

    def compute_segments(
        self, factors: Factors, part: Part, ends: Callable[[Value], End], total: Value, end: End
    ) -> None:
        """Compute one K block of a tile in segments, over which the outermost level goes. ``ends``
        gives the epilogue of a segment, which adds to the ``total`` in f32; ``end`` is that of the
        tile."""
        e, rows, kind = self.e, len(_known(factors.rows)), vector.vector_type(F32, self.e.isa.lanes)
        shape, (level, *inner) = self.shape(_known(factors.rows)), part.levels

        def at(first: Value) -> Value:
            return e.element(total, e.mul(first, self._vectors * kind.count), F32)

        def totals(first: Value, count: int) -> Tile:
            return Tile.load(e, at(first), kind, count, self._vectors)

        def zero() -> Values:
            Tile.of(vector.splat_constant(kind, 0.0), rows, self._vectors).store(e, total)
            return ()

        def add(number: Value) -> None:
            here = factors.moved(e, e.mul(number, level.a_step), e.mul(number, level.b_step))
            self._unit.begin(shape)
            self._unit.accumulate(shape, here, inner)
            self._unit.store(shape, part.buffer)
            own = ends(number)

            def some(first: Value, chosen: Sequence[int]) -> None:
                offset = e.mul(first, self._vectors * kind.count)
                start = e.element(part.buffer, offset, self.multiply.accumulator)
                sums = Tile.load(e, start, self.multiply.zero(e).type, len(chosen), self._vectors)
                added = own.part(first, len(chosen)).segment(sums)
                pairs = zip(totals(first, len(chosen)).cells, added.cells, strict=True)
                Tile(self._vectors, tuple(e.b.fadd(*pair) for pair in pairs)).store(e, at(first))

            self._by_rows(range(rows), e.isa.lanes // 2, some)

        def finish() -> Values:
            step = e.isa.lanes if end.transposed else e.isa.lanes // 2
            self._by_rows(
                range(rows),
                step,
                lambda first, chosen: end.part(first, len(chosen)).finish(
                    totals(first, len(chosen))
                ),
            )
            return ()

        if part.first is None:
            zero()
        else:
            e.branch(part.first, zero, lambda: ())
        e.loop(level.begin, level.end, add, unroll=False, name="segment")
        if part.last is None:
            finish()
        else:
            e.branch(part.last, finish, lambda: ())

    def _begin(self, shape: Shape, part: Part) -> None:
        if part.first is None:
            self._unit.begin(shape)
            return

        def zero() -> Values:
            self._unit.begin(shape)
            return ()

        def load() -> Values:
            self._unit.load(shape, part.buffer)
            return ()

        self.e.branch(part.first, zero, load)

    def _finish(self, factors: Factors, buffer: Value, end: End) -> None:
        """Run the epilogue, some rows at a time."""
        e, zero, vectors = self.e, self.multiply.zero(self.e), self._vectors
        rows = [number for number, offset in enumerate(factors.rows) if offset is not None]
        rest, ones = self.line.rest(self.levels), self._ones(factors)
        step = e.isa.lanes if end.transposed and not rest else e.isa.lanes // 2

        computed = list(self.computed(_known(factors.rows)))

        def some(first: Value, chosen: Sequence[int]) -> None:
            if self._through:
                places = (computed.index(factors.rows[number] or 0) for number in chosen)
                sums = load_rows(e, self.multiply, buffer, [i64(at) for at in places], vectors)
            else:
                offset = e.mul(first, vectors * zero.type.count)
                start = e.element(buffer, offset, self.multiply.accumulator)
                sums = Tile.load(e, start, zero.type, len(chosen), vectors)
            if rest:
                sums = accumulate(e, sums, factors.of_rows(chosen), rest)
            end.part(first, len(chosen)).finish(Tile(vectors, sums.cells + ones))

        self._by_rows(rows, step, some, unrolled=bool(rest) or end.banded)

    def _by_rows(
        self,
        rows: Sequence[int],
        step: int,
        some: Callable[[Value, Sequence[int]], None],
        *,
        unrolled: bool = False,
    ) -> None:
        """Call ``some(first, rows)`` for ``step`` rows at a time: in a loop, or unrolled if
        ``written``."""
        whole = len(rows) // step * step
        if unrolled:
            for first in range(0, whole, step):
                some(i64(first), rows[first : first + step])
        else:
            self.e.loop(
                i64(0),
                i64(whole),
                lambda first: some(first, rows[:step]),
                step=step,
                unroll=False,
                name="rows",
            )
        if whole < len(rows):
            some(i64(whole), rows[whole:])

    def _ones(self, factors: Factors) -> Values:
        """The column sums of B, if there is a row of ones."""
        if None not in factors.rows:
            return ()
        zero = Tile.of(self.multiply.zero(self.e), 1, self._vectors)
        row = factors.of_rows([factors.rows.index(None)])
        return accumulate(self.e, zero, row, self.levels).cells


def _known(rows: Sequence[int | None]) -> list[int]:
    """The rows with an offset: all but the row of ones."""
    return [offset for offset in rows if offset is not None]
