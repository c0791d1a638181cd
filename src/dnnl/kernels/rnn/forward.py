"""The forward pass: for each layer the products of all its inputs, then its cells step by step.

    convert   the inputs of the first layer in f32, where they are not
    pack      weights into blocks of units, where they are row-major
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
from dnnl.codegen.math import f32 as math
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.rnn import cells
from dnnl.kernels.rnn.memory import PACKED, Place
from dnnl.kernels.rnn.problem import RnnConf
from dnnl.kernels.rnn.product import Tile, multiply
from dnnl.kernels.rnn.tiles import LayerTiles
from dnnl.runtime.image import Phase, Repeat
from dnnl.types.arg import Arg
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
            phases += writer.pack()
            phases.append(writer.products())
            first = len(phases)
            phases += writer.cells()
            phases.append(writer.advance())
            repeats.append(Repeat(first, len(phases), conf.steps))
        phases.append(writer.end())
    if conf.added and conf.steps:
        phases.append(_Layer(conf, module, arguments, conf.layers - 1).sum())
    return Kernel(module, tuple(phases), arguments.ids, tuple(repeats))


class _Layer(LayerTiles):
    """Writes the phases of a layer."""

    # Phases.

    def convert(self) -> Phase:
        """The inputs in f32."""
        conf = self._conf
        phase = self._phase("convert")
        e = phase.e

        def item(row: Value) -> None:
            step, n = e.divmod(row, conf.rows)
            to = self._part(phase, "inputs", [row, i64(0)])

            def one(at: Value, mask: Mask) -> None:
                value = self._load(phase, Arg.SRC_LAYER, [step, n, at], mask)
                vector.store(e, value, e.element(to, at, F32), mask)

            self._each_vector(e, conf.inputs, one)

        phase.each_item(conf.steps * conf.rows, item)
        return phase.end(conf.steps * conf.rows)

    def pack(self) -> list[Phase]:
        """Weights in blocks of units, in f32."""
        conf = self._conf
        given = {argument: conf.tensors[argument] for argument in PACKED}
        return [self._pack(argument) for argument, own in given.items() if conf.packs(own)]

    def _pack(self, argument: int) -> Phase:
        conf, name = self._conf, PACKED[argument]
        phase, inputs = self._phase(f"pack_{name}"), conf.tensors[argument].dims[2]
        e = phase.e

        def item(number: Value) -> None:
            d, k = e.divmod(number, inputs)
            for gate in range(conf.gates):
                to = self._part(phase, name, [d, i64(0), k, i64(gate), i64(0)])

                def one(at: Value, mask: Mask, gate: int = gate, to: Value = to) -> None:
                    index = [i64(self._layer), d, k, i64(gate), at]
                    value = self._load(phase, argument, index, mask)
                    offset = e.mul(at, inputs * conf.gates)  # a block has so many vectors
                    vector.store(e, value, e.element(to, offset, F32))

                self._each_vector(e, conf.channels, one)

        phase.each_item(conf.directions * inputs, item)
        return phase.end(conf.directions * inputs)

    def begin(self) -> Phase:
        """First states and cells, and the number of the step."""
        phase = self._phase("begin")
        conf, e = self._conf, phase.e

        def item(number: Value) -> None:
            d, row = e.divmod(number, conf.rows)
            place = [i64(self._layer), d, row]
            states = self._part(phase, "states", [i64(self._layer % 2), d, i64(0), row, i64(0)])
            self._fill(phase, states, Arg.SRC_ITER, place, conf.outputs)
            if conf.is_lstm:
                own = self._part(phase, "cells", [d, row, i64(0)])
                self._fill(phase, own, Arg.SRC_ITER_C, place, conf.channels)
            first = e.b.icmp_signed("==", number, i64(0))
            at = self._part(phase, "step", [i64(0)])
            self._either(e, first, lambda: e.b.store(i64(0), at), lambda: None)

        phase.each_item(conf.directions * conf.rows, item)
        return phase.end(conf.directions * conf.rows)

    def products(self) -> Phase:
        """W x + b of all steps."""
        conf = self._conf
        phase = self._phase("products")

        def write(place: Place) -> None:
            e, gates = phase.e, range(conf.gates)
            rows = [e.add(place.row, i64(r)) for r in range(place.rows)]
            first = [self._biases(phase, place, gates)] * place.rows
            sources = [self._source(phase, place.direction, row) for row in rows]
            factor = self._factor(phase, Arg.WEIGHTS_LAYER, place, gates)
            tile = multiply(e, first, sources, factor, conf.inputs)
            for row, sums in zip(rows, tile, strict=True):
                for gate, value in zip(gates, sums, strict=True):
                    vector.store(e, value, self._products(phase, place, row, gate))

        return self._each_tile(phase, conf.channels, conf.steps * conf.rows, conf.gates, write)

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
                last = [i64(self._layer % 2), d, e.number(conf.steps), row, i64(0)]
                source = self._part(phase, "states", last)
                self._write(phase, source, Arg.DST_ITER, place, conf.outputs)
            if conf.dst_iter_c is not None:
                source = self._part(phase, "cells", [d, row, i64(0)])
                self._write(phase, source, Arg.DST_ITER_C, place, conf.channels)

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
            starts = [
                self._part(phase, "states", [i64(self._layer % 2), i64(d), step, row, i64(0)])
                for d, step in enumerate((there, back))
            ]
            alive = self._alive(phase, t, row)

            def add(offset: Value, mask: Mask) -> None:
                first, second = (self._loaded(e, e.element(s, offset, F32), mask) for s in starts)
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

        def write(place: Place) -> None:
            e = phase.e
            rows = [e.add(place.row, i64(r)) for r in range(place.rows)]
            flat = [e.add(e.mul(self._time(e, place.direction, step), conf.rows), r) for r in rows]
            first = [[self._started(phase, place, row, gate) for gate in gates] for row in flat]
            if of_reset:
                sources = [self._between(phase, 1, place, row) for row in rows]
            else:
                sources = [self._state(phase, place.direction, step, row) for row in rows]
            factor = self._factor(phase, Arg.WEIGHTS_ITER, place, gates)
            cell(phase, place, multiply(e, first, sources, factor, conf.outputs), step)

        return self._each_tile(phase, conf.channels, conf.rows, len(gates), write)

    def _started(self, phase: PhaseFunction, place: Place, row: Value, gate: int) -> Value:
        """What a product of the states is added to: that of the inputs, or the bias of the inner
        product of an lbr cell."""
        if gate == 2 and self._conf.is_lbr:
            return self._biases(phase, place, range(3, 4))[0]
        e = phase.e
        return self._loaded(e, self._products(phase, place, row, gate), None)

    def _vanilla(self, phase: PhaseFunction, place: Place, tile: Tile, step: Value) -> None:
        conf = self._conf
        for r, (total,) in enumerate(tile):
            value = cells.activated(phase.e, conf.activation, conf.alpha, total)
            self._store_state(phase, place, step, r, value)

    def _lstm(self, phase: PhaseFunction, place: Place, tile: Tile, step: Value) -> None:
        e, conf = phase.e, self._conf
        peephole = None
        if conf.peephole is not None:
            peephole = [self._vector(phase, Arg.WEIGHTS_PEEPHOLE, place, gate) for gate in range(3)]
        for r, gates in enumerate(tile):
            row = e.add(place.row, i64(r))
            unit = e.mul(place.block, self._lanes)
            at = self._part(phase, "cells", [i64(place.direction), row, unit])
            before = self._loaded(e, at, None)
            out, c = cells.lstm(e, gates, before, peephole)
            alive = self._alive(phase, self._time(e, place.direction, step, layered=False), row)
            vector.store(e, self._unless_past(e, alive, c, before), at)
            if conf.projection is None:
                self._store_state(phase, place, step, r, out)
            else:
                where = e.element(self._between(phase, 0, place, row), unit, F32)
                vector.store(e, out, where)

    def _project(self) -> Phase:
        """The states as products of what the cells give."""
        conf = self._conf
        phase = self._phase("project")
        step = phase.e.b.load(self._part(phase, "step", [i64(0)]), typ=I64)

        def write(place: Place) -> None:
            e = phase.e
            rows = [e.add(place.row, i64(r)) for r in range(place.rows)]
            zero = vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
            sources = [self._between(phase, 0, place, row) for row in rows]
            factor = self._factor(phase, Arg.WEIGHTS_PROJECTION, place, range(1))
            tile = multiply(e, [[zero]] * place.rows, sources, factor, conf.channels)
            for r, (value,) in enumerate(tile):
                self._store_state(phase, place, step, r, value)

        return self._each_tile(phase, conf.outputs, conf.rows, 1, write)

    def _lbr_gru(self, phase: PhaseFunction, place: Place, tile: Tile, step: Value) -> None:
        e, conf = phase.e, self._conf
        time = e.mul(self._time(e, place.direction, step), conf.rows)
        for r, (up, reset, inner) in enumerate(tile):
            row = e.add(place.row, i64(r))
            given = self._loaded(e, self._products(phase, place, e.add(time, row), 2), None)
            o = math.tanh(e, vector.multiply_add(e, math.logistic(e, reset), inner, given))
            self._mix(phase, place, step, r, math.logistic(e, up), o)

    def _gru_gates(self, phase: PhaseFunction, place: Place, tile: Tile, step: Value) -> None:
        """u, and r h."""
        e = phase.e
        unit = e.mul(place.block, self._lanes)
        for r, (up, reset) in enumerate(tile):
            row = e.add(place.row, i64(r))
            h = self._loaded(
                e, e.element(self._state(phase, place.direction, step, row), unit, F32), None
            )
            at = e.element(self._between(phase, 0, place, row), unit, F32)
            vector.store(e, math.logistic(e, up), at)
            product = e.element(self._between(phase, 1, place, row), unit, F32)
            vector.store(e, e.b.fmul(math.logistic(e, reset), h), product)

    def _gru(self, phase: PhaseFunction, place: Place, tile: Tile, step: Value) -> None:
        e = phase.e
        unit = e.mul(place.block, self._lanes)
        for r, (total,) in enumerate(tile):
            row = e.add(place.row, i64(r))
            u = self._loaded(e, e.element(self._between(phase, 0, place, row), unit, F32), None)
            self._mix(phase, place, step, r, u, math.tanh(e, total))

    def _mix(
        self, phase: PhaseFunction, place: Place, step: Value, r: int, u: Value, o: Value
    ) -> None:
        """The new state of a GRU."""
        e, conf = phase.e, self._conf
        row, unit = e.add(place.row, i64(r)), e.mul(place.block, self._lanes)
        h = self._loaded(
            e, e.element(self._state(phase, place.direction, step, row), unit, F32), None
        )
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
        following = self._state(phase, place.direction, e.add(step, i64(1)), row)
        state = value
        if alive is not None:
            before = self._state(phase, place.direction, step, row)
            state = self._unless_past(
                e, alive, value, self._loaded(e, e.element(before, unit, F32), None)
            )
        vector.store(e, state, e.element(following, unit, F32))
        if not self._last or conf.added:
            return
        channel = e.add(unit, i64(place.direction * conf.outputs))
        value = self._unless_past(e, alive, value)
        self._store(phase, Arg.DST_LAYER, [time, row, channel], value, place.mask)
