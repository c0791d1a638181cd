"""The backward pass: for each layer, from the last to the first, its cells from the last step to
the first, then the gradients of inputs and weights as products over all steps.

    pack      weights as blocks of inputs, so that rows of gates are multiplied with them
    begin     the gradients of the last states and cells; the step is the last one
    cells     once for each step: the gradients of its states, from those of the gates of the step
              behind and of the results, then those of its gates; of a GRU, or with a projection,
              with a second product behind a barrier
    advance   the number of the step shrinks
    first     the gradients of the first states and cells
    products  `WeightGradients`: inputs, weights, biases

Cells and advance are one repeat, as in the forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I64, Emitter, Module, Value, i64
from dnnl.codegen.ir.kernel import Arguments, Kernel
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.rnn import gradient_cells
from dnnl.kernels.rnn.back_products import BackProduct
from dnnl.kernels.rnn.gradient_problem import GradientConf
from dnnl.kernels.rnn.gradients import WeightGradients
from dnnl.kernels.rnn.memory import Place
from dnnl.kernels.rnn.product import Tile
from dnnl.runtime.image import Phase, Repeat
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg


def build(conf: GradientConf, isa: Isa) -> Kernel:
    """All phases of all layers."""
    module, arguments = Module("rnn_backward", isa), Arguments()
    phases: list[Phase] = []
    repeats: list[Repeat] = []
    there = bool(conf.steps and conf.rows)
    for layer in reversed(range(conf.layers)):
        writer = _Layer(conf, module, arguments, layer)
        if conf.rows:
            phases.append(writer.begin())
        if there:
            phases += writer.pack()
            first = len(phases)
            phases += writer.cells()
            phases.append(writer.advance())
            repeats.append(Repeat(first, len(phases), conf.steps))
        if conf.rows:
            phases += writer.first()
        if there:
            phases += writer.panels()
        phases += writer.products()
    return Kernel(module, tuple(phases), arguments.ids, tuple(repeats))


class _Layer(WeightGradients):
    """Writes the phases of a layer."""

    def pack(self) -> list[Phase]:
        """All weights."""
        given = [Arg.WEIGHTS_ITER, Arg.WEIGHTS_PROJECTION]
        if self._gives_inputs:
            given.insert(0, Arg.WEIGHTS_LAYER)
        there = self._conf.tensors
        return [self._pack_back(own) for own in given if own in there and there[own].dims[2]]

    def begin(self) -> Phase:
        """The gradients of the last states and cells."""
        phase = self._phase("begin")
        conf, e = self._conf, phase.e

        def item(number: Value) -> None:
            d, row = e.divmod(number, conf.rows)
            place = [i64(self._layer), d, row]
            states = self._part(phase, "gathered", [d, row, i64(0)])
            self._fill(phase, "gathered", states, Arg.DIFF_DST_ITER, place, conf.outputs)
            if conf.is_lstm:
                name = "gathered_cells"
                cells = self._part(phase, name, [d, row, i64(0)])
                self._fill(phase, name, cells, Arg.DIFF_DST_ITER_C, place, conf.channels)
            if conf.in_pairs:
                self._clear_gaps(phase, d, row)
            first = e.b.icmp_signed("==", number, i64(0))
            at = self._part(phase, "step", [i64(0)])
            self._either(e, first, lambda: e.b.store(e.number(conf.steps - 1), at), lambda: None)

        phase.each_item(conf.directions * conf.rows, item)
        return phase.end(conf.directions * conf.rows)

    def cells(self) -> list[Phase]:
        """The phases of a step."""
        conf = self._conf
        if conf.is_lstm and conf.projection is not None:
            return [self._states_phase("projected"), self._projected()]
        if conf.is_gru:
            return [self._states_phase("cell"), self._reset()]
        return [self._states_phase("cell")]

    def advance(self) -> Phase:
        """The step before."""
        phase = self._phase("advance")

        def item(_: Value) -> None:
            at, b = self._part(phase, "step", [i64(0)]), phase.e.b
            b.store(b.sub(b.load(at, typ=I64), i64(1)), at)

        phase.each_item(1, item)
        return phase.end(1)

    def first(self) -> list[Phase]:
        """The gradients of the first states and cells."""
        conf = self._conf
        made = []
        if conf.diff_src_iter is not None:
            made.append(self._first_states())
        if conf.diff_src_iter_c is not None:
            made.append(self._first_cells())
        return made

    def _first_states(self) -> Phase:
        conf = self._conf
        phase = self._phase("first_states")
        e, zero = phase.e, vector.splat_constant(vector.vector_type(F32, self._lanes), 0)

        def first(place: Place, row: Value) -> list[Value]:
            if conf.before == conf.outputs:
                return self._all_carried(phase, place, row)
            # What has been gathered is of other states, and passed on to none of these.
            return [zero] * conf.pair

        def finish(place: Place, tile: Tile) -> None:
            for number, own in enumerate(self._blocks_of(e, place)):
                unit = e.mul(own.block, self._lanes)
                for r, values in enumerate(tile):
                    index = [i64(self._layer), i64(own.direction), e.add(own.row, i64(r)), unit]
                    self._store(phase, Arg.DIFF_SRC_ITER, index, values[number], own.mask)

        return self._gather(phase, i64(-1), conf.before, first, finish)

    def _gather(
        self,
        phase: PhaseFunction,
        step: Value,
        channels: int,
        first: Callable[[Place, Value], list[Value]],
        finish: Callable[[Place, Tile], None],
    ) -> Phase:
        """The gradients of the states behind a step, but for those by its results: what is
        ``first``, and those by the gates of the step behind, unless it is the last."""
        conf, e = self._conf, phase.e
        if not conf.steps:
            return self._each_pair(phase, channels, first, finish)
        slots = conf.iter_slots[:2] if conf.is_gru else conf.iter_slots
        least, behind = min(slots), e.add(step, i64(1))

        def source(place: Place, row: Value) -> Value:
            return self._slot(phase, replace(place, block=i64(0)), behind, row, least)

        return self._each_back(phase, conf.rows, BackProduct(
            Arg.WEIGHTS_ITER, range(len(slots)), channels, conf.pair, "gate_diffs", source, first,
            finish, e.b.icmp_signed("==", step, e.number(conf.steps - 1)),
        ))  # fmt: skip

    def _each_pair(
        self,
        phase: PhaseFunction,
        channels: int,
        first: Callable[[Place, Value], list[Value]],
        finish: Callable[[Place, Tile], None],
    ) -> Phase:
        """The rows of a step for a block or two, without a product."""
        conf = self._conf

        def write(place: Place) -> None:
            rows = [phase.e.add(place.row, i64(r)) for r in range(place.rows)]
            finish(place, [first(place, row) for row in rows])

        return self._each_tile(
            phase, channels, conf.rows, conf.pair, lambda _: write, width=conf.pair
        )

    def _blocks_of(self, e: Emitter, place: Place) -> list[Place]:
        """The places of the blocks of a tile, of which the last one has the mask."""
        pair = self._conf.pair
        return [
            replace(
                place,
                block=e.add(e.mul(place.block, pair), i64(number)),
                mask=place.mask if number == pair - 1 else None,
            )
            for number in range(pair)
        ]

    def _first_cells(self) -> Phase:
        conf = self._conf
        phase = self._phase("first_cells")
        e = phase.e

        def item(number: Value) -> None:
            d, row = e.divmod(number, conf.rows)
            source = self._part(phase, "gathered_cells", [d, row, i64(0)])
            place = [i64(self._layer), d, row]
            self._write(phase, "gathered_cells", source, Arg.DIFF_SRC_ITER_C, place, conf.channels)

        phase.each_item(conf.directions * conf.rows, item)
        return phase.end(conf.directions * conf.rows)

    # Steps.

    def _all_carried(self, phase: PhaseFunction, place: Place, row: Value) -> list[Value]:
        """What has been gathered of the gradients of the states of a row of a tile."""
        return [
            self._loaded(phase.e, self._carried(phase, own, row), own.mask)
            for own in self._blocks_of(phase.e, place)
        ]

    def _carried(self, phase: PhaseFunction, place: Place, row: Value) -> Value:
        """What has been gathered of the gradients of states."""
        unit = phase.e.mul(place.block, self._lanes)
        return self._part(phase, "gathered", [i64(place.direction), row, unit])

    def _states_phase(self, name: str) -> Phase:
        """The gradients of states, and what follows from them in one row."""
        conf = self._conf
        phase = self._phase(name)
        step = self._now(phase)
        follow = {
            Alg.vanilla_rnn: self._vanilla,
            Alg.vanilla_lstm: self._lstm if conf.projection is None else self._project,
            Alg.vanilla_gru: self._mixed,
            Alg.vanilla_augru: self._mixed,
            Alg.lbr_gru: self._mixed,
            Alg.lbr_augru: self._mixed,
        }[conf.alg]

        def first(place: Place, row: Value) -> list[Value]:
            return self._all_carried(phase, place, row)

        def finish(place: Place, tile: Tile) -> None:
            e = phase.e
            for r, values in enumerate(tile):
                row = e.add(place.row, i64(r))
                alive = self._alive_at(phase, place, step, row)
                for own, value in zip(self._blocks_of(e, place), values, strict=True):
                    dh = e.b.fadd(value, self._by_results(phase, own, step, row))
                    dh = self._unless_past(e, alive, dh)
                    passed = follow(phase, own, step, row, dh, alive)
                    if alive is not None:
                        passed = self._unless_past(e, alive, passed, value)
                    vector.store(e, passed, self._carried(phase, own, row))

        if conf.before != conf.outputs:  # it is the only step
            return self._each_pair(phase, conf.outputs, first, finish)
        return self._gather(phase, step, conf.outputs, first, finish)

    def _by_results(self, phase: PhaseFunction, place: Place, step: Value, row: Value) -> Value:
        """The gradients of the results of a step: of dst, or of the inputs of the layer above."""
        conf, e = self._conf, phase.e
        unit = e.mul(place.block, self._lanes)
        if not self._last:
            index = [i64(place.direction), step, row, unit]
            return self._loaded(e, self._part(phase, "below", index), place.mask)
        if not conf.added:
            unit = e.add(unit, i64(place.direction * conf.outputs))
        time = self._time(e, place.direction, step, layered=False)
        return self._load(phase, Arg.DIFF_DST_LAYER, [time, row, unit], place.mask)

    def _alive_at(
        self, phase: PhaseFunction, place: Place, step: Value, row: Value
    ) -> Value | None:
        time = self._time(phase.e, place.direction, step, layered=False)
        return self._alive(phase, time, row)

    # Each gives the part of the gradients of the states before that no product gives.

    def _vanilla(
        self,
        phase: PhaseFunction,
        place: Place,
        step: Value,
        row: Value,
        dh: Value,
        alive: Value | None,
    ) -> Value:
        e, conf = phase.e, self._conf
        y = self._states_of(phase, place, e.add(step, i64(1)), row)
        value = gradient_cells.activated(e, conf.activation, conf.alpha, y, dh)
        self._store_slot(phase, place, step, row, 0, value, alive)
        return vector.splat_constant(dh.type, 0)

    def _lstm(
        self,
        phase: PhaseFunction,
        place: Place,
        step: Value,
        row: Value,
        dh: Value,
        alive: Value | None,
    ) -> Value:
        e, conf = phase.e, self._conf
        gates = [self._gate(phase, place, step, row, number) for number in range(4)]
        cells = (
            self._cell(phase, place, step, row),
            self._cell(phase, place, e.add(step, i64(1)), row),
        )
        peephole = None
        if conf.peephole is not None:
            peephole = [self._vector(phase, Arg.WEIGHTS_PEEPHOLE, place, gate) for gate in range(3)]
        unit = e.mul(place.block, self._lanes)
        at = self._part(phase, "gathered_cells", [i64(place.direction), row, unit])
        before = self._loaded(e, at, place.mask)
        dc = self._unless_past(e, alive, before)
        made, passed = gradient_cells.lstm(e, gates, cells, dh, dc, peephole)
        for slot, value in enumerate(made):
            self._store_slot(phase, place, step, row, slot, value, alive)
        if alive is not None:
            passed = self._unless_past(e, alive, passed, before)
        vector.store(e, passed, at)
        return vector.splat_constant(dh.type, 0)

    def _project(
        self,
        phase: PhaseFunction,
        place: Place,
        step: Value,
        row: Value,
        dh: Value,
        alive: Value | None,
    ) -> Value:
        start = self._projected_row(phase, place.direction, place.block, step, row)
        self._put(phase.e, "projected", start, i64(0), dh)
        return vector.splat_constant(dh.type, 0)

    def _projected(self) -> Phase:
        """What follows from the gradients of what is projected."""
        phase = self._phase("cell")
        step = self._now(phase)

        def finish(place: Place, tile: Tile) -> None:
            e = phase.e
            rows = [e.add(place.row, i64(r)) for r in range(place.rows)]
            for row, values in zip(rows, tile, strict=True):
                alive = self._alive_at(phase, place, step, row)
                for own, dh in zip(self._blocks_of(e, place), values, strict=True):
                    self._lstm(phase, own, step, row, dh, alive)

        def source(place: Place, row: Value) -> Value:
            return self._projected_row(phase, place.direction, i64(0), step, row)

        return self._second(phase, Arg.WEIGHTS_PROJECTION, range(1), "projected", source, finish)

    def _second(
        self,
        phase: PhaseFunction,
        weights: int,
        slots: range,
        part: str,
        source: Callable[[Place, Value], Value],
        finish: Callable[[Place, Tile], None],
    ) -> Phase:
        """The second product of a step, which gives gradients of as many channels as cells have."""
        conf = self._conf
        zero = vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
        return self._each_back(phase, conf.rows, BackProduct(
            weights, slots, conf.channels, conf.pair, part, source,
            lambda _place, _row: [zero] * conf.pair, finish,
        ))  # fmt: skip

    def _mixed(
        self,
        phase: PhaseFunction,
        place: Place,
        step: Value,
        row: Value,
        dh: Value,
        alive: Value | None,
    ) -> Value:
        """Of a GRU: all slots of an lbr cell, of others u and o."""
        e, conf = phase.e, self._conf
        u, o = (self._gate(phase, place, step, row, number) for number in (0, 2))
        h = self._states_of(phase, place, step, row)
        attention = None
        if conf.attention is not None:
            time = self._time(e, place.direction, step, layered=False)
            attention = self._splat(phase, Arg.AUGRU_ATTENTION, [time, row, i64(0)])
        du, do, passed, attended = gradient_cells.mixed(e, u, h, o, dh, attention)
        slots = dict(zip((0, 2), (du, do), strict=True))
        if conf.is_lbr:
            r, inner = (self._gate(phase, place, step, row, number) for number in (1, 3))
            dr = gradient_cells.reset(e, r, inner, do)
            slots = {0: do, 1: du, 2: dr, 3: e.b.fmul(do, r)}
        for slot, value in slots.items():
            self._store_slot(phase, place, step, row, slot, value, alive)
        if attention is not None:
            self._attend(phase, place, step, row, self._unless_past(e, alive, attended))
        return passed

    def _attend(
        self, phase: PhaseFunction, place: Place, step: Value, row: Value, value: Value
    ) -> None:
        """Add to the gradients of the attention by the layers above."""
        e = phase.e
        index = [i64(place.direction), step, row, e.mul(place.block, self._lanes)]
        at = self._part(phase, "attended", index)
        if not self._last:
            value = e.b.fadd(value, self._loaded(e, at, None))
        vector.store(e, value, at)

    def _reset(self) -> Phase:
        """Of a GRU whose reset gate multiplies the state: its slot, and the part of the gradients
        of the states before that comes by the product of both."""
        phase = self._phase("reset")
        step = self._now(phase)

        def finish(place: Place, tile: Tile) -> None:
            e = phase.e
            rows = [e.add(place.row, i64(r)) for r in range(place.rows)]
            for row, values in zip(rows, tile, strict=True):
                alive = self._alive_at(phase, place, step, row)
                for own, value in zip(self._blocks_of(e, place), values, strict=True):
                    self._reset_row(phase, own, step, row, value, alive)

        def source(place: Place, row: Value) -> Value:
            return self._slot(phase, replace(place, block=i64(0)), step, row, 2)

        return self._second(phase, Arg.WEIGHTS_ITER, range(2, 3), "gate_diffs", source, finish)

    def _reset_row(
        self,
        phase: PhaseFunction,
        place: Place,
        step: Value,
        row: Value,
        gradient: Value,
        alive: Value | None,
    ) -> None:
        e = phase.e
        r = self._gate(phase, place, step, row, 1)
        h = self._states_of(phase, place, step, row)
        self._store_slot(phase, place, step, row, 1, gradient_cells.reset(e, r, h, gradient), alive)
        at = self._carried(phase, place, row)
        passed = self._unless_past(e, alive, e.b.fmul(gradient, r))
        vector.store(e, e.b.fadd(self._loaded(e, at, place.mask), passed), at)
