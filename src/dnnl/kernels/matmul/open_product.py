"""The compute phase of a matrix product with run-time sizes.

A work item is a block of dst. For each K block it packs src, and weights that are not in panels,
into scratch memory of its thread; a register tile then meets all panels of the block::

    unit  ->  part of k  ->  pack  ->  tile of rows  ->  panel  ->  products  ->  epilogue

There is code for tiles of several heights. Sums go through memory: partial sums stay there between
K blocks, and one epilogue for all heights reads them row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.epilogue.product_epilogue import Depth
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, I32, I64, Emitter, Module, Value, Values, i64
from dnnl.codegen.ir.horizontal import reduce_lanes
from dnnl.codegen.ir.kernel import SIZES, Arguments, Kernel
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.nest.work_items import SHARES
from dnnl.codegen.open_nest.place import advanced
from dnnl.kernels.matmul.open import (
    HEAD,
    LaunchParameter,
    OpenMatmulConf,
    Tensors,
    orders,
    reads_in_place,
    scratch,
    tensors,
)
from dnnl.kernels.matmul.open_pack import Packer, Part
from dnnl.kernels.matmul.open_tile import Steps, Stretch, Tiles
from dnnl.runtime.image import Phase


@dataclass(frozen=True)
class _Unit:
    """A block of dst: its numbers of rows and panels, the columns from its first one on, and the
    offset of its part in each tensor."""

    rows: Value
    panels: Value
    columns: Value
    src: Value
    weights: Value
    ends: Values


def emit_open_product(
    module: Module, symbol: str, conf: OpenMatmulConf, tensors: Tensors, slot: int
) -> Phase:
    """Write the phase ``symbol``, whose launch parameters are the argument ``slot``."""
    given = [op for op in tensors.ends if op is not tensors.row_sums]
    operands = (tensors.src, tensors.weights, *given)
    phase = PhaseFunction(module, symbol, (slot, *(operand.slot for operand in operands)))
    writer = _OpenProductWriter(phase, conf, tensors, slot, operands)
    writer.units(*phase.share(writer.count, SHARES))
    return phase.end(SHARES)


def build(conf: OpenMatmulConf, isa: Isa) -> Kernel:
    """One phase; ``conf`` is shared."""
    arguments = Arguments()
    module, found = Module("matmul", isa), tensors(conf, arguments)
    tile = scratch(conf, isa, found).tile
    types = "_".join(
        dict.fromkeys(str(desc.data_type) for desc in (conf.src[1], conf.weights[1], conf.dst))
    )
    symbol = f"matmul_open__{types}__{tile.rows}x{tile.vectors * isa.lanes}__{isa.name}"
    phase = emit_open_product(module, symbol, conf, found, arguments.slot(SIZES))
    return Kernel(module, (phase,), arguments.ids)


class _OpenProductWriter:
    """Writes the loops."""

    def __init__(
        self,
        phase: PhaseFunction,
        conf: OpenMatmulConf,
        tensors: Tensors,
        slot: int,
        operands: Sequence[Operand],
    ) -> None:
        self.e, self.conf, self.tensors = phase.e, conf, tensors
        self._block = phase.arguments[slot]
        self._ends = tensors.ends
        count = len(self._ends)
        self._head = {name: self._parameter(name) for name in LaunchParameter}
        self._src, self._weights, *ends = (
            self._steps(number, count) for number in range(2 + count)
        )
        self._places = ends
        self._reads_in_place = self.e.b.icmp_signed(
            "!=", self._head[LaunchParameter.WEIGHTS_IN_PLACE], i64(0)
        )
        batch = HEAD + 3 * (2 + count)
        self._batch = [self._parameter(batch + n * (3 + count)) for n in range(len(tensors.batch))]
        self.finish = tensors.finish.of_depth(self._depth())
        self._divide_scratch(phase, operands)
        self._tiles = Tiles(
            self.e,
            conf,
            self._scratch,
            self.finish,
            self._pointers,
            self._head,
            self._places,
            self._weights.second,
        )

    def _parameter(self, number: int) -> Value:
        return self.e.b.load(self.e.element(self._block, i64(number), I64), typ=I64)

    def _steps(self, number: int, ends: int) -> Steps:
        first = HEAD + 3 * number
        batch = HEAD + 3 * (2 + ends)
        count = len(self.tensors.batch)
        along = tuple(self._parameter(batch + n * (3 + ends) + 1 + number) for n in range(count))
        base, lines, others = (self._parameter(first + n) for n in range(3))
        return Steps(base, lines, others, along)

    def _depth(self) -> Depth:
        group = self.conf.multiply.group
        return Depth(
            self._head[LaunchParameter.TERMS],
            self.e.mul(self._head[LaunchParameter.K_GROUPS], group),
        )

    def _divide_scratch(self, phase: PhaseFunction, operands: Sequence[Operand]) -> None:
        """Divide the scratch memory of the thread."""
        e, isa = self.e, self.e.isa
        self._scratch = own = scratch(self.conf, isa, self.tensors)
        size = (own.lines + 1) * own.pitch * own.k_group_bytes
        parts = [size, 0 if self.conf.panels else own.panels, own.sums, own.lines * 4]
        starts = [sum(-(-part // 64) * 64 for part in parts[:n]) for n in range(len(parts) + 1)]
        memory = phase.scratch(starts[-1])
        self._packed_src, self._packed_weights, self._sums, row_sums = (
            e.element(memory, i64(start), I8) for start in starts[:-1]
        )
        self._pointers = phase.pointers(operands)
        if self.tensors.row_sums is not None:
            self._pointers[self.tensors.row_sums] = row_sums

    @property
    def count(self) -> Value:
        """The number of units of work."""
        return self._head[LaunchParameter.UNITS]

    def units(self, first: Value, last: Value) -> None:
        """The units of work ``first`` to ``last``, without the last."""
        e, b = self.e, self.e.b

        def unit(number: Value, *packed: Value) -> Values:
            here = self._located(number)
            parts = self._head[LaunchParameter.PARTS]
            several = b.icmp_signed(">", parts, i64(1))
            wanted = (here.src, here.rows), (here.weights, here.panels)
            fresh = []
            for (place, count), before, held in zip(wanted, packed[::2], packed[1::2], strict=True):
                # All blocks of a broadcast operand are at the same place.
                other = b.or_(b.icmp_signed("!=", place, before), b.icmp_signed(">", count, held))
                fresh.append(b.or_(several, other))
            e.loop(
                i64(0), parts, lambda part: self._part(here, part, fresh), unroll=False, name="part"
            )
            held = [
                b.select(new, pair[1], old)
                for new, pair, old in zip(fresh, wanted, packed[1::2], strict=True)
            ]
            return here.src, held[0], here.weights, held[1]

        none = (i64(-1), i64(0))
        e.loop(first, last, unit, (*none, *none), unroll=False, name="unit")

    def _located(self, unit: Value) -> _Unit:
        """The block of a unit by its number."""
        e, b, head = self.e, self.e.b, self._head
        rest = unit

        def index(extent: Value) -> Value:
            nonlocal rest
            number = b.urem(rest, extent)
            rest = b.udiv(rest, extent)
            return number

        def blocks(count: LaunchParameter, size: LaunchParameter) -> Value:
            more = b.sub(b.add(head[count], head[size]), i64(1))
            return b.udiv(more, head[size])

        row = b.mul(
            index(blocks(LaunchParameter.ROWS, LaunchParameter.BLOCK_ROWS)),
            head[LaunchParameter.BLOCK_ROWS],
        )
        panel = b.mul(
            index(blocks(LaunchParameter.PANELS, LaunchParameter.BLOCK_PANELS)),
            head[LaunchParameter.BLOCK_PANELS],
        )
        batch = [index(extent) for extent in reversed(self._batch)][::-1]
        column = b.mul(panel, head[LaunchParameter.TILE_COLUMNS])

        def place(steps: Steps, first: Value, second: Value) -> Value:
            at = steps.base
            for number, step in zip(batch, steps.batch, strict=True):
                at = b.add(at, b.mul(number, step))
            at = b.add(at, b.mul(first, steps.first))
            return b.add(at, b.mul(second, steps.second))

        ends = tuple(
            i64(0) if operand is self.tensors.row_sums else place(steps, row, column)
            for operand, steps in zip(self._ends, self._places, strict=True)
        )
        along = panel if self.conf.panels else column
        return _Unit(
            e.smaller(head[LaunchParameter.BLOCK_ROWS], b.sub(head[LaunchParameter.ROWS], row)),
            e.smaller(
                head[LaunchParameter.BLOCK_PANELS], b.sub(head[LaunchParameter.PANELS], panel)
            ),
            b.sub(head[LaunchParameter.COLUMNS], column),
            place(self._src, row, i64(0)),
            place(self._weights, along, i64(0)),
            ends,
        )

    def _part(self, unit: _Unit, number: Value, fresh: Sequence[Value]) -> None:
        """One K block."""
        e, b, head = self.e, self.e.b, self._head
        k_group = b.mul(number, head[LaunchParameter.BLOCK_K_GROUPS])
        k_groups = e.smaller(
            head[LaunchParameter.BLOCK_K_GROUPS], b.sub(head[LaunchParameter.K_GROUPS], k_group)
        )
        group = self.conf.multiply.group
        left = b.sub(head[LaunchParameter.TERMS], e.mul(k_group, group))
        stretch = Stretch(number, k_group, k_groups, e.smaller(left, e.mul(k_groups, group)))

        def src() -> Values:
            self._pack_src(unit, stretch)
            return ()

        e.branch(fresh[0], src, lambda: ())
        base, step = self._weights_of(unit, stretch, fresh[1])
        tiles = b.add(unit.rows, b.sub(head[LaunchParameter.TILE_ROWS], i64(1)))
        e.loop(
            i64(0),
            b.udiv(tiles, head[LaunchParameter.TILE_ROWS]),
            lambda tile: self._row_of_tiles(unit, stretch, tile, (base, step)),
            unroll=False,
            name="tile",
        )

    def _pack_src(self, unit: _Unit, stretch: Stretch) -> None:
        """Pack the part of src, and add its terms to the row sums."""
        dot, given = self.conf.multiply, self.conf.src[1]
        packer = Packer(self.e, given.data_type, dot.a, dot.group)
        part = self._factor(self.tensors.src, self._src, unit.src, unit.rows, stretch)
        order = self._head[LaunchParameter.SRC_ORDER]
        packer.rows(part, orders(given, -1), order, self._packed_src, self._scratch.pitch)
        if self.tensors.row_sums is not None:
            self._sum_rows(self._pointers[self.tensors.row_sums], unit.rows, stretch)

    def _factor(
        self, operand: Operand, steps: Steps, place: Value, lines: Value, stretch: Stretch
    ) -> Part:
        e = self.e
        element = storage(operand.desc.data_type).element
        first = e.mul(stretch.k_group, self.conf.multiply.group)
        at = e.b.add(place, e.b.mul(first, steps.second))
        where = e.element(self._pointers[operand], at, element)
        return Part(where, lines, stretch.k_groups, stretch.depth, steps.first, steps.second)

    def _weights_of(self, unit: _Unit, stretch: Stretch, fresh: Value) -> tuple[Value, Value]:
        """The address of the panels of a K block, and their stride in elements."""
        e, b, dot, own = self.e, self.e.b, self.conf.multiply, self._scratch
        _, element = dot.element
        if self.conf.panels:
            first = e.mul(stretch.k_group, own.width * dot.group)
            at = b.add(unit.weights, first)
            return e.element(self._pointers[self.tensors.weights], at, element), self._weights.first
        lanes = own.lanes
        padded = b.and_(
            b.add(self._head[LaunchParameter.BLOCK_K_GROUPS], i64(lanes - 1)), i64(-lanes)
        )
        panel = e.mul(padded, own.width)

        def pack() -> Values:
            given = self.conf.weights[1]
            packer = Packer(e, given.data_type, dot.b, dot.group)
            lines = e.smaller(unit.columns, e.mul(unit.panels, own.width))
            part = self._factor(self.tensors.weights, self._weights, unit.weights, lines, stretch)
            order = self._head[LaunchParameter.WEIGHTS_ORDER]
            to, vectors = self._packed_weights, own.tile.vectors
            packer.panels(part, orders(given, -2), order, to, vectors, panel)
            return ()

        def packed() -> Values:
            e.branch(fresh, pack, lambda: ())
            return self._packed_weights, e.mul(panel, dot.group)

        if not reads_in_place(self.conf, e.isa):
            return packed()

        def in_place() -> Values:
            given = self._factor(self.tensors.weights, self._weights, unit.weights, i64(0), stretch)
            return given.pointer, self._head[LaunchParameter.TILE_COLUMNS]

        base, step = e.branch(self._reads_in_place, in_place, packed)
        return base, step

    def _sum_rows(self, sums: Value, rows: Value, stretch: Stretch) -> None:
        """Add the terms of a K block to the row sums."""
        e, b, dot, own = self.e, self.e.b, self.conf.multiply, self._scratch
        kind = vector.vector_type(I32, own.lanes)
        zero = vector.splat_constant(kind, 0)

        def row(number: Value) -> None:
            start = e.element(self._packed_src, e.mul(number, own.pitch), I32)

            def add(k_group: Value, total: Value) -> Values:
                k_groups = vector.load(e, e.element(start, k_group, I32), kind)
                there = vector.first_lanes(e, b.sub(stretch.k_groups, k_group), own.lanes)
                return (dot.total(e, b.select(there, k_groups, zero), total),)

            totals = e.loop(
                i64(0), stretch.k_groups, add, (zero,), step=own.lanes, unroll=False, name="k_group"
            )
            total = vector.lane(e, reduce_lanes(e, totals, _added)[0], 0)
            where = e.element(sums, number, I32)
            first = b.icmp_signed("==", stretch.number, i64(0))
            (before,) = e.branch(
                first, lambda: (I32(0),), lambda: (b.load(where, typ=I32, align=4),)
            )
            b.store(b.add(before, total), where, align=4)

        e.loop(i64(0), rows, row, unroll=False, name="row")

    def _row_of_tiles(
        self, unit: _Unit, stretch: Stretch, tile: Value, weights: tuple[Value, Value]
    ) -> None:
        """The tiles of some rows with all panels."""
        e, b, own, dot, head = self.e, self.e.b, self._scratch, self.conf.multiply, self._head
        a_element, b_element = dot.element
        row, width = (
            b.mul(tile, head[LaunchParameter.TILE_ROWS]),
            head[LaunchParameter.TILE_COLUMNS],
        )
        height = e.smaller(head[LaunchParameter.TILE_ROWS], b.sub(unit.rows, row))
        a = e.element(self._packed_src, e.mul(row, own.pitch * dot.group), a_element)
        base, step = weights
        several = b.icmp_signed(">", head[LaunchParameter.PARTS], i64(1))
        rows = e.add(head[LaunchParameter.TILE_ROWS], i64(int(self.finish.needs_column_sums)))
        size = b.mul(rows, width)
        ends = advanced(e, unit.ends, row, [steps.first for steps in self._places])
        last = b.icmp_signed("==", stretch.number, b.sub(self._head[LaunchParameter.PARTS], i64(1)))

        def panel(number: Value) -> None:
            slot = b.add(b.mul(tile, unit.panels), number)
            slot = b.select(several, slot, i64(0))
            buffer = e.element(self._sums, b.mul(slot, size), dot.accumulator)
            columns = e.element(base, b.mul(number, step), b_element)
            self._tiles.multiply((a, columns), buffer, height, stretch)

            def end() -> Values:
                column = b.mul(number, width)
                places = advanced(e, ends, column, [steps.second for steps in self._places])
                self._tiles.end(buffer, height, places, b.sub(unit.columns, column))
                return ()

            e.branch(last, end, lambda: ())

        e.loop(i64(0), unit.panels, panel, unroll=False, name="panel")


def _added(e: Emitter, a: Values, b: Values) -> Values:
    return tuple(map(e.b.add, a, b))
