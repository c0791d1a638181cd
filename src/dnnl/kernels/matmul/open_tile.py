"""A register tile of a matrix product with run-time sizes: its products and its epilogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dnnl.codegen.epilogue.product_epilogue import ProductEpilogue
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
    """The offset of a tensor, and its strides along the axes of a matrix and along the batch."""

    base: Value
    first: Value
    second: Value
    batch: Values


@dataclass(frozen=True)
class Stretch:
    """A K block: its number, its first K group, and how many K groups and k it has."""

    number: Value
    k_group: Value
    k_groups: Value
    depth: Value


def _heights(most: int) -> list[int]:
    """The heights for which there is code; those in between are rounded up."""
    return sorted({1, most, *range(2, most, 2)})


class Tiles:
    """Writes tiles. Sums are stored in memory between K blocks, where one epilogue for all heights
    reads them.

    ``pointers`` are the addresses of the operands of the epilogue, ``steps`` their strides. Weights
    that are read in place have the k stride ``along``, in elements.
    """

    def __init__(
        self,
        e: Emitter,
        conf: OpenMatmulConf,
        scratch: ThreadScratch,
        finish: ProductEpilogue,
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
        """Add the products of a K block to the sums of a tile."""
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

        if not reads_in_place(self._conf, e.isa):
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
        """Run the code of the least height that fits a tile; full tiles are checked first."""

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
        """Add the products of a K block to the sums of a tile of ``rows`` rows; ``step`` is the K
        group stride of weights in elements."""
        e, own, dot = self.e, self._scratch, self._conf.multiply
        offsets: list[int | None] = [n * own.pitch * dot.group for n in range(rows)]
        if self._finish.needs_column_sums:  # rows are rounded up, so ones come first
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
        """Run the epilogue of a tile of ``columns`` columns, row by row."""
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
        """Run the epilogue for a vector of a row, whose column sums are those of the row of ones.
        Only ``left`` columns exist, if that is given."""
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
