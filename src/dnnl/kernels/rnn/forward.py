"""The forward pass: for each layer the products of all its inputs, then its cells step by step.

    convert   the inputs of the first layer become operands of products, where they are none
    pack      weights into blocks of units, where they are row-major
    sums      of the columns of integer weights, which a shift of the inputs is multiplied by; those
              that one phase reads once are summed up by its work items
    begin     first states and cells of the layer; the number of the step is 0
    products  W x + b of every step, row and block of units, into the scratchpad
    cells     once for each step: U h on top, then the cell; of a GRU, or with a projection, a
              second product behind a barrier
    advance   the number of the step grows
    end       last states and cells of the layer

Cells and advance are one repeat. A work item of cells is a block of units in one direction, for
some rows: threads get the same ones in each step, so that weights stay in their caches.
"""

from __future__ import annotations

from collections.abc import Callable

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I64, Module, Value, i64
from dnnl.codegen.ir.kernel import Arguments, Kernel
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.rnn import cells
from dnnl.kernels.rnn.memory import PACKED, SUMS, Place, Product
from dnnl.kernels.rnn.packing import WeightsPacking
from dnnl.kernels.rnn.problem import RnnConf
from dnnl.kernels.rnn.product import Tile
from dnnl.runtime.image import Phase, Repeat
from dnnl.types.arg import Arg
from dnnl.types.cell_functions import CellFunctions
from dnnl.types.kinds import Alg


def build(conf: RnnConf, isa: Isa) -> Kernel:
    """All phases of all layers."""
    module, arguments = Module("rnn", isa), Arguments()
    phases: list[Phase] = []
    repeats: list[Repeat] = []
    for layer in range(conf.layers):
        writer = _Layer(conf, module, arguments, layer)
        if layer == 0 and conf.converts and conf.steps:
            phases.append(writer.convert())
        phases.append(writer.begin())
        if conf.steps:
            phases += [*writer.pack(), *writer.sums()]
            phases.append(writer.products())
            first = len(phases)
            phases += writer.cells()
            phases.append(writer.advance())
            repeats.append(Repeat(first, len(phases), conf.steps))
        phases.append(writer.end())
    if conf.added and conf.steps:
        phases.append(_Layer(conf, module, arguments, conf.layers - 1).sum())
    return Kernel(module, tuple(phases), arguments.ids, tuple(repeats))


class _Layer(WeightsPacking):
    """Writes the phases of a layer."""

    # Phases.

    def convert(self) -> Phase:
        """The inputs as operands."""
        conf = self._conf
        phase = self._phase("convert")
        e = phase.e

        def item(row: Value) -> None:
            step, n = e.divmod(row, conf.rows)
            to = self._part(phase, "inputs", [row, i64(0)])
            self._scale_inputs(phase, to, step, n)

            def one(at: Value, mask: Mask) -> None:
                value = self._load(phase, Arg.SRC_LAYER, [step, n, at], mask)
                self._put(e, "inputs", to, at, value)

            self._each_vector(e, conf.inputs, one)
            self._clear(e, "inputs", to, conf.inputs)

        phase.each_item(conf.steps * conf.rows, item)
        return phase.end(conf.steps * conf.rows)

    def pack(self) -> list[Phase]:
        """Weights in blocks of units, as operands."""
        conf = self._conf
        given = {argument: conf.tensors.get(argument) for argument in PACKED}
        return [self._pack(argument) for argument, own in given.items() if conf.packs(own)]

    def sums(self) -> list[Phase]:
        """The sums of the columns of weights, where products are compensated."""
        conf = self._conf
        present = [argument for argument in SUMS if argument in self._tensors]
        return [self._sums(argument) for argument in present if conf.sums_apart(argument)]

    def _sums(self, argument: int) -> Phase:
        name = SUMS[argument]
        phase, (inputs, *gates, units) = self._phase(name), self._tensors[argument][1].dims[2:]
        e, numbers = phase.e, range(gates[0] if gates else 1)

        def some(place: Place, _begin: Value, _end: Value) -> None:
            factor = self._factor(phase, argument, place, numbers)
            found = self._column_sums(e, factor, inputs)
            for gate, total in zip(numbers, found, strict=True):
                index = [i64(place.direction), place.block, i64(gate), i64(0)]
                vector.store(e, total, self._part(phase, name, index))

        return phase.end(self._each_item(phase, units, 1, 1, some))

    def begin(self) -> Phase:
        """First states and cells, and the number of the step."""
        phase = self._phase("begin")
        conf, e = self._conf, phase.e

        def item(number: Value) -> None:
            d, row = e.divmod(number, conf.rows)
            place = [i64(self._layer), d, row]
            self._scale_states(phase, d, row)
            states = self._state(phase, d, i64(0), row)
            self._fill(phase, "left", states, Arg.SRC_ITER, place, conf.before)
            if conf.states_apart:
                states = self._operand(phase, d, i64(0), row)
                self._fill(phase, "states", states, Arg.SRC_ITER, place, conf.before)
            if conf.is_lstm:
                own = self._cells(phase, d, i64(0), row)
                self._fill(phase, "cells", own, Arg.SRC_ITER_C, place, conf.channels)
            self._clear_states(phase, d, row)
            if self._trains:
                self._fill_gaps(phase, d, row)
            first = e.b.icmp_signed("==", number, i64(0))
            at = self._part(phase, "step", [i64(0)])
            self._either(e, first, lambda: e.b.store(i64(0), at), lambda: None)

        phase.each_item(conf.directions * conf.rows, item)
        return phase.end(conf.directions * conf.rows)

    def products(self) -> Phase:
        """W x + b of all steps."""
        conf = self._conf
        phase = self._phase("products")

        def store(place: Place, tile: Tile) -> None:
            for r, sums in enumerate(tile):
                row = phase.e.add(place.row, i64(r))
                for gate, value in enumerate(sums):
                    vector.store(phase.e, value, self._products(phase, place, row, gate))

        gates = range(conf.gates)
        product = Product(
            Arg.WEIGHTS_LAYER, gates, conf.inputs, "states" if self._layer else "inputs",
            lambda place, row: self._source(phase, place.direction, row),
            lambda place, _: self._biases(phase, place, gates), store,
        )  # fmt: skip
        return self._each_product(phase, conf.channels, conf.steps * conf.rows, product)

    def cells(self) -> list[Phase]:
        """The phases of a step."""
        conf = self._conf
        if conf.alg is Alg.vanilla_rnn:
            return [self._cell("cell", range(1), self._vanilla)]
        if conf.is_lstm and conf.projection is None:
            return [self._cell("cell", range(4), self._lstm)]
        if conf.is_lstm:
            return [self._cell("cell", range(4), self._lstm), self._project()]
        if conf.is_lbr:
            return [self._cell("cell", range(3), self._lbr_gru)]
        return [
            self._cell("gates", range(2), self._gru_gates),
            self._cell("cell", range(2, 3), self._gru, of_reset=True),
        ]

    def advance(self) -> Phase:
        """The next step."""
        phase = self._phase("advance")

        def item(_: Value) -> None:
            at, b = self._part(phase, "step", [i64(0)]), phase.e.b
            b.store(b.add(b.load(at, typ=I64), i64(1)), at)

        phase.each_item(1, item)
        return phase.end(1)

    def end(self) -> Phase:
        """The last states and cells become results."""
        conf = self._conf
        phase = self._phase("end")
        e = phase.e

        def item(number: Value) -> None:
            d, row = e.divmod(number, conf.rows)
            place = [i64(self._layer), d, row]
            if conf.dst_iter is not None:
                source = self._state(phase, d, e.number(conf.steps), row)
                self._write(phase, "left", source, Arg.DST_ITER, place, conf.outputs)
            if conf.dst_iter_c is not None:
                source = self._cells(phase, d, e.number(conf.steps), row)
                self._write(phase, "cells", source, Arg.DST_ITER_C, place, conf.channels)

        phase.each_item(conf.directions * conf.rows, item)
        return phase.end(conf.directions * conf.rows)

    def sum(self) -> Phase:
        """The results of both directions, added."""
        conf = self._conf
        phase = self._phase("sum")
        e = phase.e

        def item(number: Value) -> None:
            t, row = e.divmod(number, conf.rows)
            there = e.add(t, i64(1))
            back = e.b.sub(e.number(conf.steps), t)
            starts = [self._state(phase, i64(d), step, row) for d, step in enumerate((there, back))]
            alive = self._alive(phase, t, row)

            def add(offset: Value, mask: Mask) -> None:
                first, second = (self._get(e, "left", start, offset, mask) for start in starts)
                value = self._unless_past(e, alive, e.b.fadd(first, second))
                self._store(phase, Arg.DST_LAYER, [t, row, offset], value, mask)

            self._each_vector(e, conf.outputs, add)

        phase.each_item(conf.steps * conf.rows, item)
        return phase.end(conf.steps * conf.rows)

    # Cells.

    def _cell(
        self,
        name: str,
        gates: range,
        cell: Callable[[PhaseFunction, Place, Tile, Value], None],
        *,
        of_reset: bool = False,
    ) -> Phase:
        """The products of the states with some gates, added to those of the inputs, and what
        ``cell`` makes of them. With ``of_reset`` it is the states times the reset gate."""
        conf = self._conf
        phase = self._phase(name)
        step = phase.e.b.load(self._part(phase, "step", [i64(0)]), typ=I64)

        def source(place: Place, row: Value) -> Value:
            if of_reset:
                return self._row(phase, "between", place.direction, row)
            return self._operand(phase, i64(place.direction), step, row)

        def first(place: Place, row: Value) -> list[Value]:
            time = self._time(phase.e, place.direction, step)
            flat = phase.e.add(phase.e.mul(time, conf.rows), row)
            return [self._started(phase, place, flat, gate) for gate in gates]

        product = Product(
            Arg.WEIGHTS_ITER, gates, conf.before, "between" if of_reset else "states",
            source, first,
            lambda place, tile: cell(phase, place, tile, step),
        )  # fmt: skip
        return self._each_product(phase, conf.channels, conf.rows, product)

    def _started(self, phase: PhaseFunction, place: Place, row: Value, gate: int) -> Value:
        """What a product of the states is added to: that of the inputs, or the bias of the inner
        product of an lbr cell."""
        if gate == 2 and self._conf.is_lbr:
            return self._biases(phase, place, range(3, 4))[0]
        e = phase.e
        return self._get(e, "products", self._products(phase, place, row, gate), i64(0))

    def _functions(self, place: Place) -> CellFunctions:
        return self._conf.functions[place.direction]

    def _vanilla(self, phase: PhaseFunction, place: Place, tile: Tile, step: Value) -> None:
        function = self._functions(place).of_sum(0)
        for r, (total,) in enumerate(tile):
            value = cells.applied(phase.e, function, total)
            self._store_state(phase, place, step, r, value)

    def _lstm(self, phase: PhaseFunction, place: Place, tile: Tile, step: Value) -> None:
        e, conf = phase.e, self._conf
        peephole = None
        if conf.peephole is not None:
            peephole = [self._vector(phase, Arg.WEIGHTS_PEEPHOLE, place, gate) for gate in range(3)]
        for r, gates in enumerate(tile):
            row = e.add(place.row, i64(r))
            unit = e.mul(place.block, self._lanes)
            own, following = (
                self._cells(phase, i64(place.direction), at, row)
                for at in (step, e.add(step, i64(1)))
            )
            before = self._get(e, "cells", own, unit, place.mask)
            out, c, active = cells.lstm(e, self._functions(place), gates, before, peephole)
            self._store_gates(phase, place, step, r, active)
            alive = self._alive(phase, self._time(e, place.direction, step, layered=False), row)
            c = self._unless_past(e, alive, c, before)
            self._put(e, "cells", following, unit, c, place.mask)
            if conf.projection is None:
                self._store_state(phase, place, step, r, out)
            else:
                to = self._row(phase, "between", place.direction, row)
                self._put(e, "between", to, unit, out, place.mask)

    def _project(self) -> Phase:
        """The states as products of what the cells give."""
        conf = self._conf
        phase = self._phase("project")
        step = phase.e.b.load(self._part(phase, "step", [i64(0)]), typ=I64)

        def store(place: Place, tile: Tile) -> None:
            for r, (value,) in enumerate(tile):
                self._store_state(phase, place, step, r, value)

        zero = vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
        product = Product(
            Arg.WEIGHTS_PROJECTION, range(1), conf.channels, "between",
            lambda place, row: self._row(phase, "between", place.direction, row),
            lambda _place, _row: [zero], store,
        )  # fmt: skip
        return self._each_product(phase, conf.outputs, conf.rows, product)

    def _lbr_gru(self, phase: PhaseFunction, place: Place, tile: Tile, step: Value) -> None:
        e, conf = phase.e, self._conf
        functions = self._functions(place)
        time = e.mul(self._time(e, place.direction, step), conf.rows)
        for r, (up, down, inner) in enumerate(tile):
            row = e.add(place.row, i64(r))
            at = self._products(phase, place, e.add(time, row), 2)
            given = self._get(e, "products", at, i64(0))
            u, reset = (cells.applied(e, functions.of_sum(0), own) for own in (up, down))
            total = vector.multiply_add(e, reset, inner, given)
            o = cells.applied(e, functions.of_sum(1), total)
            self._store_gates(phase, place, step, r, [u, reset, o, inner])
            self._mix(phase, place, step, r, u, o)

    def _gru_gates(self, phase: PhaseFunction, place: Place, tile: Tile, step: Value) -> None:
        """u, and r h."""
        e, function = phase.e, self._functions(place).of_sum(0)
        unit = e.mul(place.block, self._lanes)
        for r, (up, down) in enumerate(tile):
            row = e.add(place.row, i64(r))
            u, reset = (cells.applied(e, function, own) for own in (up, down))
            self._store_gates(phase, place, step, r, [u, reset])
            h = self._states_of(phase, place, step, row)
            to = self._row(phase, "updates", place.direction, row)
            self._put(e, "updates", to, unit, u)
            to = self._row(phase, "between", place.direction, row)
            self._put(e, "between", to, unit, e.b.fmul(reset, h), place.mask)

    def _gru(self, phase: PhaseFunction, place: Place, tile: Tile, step: Value) -> None:
        e, function = phase.e, self._functions(place).of_sum(1)
        unit = e.mul(place.block, self._lanes)
        for r, (total,) in enumerate(tile):
            row = e.add(place.row, i64(r))
            u = self._get(e, "updates", self._row(phase, "updates", place.direction, row), unit)
            o = cells.applied(e, function, total)
            self._store_gates(phase, place, step, r, [o], first=2)
            self._mix(phase, place, step, r, u, o)

    def _mix(
        self, phase: PhaseFunction, place: Place, step: Value, r: int, u: Value, o: Value
    ) -> None:
        """The new state of a GRU."""
        e, conf = phase.e, self._conf
        row = e.add(place.row, i64(r))
        h = self._states_of(phase, place, step, row)
        attention = None
        if conf.attention is not None:
            time = self._time(e, place.direction, step, layered=False)
            attention = self._splat(phase, Arg.AUGRU_ATTENTION, [time, row, i64(0)])
        self._store_state(phase, place, step, r, cells.mixed(e, u, h, o, attention))

    def _store_state(
        self, phase: PhaseFunction, place: Place, step: Value, r: int, value: Value
    ) -> None:
        """The state behind a step, for the next one, and as a result."""
        e, conf = phase.e, self._conf
        row, unit = e.add(place.row, i64(r)), e.mul(place.block, self._lanes)
        time = self._time(e, place.direction, step, layered=False)
        alive = self._alive(phase, time, row)
        state, behind = value, e.add(step, i64(1))
        if alive is not None:
            before = self._states_of(phase, place, step, row)
            state = self._unless_past(e, alive, value, before)
        following = self._state(phase, i64(place.direction), behind, row)
        self._put(e, "left", following, unit, state, place.mask)
        if conf.states_apart:
            following = self._operand(phase, i64(place.direction), behind, row)
            self._put(e, "states", following, unit, state, place.mask)
        if not self._last or conf.added:
            return
        channel = e.add(unit, i64(place.direction * conf.outputs))
        value = self._unless_past(e, alive, value)
        self._store(phase, Arg.DST_LAYER, [time, row, channel], value, place.mask)
