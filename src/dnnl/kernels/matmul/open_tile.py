"""A register tile of a product whose sizes only the execution knows: its products and its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dnnl.codegen.epilogue.finish import Finish
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Type, Value, Values, i64
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.place import Place
from dnnl.codegen.open_nest.place import Lanes, advanced
from dnnl.codegen.product.brgemm import Factors, Level, Tile, accumulate
from dnnl.kernels.matmul.open import (
    LaunchParameter,
    OpenMatmulConf,
    reads_in_place,
    varies_along_columns,
)
from dnnl.kernels.matmul.open_blocks import ThreadScratch


@dataclass(frozen=True)
class Steps:
    """Where a tensor begins and its steps along the two axes of a matrix and along the batch."""

    base: Value
    first: Value
    second: Value
    batch: Values


@dataclass(frozen=True)
class Stretch:
    """The part of the k that a block multiplies: its number, its first word, and how many words
    and k there are."""

    number: Value
    k_group: Value
    k_groups: Value
    depth: Value


def _heights(most: int) -> list[int]:
    """The numbers of rows for which there is code; those between are rounded up."""
    return sorted({1, most, *range(2, most, 2)})


class Tiles:
    """Writes tiles: their sums are in memory between their parts, and there the code for their ends
    finds them, whatever their heights are.

    ``pointers`` are the addresses of the tensors at the ends, ``steps`` say how they lie. Weights
    that are multiplied where they lie go on ``along`` elements further for each k.
    """

    def __init__(
        self,
        e: Emitter,
        conf: OpenMatmulConf,
        scratch: ThreadScratch,
        finish: Finish,
        pointers: Mapping[Operand, Value],
        head: Mapping[LaunchParameter, Value],
        steps: Sequence[Steps],
        along: Value,
    ) -> None:
        self.e, self._conf, self._scratch, self._finish = e, conf, scratch, finish
        self._pointers, self._head, self._places, self._along = pointers, head, steps, along
        self._ends = finish.operands
        self._lanes = Lanes(e, self._ends, e.isa.lanes)
        self._varying = frozenset(
            operand for operand in self._ends if varies_along_columns(operand)
        )
        self._reads_in_place = e.b.icmp_signed("!=", head[LaunchParameter.WEIGHTS_IN_PLACE], i64(0))

    def multiply(
        self, pointers: tuple[Value, Value], buffer: Value, height: Value, stretch: Stretch
    ) -> None:
        """Add the products of a part to the sums of a tile."""
        e, own, dot = self.e, self._scratch, self._conf.multiply

        def panels() -> Values:
            columns = [own.lanes * dot.group * v for v in range(own.tile.vectors)]
            factors = Factors(*pointers, (), tuple(columns), dot)
            step = own.width * dot.group
            self._by_height(
                height,
                lambda rows: self._products(factors, step, buffer, rows, stretch),
                _heights(own.tile.rows),
            )
            return ()

        if not reads_in_place(self._conf):
            panels()
            return

        def rows_of_weights() -> Values:
            along = self._along
            columns = [own.lanes * v for v in range(own.wide.vectors)]
            k_stride = along if dot.group > 1 else 0
            factors = Factors(*pointers, (), tuple(columns), dot, k_stride)
            step = e.mul(along, dot.group)
            self._by_height(
                height,
                lambda rows: self._products(factors, step, buffer, rows, stretch),
                _heights(own.wide.rows),
            )
            return ()

        e.branch(self._reads_in_place, rows_of_weights, panels)

    def _by_height(self, height: Value, run: Callable[[int], None], heights: Sequence[int]) -> None:
        """Run the code for the least of some heights that a tile has room in: full tiles are found
        first."""

        def one(rows: int) -> Values:
            run(rows)
            return ()

        def choose(left: Sequence[int]) -> Values:
            if len(left) == 1:
                return one(left[0])
            middle = len(left) // 2
            below = self.e.b.icmp_signed("<=", height, i64(left[middle - 1]))
            return self.e.branch(
                below, lambda: choose(left[:middle]), lambda: choose(left[middle:])
            )

        *others, full = heights
        if not others:
            one(full)
            return
        is_full = self.e.b.icmp_signed(">", height, i64(others[-1]))
        self.e.branch(is_full, lambda: one(full), lambda: choose(others))

    def _products(
        self, factors: Factors, step: int | Value, buffer: Value, rows: int, stretch: Stretch
    ) -> None:
        """Add the products of a part to the sums of a tile of so many ``rows``, where weights go
        on ``step`` elements further for each word."""
        e, own, dot = self.e, self._scratch, self._conf.multiply
        offsets: list[int | None] = [n * own.pitch * dot.group for n in range(rows)]
        if self._finish.needs_column_sums:  # before the rows, of which there may be too many
            offsets.insert(0, None)
        zero = Tile.of(dot.zero(e), len(offsets), len(factors.vectors))
        kind = zero.cells[0].type
        first = e.b.icmp_signed("==", stretch.number, i64(0))
        cells = e.branch(
            first,
            lambda: zero.cells,
            lambda: Tile.load(e, buffer, kind, zero.rows, zero.vectors).cells,
        )
        level = Level(i64(0), stretch.k_groups, dot.group, step)
        factors = replace(factors, rows=tuple(offsets))
        accumulate(e, Tile(zero.vectors, cells), factors, [level]).store(e, buffer)

    def end(self, buffer: Value, height: Value, places: Values, columns: Value) -> None:
        """Finish the sums of a tile of which so many ``columns`` exist, row by row."""
        e, lanes, size = self.e, self._scratch.lanes, self._head[LaunchParameter.TILE_COLUMNS]
        accumulator = self._conf.multiply.accumulator
        first = size if self._finish.needs_column_sums else i64(0)
        along = [steps.second for steps in self._places]

        def each_row(finish: Callable[[Value, Values], None]) -> Values:
            def row(number: Value, *at: Value) -> Values:
                finish(e.element(buffer, e.add(e.b.mul(number, size), first), accumulator), at)
                return tuple(map(e.b.add, at, (steps.first for steps in self._places)))

            e.loop(i64(0), height, row, places, unroll=False, name="row")
            return ()

        count = e.smaller(columns, size)

        def pieces(lanes: int, *, masked: bool) -> Values:
            def row(cells: Value, at: Values) -> None:
                def one(number: Value) -> None:
                    ones, cell = (e.element(row, number, accumulator) for row in (buffer, cells))
                    left = e.b.sub(columns, number) if masked else None
                    self._vector((cell, ones), advanced(e, at, number, along), lanes, left)

                e.loop(i64(0), count, one, step=lanes, unroll=False, name="column")

            return each_row(row)

        whole = e.b.icmp_signed(">=", columns, size)
        vectors = e.b.icmp_signed("!=", self._head[LaunchParameter.VECTORS], i64(0))
        e.branch(
            vectors,
            lambda: e.branch(
                whole, lambda: pieces(lanes, masked=False), lambda: pieces(lanes, masked=True)
            ),
            lambda: pieces(1, masked=False),
        )

    def _vector(
        self,
        cells: tuple[Value, Value],
        places: Values,
        lanes: int,
        left: Value | None,
    ) -> None:
        """Finish a vector of a row, which lies beside those of a row of ones; only so many columns
        exist as are ``left``, if that is given."""
        e = self.e
        kind = vector.vector_type(self._conf.multiply.accumulator, lanes)

        def place_of(_: Value, core: Type) -> Place:
            accesses, env, exists = self._lanes.at(places, lanes, self._varying, left)
            return Place(
                e,
                self._pointers,
                accesses,
                env,
                self._lanes.lane,
                lanes,
                masked=left is not None,
                exists=exists,
                core=core,
            )

        read = cells if self._finish.needs_column_sums else cells[:1]
        tile = Tile(1, tuple(vector.load(e, cell, kind) for cell in read))
        self._finish.store(self._finish.complete(tile, place_of), place_of)
