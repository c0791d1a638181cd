"""Software pipelining for a matrix unit: the epilogue of a tile runs while the unit multiplies the
next one.

If sums are short, the epilogue takes as long as the products. The unit leaves the vector units
idle, but the out-of-order window of a processor is too small to overlap the two. So the sums of a
tile are stored in memory, and some rows of them are finished behind each instruction of the next
tile::

    unit      A0 B0 dot | B1 dot | A1 dot | dot ...   store sums to the other buffer
    vectors       rows 0, 1 | rows 2, 3 | ...         rest of the rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Value, Values, i64
from dnnl.codegen.ir.variable import Variable
from dnnl.codegen.memory.access import Env
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.product.brgemm import Tile
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.store import End

_LEAST, _MOST = 2, 4
"""The limits on rows that are finished at a time: the check for remaining rows has a cost, and many
rows delay the next step."""


@dataclass(frozen=True)
class EpilogueSchedule:
    """How the rows of a tile are interleaved with the instructions of the next one: ``count`` rows
    behind ``per_step`` products of each step, and behind ``per_end`` of the stores of its sums."""

    count: int
    per_step: int
    per_end: int

    @staticmethod
    def of(rows: int, dots: int, steps: int) -> EpilogueSchedule:
        """Schedule ``rows`` among ``steps`` steps of ``dots`` products each."""
        one_a_step = min(_MOST, -(-rows // steps))
        count = max(_LEAST, one_a_step, -(-rows // (dots * (steps + 1))))
        parts = -(-rows // count)
        per_step = min(dots, -(-parts // (steps + 1)))
        return EpilogueSchedule(count, per_step, max(0, min(dots, parts - per_step * steps)))


class DeferredEpilogue:
    """A tile whose epilogue is deferred.

    ``end_at`` is the epilogue at a point of ``axes``. ``buffers`` holds the sums of two tiles of
    ``rows`` x ``vectors``. ``line`` is the number of places in a line, and the number of rows of
    sums from one line to the next.
    """

    def __init__(
        self,
        e: Emitter,
        multiply: Multiply,
        rows: int,
        vectors: int,
        buffers: Value,
        axes: Iterable[Axis],
        end_at: Callable[[Env], End],
        line: tuple[int, int],
    ) -> None:
        self.e, self._multiply, self._vectors = e, multiply, vectors
        self._buffers, self._end_at, self._line = buffers, end_at, line
        self._size = rows * vectors * multiply.zero(e).type.count
        self._row, self._rows, self._offset = Variable(e), Variable(e), Variable(e)
        self._env = {axis: Variable(e) for axis in axes}

    @property
    def buffer(self) -> Value:
        """The buffer for the sums of the next tile."""
        other = self.e.b.sub(i64(self._size), self._offset.value)
        return self.e.element(self._buffers, other, self._multiply.accumulator)

    def begin(self, env: Env, rows: int) -> None:
        """Defer the epilogue of the sums of ``rows`` rows in ``buffer``."""
        self._offset.set(self.e.b.sub(i64(self._size), self._offset.value))
        self._row.set(i64(0))
        self._rows.set(i64(rows))
        for axis, variable in self._env.items():
            variable.set(env[axis])

    def finish_some(self, count: int) -> None:
        """Finish ``count`` rows, if as many are left."""
        first = self._row.value
        following = self.e.add(first, i64(count))

        def finish() -> Values:
            self._finish(first, count)
            self._row.set(following)
            return ()

        left = self.e.b.icmp_signed("<=", following, self._rows.value)
        self.e.branch(left, finish, lambda: ())

    def finish_rest(self) -> None:
        """Finish all rows that are left."""
        end = self._rows.value
        self.e.loop(
            self._row.value, end, lambda row: self._finish(row, 1), unroll=False, name="rest"
        )
        self._row.set(end)

    def _finish(self, first: Value, count: int) -> None:
        e = self.e
        buffer = e.element(self._buffers, self._offset.value, self._multiply.accumulator)
        rows = [self._row_of(e.add(first, i64(number))) for number in range(count)]
        sums = load_rows(e, self._multiply, buffer, rows, self._vectors)
        env = {axis: variable.value for axis, variable in self._env.items()}
        self._end_at(env).part(first, count).finish(sums)

    def _row_of(self, place: Value) -> Value:
        """The row of sums of a place."""
        width, pitch = self._line
        if width == pitch:
            return place
        line = self.e.b.udiv(place, i64(width))
        return self.e.add(place, self.e.mul(line, pitch - width))


def load_rows(
    e: Emitter, multiply: Multiply, buffer: Value, rows: Iterable[Value], vectors: int
) -> Tile:
    """These rows of the sums in ``buffer``."""
    kind = multiply.zero(e).type
    cells: list[Value] = []
    for row in rows:
        start = e.element(buffer, e.mul(row, vectors * kind.count), multiply.accumulator)
        cells += Tile.load(e, start, kind, 1, vectors).cells
    return Tile(vectors, tuple(cells))


def tile_bytes(multiply: Multiply, e: Emitter, rows: int, vectors: int) -> int:
    """The bytes of the sums of a tile."""
    sums = multiply.zero(e).type
    return prod((rows, vectors, sums.count, vector.bits(sums) // 8))
