"""Products on a matrix unit: up to 32 rows by the gates of a block of units.

The unit's tiles have 16 rows. Two of operands are multiplied by the weights of two gates, so that
each tile that is loaded serves two products::

                        gate 0   gate 1
                       +--------+--------+
                       |   B0   |   B1   |    a K block of weights: 16 K groups
                       +--------+--------+
    rows  0 .. 15  A0  | sum 00 | sum 01 |
    rows 16 .. 31  A1  | sum 10 | sum 11 |
                       +--------+--------+

Sums go to scratch memory, from where cells take them. Rows behind the last one are computed from
whatever the memory holds, and nobody reads their sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Value, Values, i64
from dnnl.codegen.product.brgemm import Factors, Level
from dnnl.codegen.product.multiply import Multiply
from dnnl.codegen.product.tiles import Shape, Tiles
from dnnl.kernels.rnn.problem import TILE_ROWS
from dnnl.kernels.rnn.product import Factor
from dnnl.types.size import is_known

_GATES_ALONE = 3
"""Gates that tiles suffice for beside one tile of operands."""
_LANES = 16


class UnitProduct:
    """Multiplies ``rows`` rows, in chunks, by the weights of so many ``gates``."""

    def __init__(self, e: Emitter, multiply: Multiply, gates: int, rows: int) -> None:
        self._e, self._multiply, self._tiles = e, multiply, Tiles(e, multiply)
        few = is_known(rows) and rows <= TILE_ROWS
        self._parts = 1 if few else 2
        self._rows = rows if few else TILE_ROWS
        most = _GATES_ALONE if few and gates == _GATES_ALONE else 2
        self._passes = [range(at, min(at + most, gates)) for at in range(0, gates, most)]
        assert e.isa.matrix is not None
        self._groups = e.isa.matrix.row_bytes // 4
        self.scratch = gates * self.chunk * 4 * _LANES

    @property
    def chunk(self) -> int:
        """The rows that are multiplied at once."""
        return self._parts * TILE_ROWS

    def configure(self) -> None:
        """Set the shapes of the tiles: all of them are whole, unless the rows are few."""
        self._tiles.configure(self._shape(self._parts, max(map(len, self._passes))))

    def release(self) -> None:
        """Return the unit to its initial state."""
        self._tiles.release()

    def compute(
        self, source: Value, pitch: int, factor: Factor, k_blocks: int, rows: Value, buffer: Value
    ) -> None:
        """Store the sums of a chunk to ``buffer``; its rows begin at ``source`` and are ``pitch``
        elements apart, and ``rows`` of them are there."""
        e = self._e

        def of(parts: int) -> Values:
            for gates in self._passes:
                self._pass(source, pitch, factor, k_blocks, parts, gates, buffer)
            return ()

        if self._parts == 1:
            of(1)
        else:
            e.branch(
                e.b.icmp_signed(">", rows, i64(TILE_ROWS)), lambda: of(self._parts), lambda: of(1)
            )

    def clear(self, buffer: Value) -> None:
        """Store zeros instead of the sums of a chunk."""
        e, kind = self._e, self._multiply.zero(self._e).type
        zero = vector.splat_constant(kind, 0)
        e.loop(
            i64(0), i64(self.scratch // 4),
            lambda at: vector.store(e, zero, e.element(buffer, at, kind.element)),
            step=_LANES, unroll=False, name="clear",
        )  # fmt: skip

    def sums(self, buffer: Value, row: Value) -> list[Value]:
        """The sums of a row of the chunk, for each gate."""
        e, kind = self._e, self._multiply.zero(self._e).type
        found = []
        for gates in self._passes:
            first = e.add(e.mul(row, len(gates) * _LANES), self._place(gates))
            starts = [e.element(buffer, e.add(first, i64(n * _LANES)), kind.element)
                      for n in range(len(gates))]  # fmt: skip
            found += [vector.load(e, start, kind) for start in starts]
        return found

    def _pass(
        self,
        source: Value,
        pitch: int,
        factor: Factor,
        k_blocks: int,
        parts: int,
        gates: Sequence[int],
        buffer: Value,
    ) -> None:
        """The sums of some gates."""
        e, group = self._e, self._multiply.group
        shape = self._shape(parts, len(gates))
        factors = Factors(
            source, factor.pointer, tuple(row * pitch for row in range(shape.rows)),
            tuple(factor.gates[gate] for gate in gates), self._multiply,
        )  # fmt: skip
        levels = [
            Level.over(k_blocks, self._groups * group, factor.per_block),
            Level.over(self._groups, group, _LANES * group),
        ]
        self._tiles.begin(shape)
        self._tiles.accumulate(shape, factors, levels)
        start = e.element(buffer, self._place(gates), self._multiply.accumulator)
        self._tiles.store(shape, start)

    def _shape(self, parts: int, gates: int) -> Shape:
        return Shape((self._rows,) * parts, gates, self._groups)

    def _place(self, gates: Sequence[int]) -> Value:
        """Where the sums of some gates begin, in elements."""
        return i64(gates[0] * self.chunk * _LANES)
