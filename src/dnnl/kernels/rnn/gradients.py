"""The gradients of inputs, weights and biases of a layer: products over all steps.

    panels    inputs and states in blocks, [block, step, row, lane], so that weights' gradients
              read both factors from one end to the other
    inputs    rows of the gradients of gates times weights
    weights   blocks of inputs times the gradients of gates
    sums      biases and peepholes: sums of the gradients of gates

Gradients of weights are added to what memory holds, unless they overwrite it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Value, Values, i64
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.math import f32 as math
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.rnn.memory import Place
from dnnl.kernels.rnn.weight_products import WeightProducts
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg

_Load = Callable[[Value, Mask], Value]


class WeightGradients(WeightProducts):
    """Writes the phases of a layer behind its steps."""

    def panels(self) -> Phase:
        """What gradients of weights multiply, by blocks. What is behind the end of a sequence is
        zero, whatever its inputs are."""
        conf = self._conf
        phase = self._phase("panels")
        e = phase.e

        def item(number: Value) -> None:
            rest, row = e.divmod(number, conf.rows)
            direction, step = e.divmod(rest, conf.steps)
            self._each_direction(e, direction, lambda d: of(d, step, row))

        def of(d: int, step: Value, row: Value) -> None:
            time = self._time(e, d, step, layered=False)
            alive = self._alive(phase, time, row)
            for name, channels, load in self._panels(phase, d, step, row, time):
                to = self._part(phase, name, [i64(d), i64(0), step, row, i64(0)])
                apart = conf.steps * conf.rows

                def one(
                    at: Value, mask: Mask, to: Value = to, apart: int = apart, load: _Load = load
                ) -> None:
                    value = self._unless_past(e, alive, load(at, mask))
                    vector.store(e, value, e.element(to, e.mul(at, apart), F32))

                self._each_vector(e, channels, one)

        count = conf.directions * conf.steps * conf.rows
        phase.each_item(count, item)
        return phase.end(count)

    def _panels(
        self, phase: PhaseFunction, d: int, step: Value, row: Value, time: Value
    ) -> Iterator[tuple[str, int, _Load]]:
        """Name, channels and contents of each panel."""
        conf, e = self._conf, phase.e
        direction = i64(d)

        def inputs(at: Value, mask: Mask) -> Value:
            if self._layer == 0:
                return self._load(phase, Arg.SRC_LAYER, [time, row, at], mask)
            below = self._state(phase, direction, e.add(step, i64(1)), row, self._layer - 1)
            return self._loaded(e, e.element(below, at, F32), mask)

        def states(at: Value, mask: Mask) -> Value:
            before = self._state(phase, direction, step, row)
            return self._loaded(e, e.element(before, at, F32), mask)

        def gate(number: int, at: Value, mask: Mask) -> Value:
            index = [i64(self._layer), direction, step, row, i64(number), at]
            return self._loaded(e, self._part(phase, "gates", index), mask)

        def reset(at: Value, mask: Mask) -> Value:
            return e.b.fmul(gate(1, at, mask), states(at, mask))

        def projected(at: Value, mask: Mask) -> Value:
            behind = self._cells(phase, direction, e.add(step, i64(1)), row)
            c = self._loaded(e, e.element(behind, at, F32), mask)
            return e.b.fmul(gate(3, at, mask), math.tanh(e, c))

        yield "inputs", conf.inputs, inputs
        yield "before", conf.before, states
        if conf.is_gru:
            yield "second", conf.channels, reset
        if conf.projection is not None:
            yield "second", conf.channels, projected

    def products(self) -> list[Phase]:
        """All gradients that are sums over steps, or products of the gates of all of them."""
        conf = self._conf
        there = bool(conf.steps and conf.rows)
        made = []
        if there and conf.inputs and self._gives_inputs:
            made.append(self._inputs())
        if conf.inputs:
            made.append(self._weights(Arg.WEIGHTS_LAYER, "inputs", conf.layer_slots))
        if conf.is_gru:
            made.append(self._weights(Arg.WEIGHTS_ITER, "before", conf.iter_slots[:2]))
            made.append(self._weights(Arg.WEIGHTS_ITER, "second", conf.iter_slots[2:], first=2))
        else:
            made.append(self._weights(Arg.WEIGHTS_ITER, "before", conf.iter_slots))
        if conf.projection is not None:
            made.append(self._weights(Arg.WEIGHTS_PROJECTION, "second", (0,)))
        if conf.diff_bias is not None or conf.peephole is not None:
            made.append(self._sums())
        if there and conf.diff_attention is not None and self._layer == 0:
            made.append(self._attention())
        return made

    @property
    def _gives_inputs(self) -> bool:
        """Whether anybody reads the gradients of the inputs."""
        return self._layer > 0 or self._conf.diff_src_layer is not None

    def _inputs(self) -> Phase:
        """Gradients of src, for both directions at once, or of the results of the layer below."""
        conf = self._conf
        phase, width = self._phase("inputs"), conf.group
        first = self._layer == 0

        def write(place: Place) -> None:
            e = phase.e
            flat = [e.add(place.row, i64(r)) for r in range(place.rows)]
            rows = [e.divmod(row, conf.rows) for row in flat]
            zero = vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
            tile = [[zero] * width for _ in rows]
            for d in range(conf.directions) if first else (place.direction,):
                sources = []
                for time, row in rows:
                    step = self._time(e, d, time)
                    sources.append(self._slot(phase, Place(d, i64(0), row, 1, None), step, row, 0))
                factor = self._back(phase, Arg.WEIGHTS_LAYER, d, place.block, range(1))
                apart = conf.parts["gate_diffs"].strides[1], conf.parts["layer_back"].strides[2]
                blocks = i64(conf.blocks(conf.channels))
                tile = self._through(
                    phase, tile, sources, factor, conf.gates * self._lanes, blocks, apart
                )
            for (time, row), values in zip(rows, tile, strict=True):
                for number, value in enumerate(values):
                    block = e.add(e.mul(place.block, width), i64(number))
                    unit = e.mul(block, self._lanes)
                    if first:
                        mask = place.mask if number == width - 1 else None
                        self._store(phase, Arg.DIFF_SRC_LAYER, [time, row, unit], value, mask)
                    else:
                        index = [i64(place.direction), time, row, unit]
                        vector.store(e, value, self._part(phase, "below", index))

        rows = conf.steps * conf.rows
        return self._each_tile(phase, conf.inputs, rows, width, write, width=width, joined=first)

    def _sums(self) -> Phase:
        """Gradients of biases and peepholes."""
        conf = self._conf
        phase = self._phase("sums")
        e = phase.e
        biases = conf.bias_slots if conf.diff_bias is not None else ()
        peepholes = (0, 1, 3) if conf.peephole is not None else ()

        def item(number: Value) -> None:
            direction, block = e.divmod(number, conf.blocks(conf.channels))
            self._each_direction(e, direction, lambda d: self._each_block(
                e, block, conf.channels, lambda mask: of(Place(d, block, i64(0), 1, mask)),
            ))  # fmt: skip

        def of(place: Place) -> None:
            unit = e.mul(place.block, self._lanes)
            results = [
                (argument, [i64(self._layer), i64(place.direction), i64(number), unit])
                for argument, slots in (
                    (Arg.DIFF_BIAS, biases), (Arg.DIFF_WEIGHTS_PEEPHOLE, peepholes),
                )
                for number in range(len(slots))
            ]  # fmt: skip
            before = tuple(self._held(phase, own, at, place.mask) for own, at in results)

            def one(flat: Value, *sums: Value) -> Values:
                step, row = e.divmod(flat, conf.rows)
                slots = {
                    slot: self._loaded(e, self._slot(phase, place, step, row, slot), None)
                    for slot in {*biases, *peepholes}
                }
                added = [e.b.fadd(sums[n], slots[slot]) for n, slot in enumerate(biases)]
                if not peepholes:
                    return tuple(added)
                cells = [self._cell(phase, place, at, row) for at in (step, e.add(step, i64(1)))]
                seen = (cells[0], cells[0], cells[1])
                for own, c, total in zip(peepholes, seen, sums[len(biases) :], strict=True):
                    added.append(vector.multiply_add(e, slots[own], c, total))
                return tuple(added)

            rows = e.number(conf.steps * conf.rows)
            sums = e.loop(i64(0), rows, one, before, unroll=False, name="row")
            for (argument, index), value in zip(results, sums, strict=True):
                self._store(phase, argument, index, value, place.mask)

        count = conf.directions * conf.blocks(conf.channels)
        phase.each_item(count, item)
        return phase.end(count)

    def _attention(self) -> Phase:
        """Gradients of the attention: sums over the units of both directions."""
        conf = self._conf
        phase = self._phase("attention")
        e = phase.e
        stored = storage(conf.tensors[Arg.DIFF_AUGRU_ATTENTION].data_type)

        def item(number: Value) -> None:
            time, row = e.divmod(number, conf.rows)
            total = vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
            for d in range(conf.directions):
                step = self._time(e, d, time, layered=False)
                start = self._part(phase, "attended", [i64(d), step, row, i64(0)])

                def one(at: Value, sums: Value, start: Value = start) -> Values:
                    return (e.b.fadd(sums, self._loaded(e, e.element(start, at, F32), None)),)

                wide = i64(conf.blocks(conf.channels) * self._lanes)
                (total,) = e.loop(
                    i64(0), wide, one, (total,), step=self._lanes, unroll=False, name="c"
                )
            lanes = vector.each_lane(e, total)
            value = lanes[0]
            for other in lanes[1:]:
                value = e.b.fadd(value, other)
            value = stored.from_core(e, vector.splat(e, value, 1))
            at = self._address(phase, Arg.DIFF_AUGRU_ATTENTION, [time, row, i64(0)])
            vector.store(e, value, at)

        count = conf.steps * conf.rows
        phase.each_item(count, item)
        return phase.end(count)
