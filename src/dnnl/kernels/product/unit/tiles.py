"""Register tiles of a product that a matrix unit computes (`dnnl.codegen.product.tiles`).

Sums lie in memory between the unit and the end of a tile, which takes some rows of them at a time,
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

LEAST_ROWS = 2
"""Fewer rows are as fast by vectors: what takes time is to read the weights."""

LEAST_K_GROUPS = 4
"""Fewer words side by side leave most of each instruction idle."""


def takes(dot: Multiply, rows: int, k_groups: int) -> bool:
    """Whether the unit is to multiply so many rows that meet a panel, in lines of so many words."""
    return dot.tiles is not None and rows >= LEAST_ROWS and k_groups >= LEAST_K_GROUPS


def whole_k_groups(isa: Isa, k_groups: int) -> int:
    """The words of a segment, which the unit has to take in whole blocks; 0 if it cannot."""
    assert isa.matrix is not None
    return 0 if k_groups % block_of(isa.matrix, k_groups) else k_groups


def panel_vectors(isa: Isa, columns: int) -> int:
    """How many vectors wide panels are for so many columns."""
    return 1 if columns <= isa.lanes else 2


def part_rows(isa: Isa) -> int:
    """How many rows one instruction of the unit multiplies."""
    assert isa.matrix is not None
    return isa.matrix.rows


def tile_rows(isa: Isa, vectors: int, width: int, pitch: int = 0) -> int:
    """How many rows a tile has of places in rows of ``width``: whole ones, whose parts are apart,
    or a part of one. Where rows begin ``pitch`` places apart, and what lies between is computed as
    well, there may be more of them."""
    assert isa.matrix is not None
    parts, most = max_parts(isa.matrix, vectors), isa.matrix.rows
    apart = parts // -(-width // most) * width or parts * most
    if pitch < width or width > parts * most:
        return apart
    return max(apart, ((parts * most - width) // pitch + 1) * width)


@dataclass(frozen=True)
class Line:
    """The words that are side by side: ``blocked`` of them, the unit takes ``block`` at a time,
    and the rest by vectors."""

    k_groups: int
    block: int

    @staticmethod
    def of(matrix: Matrix, k_groups: int) -> Line:
        """How a line of so many words is cut."""
        return Line(k_groups, block_of(matrix, k_groups))

    @property
    def blocked(self) -> int:
        """The words in whole blocks."""
        return self.k_groups // self.block * self.block

    def whole(self, levels: Sequence[Level]) -> list[Level]:
        """The levels without the rest of the innermost one, where that is whole."""
        *outer, inner = levels
        if inner.count != self.k_groups:
            return list(levels)
        return [*outer, replace(inner, end=i64(self.blocked))]

    def rest(self, levels: Sequence[Level]) -> list[Level]:
        """The levels with nothing but the rest of the innermost one; none if there is none."""
        *outer, inner = levels
        return (
            [*outer, replace(inner, begin=i64(self.blocked))] if self.k_groups % self.block else []
        )


@dataclass(frozen=True)
class Part:
    """What of its sums a tile computes now: over ``levels``, without what is left of a line. It
    begins with those at ``buffer``, unless it is the ``first`` part, and ends a tile if it is the
    ``last``; None stands for certainly."""

    levels: Sequence[Level]
    buffer: Value
    first: Value | None = None
    last: Value | None = None


class UnitTile:
    """Writes the tiles of a product, each of which is a sum over ``levels``, for rows at offsets in
    A of which ``tilings`` has all combinations."""

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
        assert self.levels[-1].a_step == multiply.group, "words of a line are side by side"
        self.line = Line.of(self._matrix, self.levels[-1].count or 0)
        self._rows = max(map(len, tilings))
        parts = (parts_of(self._matrix, vectors, rows) for rows in tilings)
        self._through = None in parts
        self._shapes = list(dict.fromkeys(self.shape(rows) for rows in tilings))
        self._current = Variable(e) if len(self._shapes) > 1 else None

    @property
    def sum_rows(self) -> int:
        """How many rows of sums the largest tile has."""
        return max(shape.rows for shape in self._shapes)

    def computed(self, rows: Sequence[int]) -> Sequence[int]:
        """The rows that are computed for those at these offsets in A: where some tile has more
        parts than fit, all have what lies between their parts as well."""
        return through(rows) if self._through else rows

    def line_of(self, width: int, rows: Sequence[int]) -> tuple[int, int]:
        """So many places in a line, and how many rows of sums there are up to the next one."""
        if not self._through:
            return width, width
        return width, list(self.computed(rows)).index(rows[width])

    def shape(self, rows: Sequence[int]) -> Shape:
        """The tiles for rows at these offsets in A."""
        parts = parts_of(self._matrix, self._vectors, self.computed(rows))
        assert parts is not None, "tiles have as many rows as the unit takes"
        return Shape(parts, self._vectors, self.line.block)

    @contextmanager
    def configured(self) -> Iterator[None]:
        """What is written inside finds the unit as it needs it if all tiles are alike, and leaves
        it to others as it was."""
        if self._current is None:
            self._unit.configure(*self._shapes)
        yield
        self._unit.release()

    def switch_to(self, rows: Sequence[int]) -> None:
        """What follows computes a tile of rows at these offsets."""
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
        """Whether a tile may wait for its end until the next one is computed: it needs nothing else
        for that than its sums, a few rows at a time."""
        return store.transposed is None and not self.line.rest(self.levels)

    def compute_deferred(self, factors: Factors, deferred: DeferredEpilogue) -> None:
        """The sums of a tile, and the end of the one before."""
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
        """One part of the sums of a tile, and its end behind the last one."""
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
        """One part of the sums of a tile in segments, over which the outermost level goes: ``ends``
        say what each adds to the ``total`` in f32, and ``end`` what becomes of that."""
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
        """Store what becomes of the sums, some rows at a time."""
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

        self._by_rows(rows, step, some, written=bool(rest) or end.banded)

    def _by_rows(
        self,
        rows: Sequence[int],
        step: int,
        some: Callable[[Value, Sequence[int]], None],
        *,
        written: bool = False,
    ) -> None:
        """``some(first, rows)`` for so many rows at a time: in a loop, or ``written`` out."""
        whole = len(rows) // step * step
        if written:
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
        """The sums of the columns of B, where a row of ones asks for them."""
        if None not in factors.rows:
            return ()
        zero = Tile.of(self.multiply.zero(self.e), 1, self._vectors)
        row = factors.of_rows([factors.rows.index(None)])
        return accumulate(self.e, zero, row, self.levels).cells


def _known(rows: Sequence[int | None]) -> list[int]:
    """The rows that have an offset."""
    return [offset for offset in rows if offset is not None]
