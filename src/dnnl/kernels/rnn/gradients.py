"""The gradients of inputs, weights and biases of a layer: products over all steps.

    panels    inputs and states in blocks, [block, step, row, lane], so that weights' gradients
              read both factors from one end to the other
    inputs    rows of the gradients of gates times weights
    weights   blocks of inputs times the gradients of gates
    sums      biases and peepholes: sums of the gradients of gates

Gradients of weights are added to what memory holds, unless they overwrite it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Emitter, Value, Values, i64
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.math import f32 as math
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.rnn.backward_memory import BackwardMemory
from dnnl.kernels.rnn.memory import Place
from dnnl.kernels.rnn.problem import rows_of_tile
from dnnl.kernels.rnn.product import Factor, multiply
from dnnl.runtime.image import Phase
from dnnl.types.arg import GRADIENT, Arg

_BLOCKS_OF_ITEM = 4
_COLUMNS_OF_ITEM = 8
"""Blocks of inputs, and of units, of a work item of weights: rows of inputs stay in the caches for
as many blocks of units, and those for as many blocks of inputs."""

_Load = Callable[[Value, Mask], Value]


class WeightGradients(BackwardMemory):
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

    def _weights(self, argument: int, panel: str, slots: Sequence[int], *, first: int = 0) -> Phase:
        """Gradients of weights: of gates from the ``first`` on, whose slots are these, or of a
        projection. Work items are some blocks of inputs for some blocks of units."""
        conf, lanes, difference = self._conf, self._lanes, argument + GRADIENT
        phase = self._phase(f"weights{argument}_{first}")
        e, desc = phase.e, conf.tensors[difference]
        inputs, units = desc.dims[2], desc.dims[-1]
        height = lanes
        while height > rows_of_tile(e.isa, len(slots)):
            height //= 2
        share, blocks = _BLOCKS_OF_ITEM * lanes, conf.blocks(units)
        parts, shares = -(-blocks // _COLUMNS_OF_ITEM), -(-inputs // share)
        columns = "projected" if argument == Arg.WEIGHTS_PROJECTION else "gate_diffs"
        per_row = conf.parts[columns].strides[3]

        def item(number: Value) -> None:
            rest, part = e.divmod(number, parts)
            d, own = e.divmod(rest, shares)
            begin, start = e.mul(own, share), e.mul(part, _COLUMNS_OF_ITEM)
            end = e.smaller(e.add(begin, i64(share)), i64(inputs))
            last = e.smaller(e.add(start, i64(_COLUMNS_OF_ITEM)), i64(blocks))

            def column(block: Value) -> None:
                self._each_block(e, block, units, lambda mask: self._each_row(
                    e, begin, end, inputs, height,
                    lambda row, count: tile(d, block, row, count, mask),
                ))  # fmt: skip

            e.loop(start, last, column, unroll=False, name="column")

        def tile(d: Value, block: Value, row: Value, count: int, mask: Mask) -> None:
            index = [d, block, i64(0), i64(0), *[i64(0)] * (len(conf.parts[columns].strides) - 4)]
            factor = Factor(
                self._part(phase, columns, index), self._dot(phase), per_row,
                tuple(slot * lanes for slot in slots), None,
            )  # fmt: skip
            source, lane = e.divmod(row, lanes)
            pointer = self._part(phase, panel, [d, source, i64(0), i64(0), lane])
            rows = [e.element(pointer, i64(r), F32) for r in range(count)]
            places = [
                [self._weights_index(d, e.add(row, i64(r)), first + n, block, desc.ndims, e)
                 for n in range(len(slots))]
                for r in range(count)
            ]  # fmt: skip
            before = [[self._held(phase, difference, at, mask) for at in own] for own in places]
            terms = conf.steps * conf.rows
            sums = multiply(e, before, rows, factor, terms, apart=lanes)
            for own, values in zip(places, sums, strict=True):
                for at, value in zip(own, values, strict=True):
                    self._store(phase, difference, at, value, mask)

        count = conf.directions * shares * parts
        phase.each_item(count, item)
        return phase.end(count)

    def _weights_index(
        self, d: Value, row: Value, gate: int, block: Value, ndims: int, e: Emitter
    ) -> list[Value]:
        unit = e.mul(block, self._lanes)
        gates = [i64(gate)] if ndims > 4 else []
        return [i64(self._layer), d, row, *gates, unit]

    def _held(
        self, phase: PhaseFunction, argument: int, index: Sequence[Value], mask: Mask
    ) -> Value:
        """What gradients of weights are added to."""
        if self._conf.overwrites:
            return vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
        return self._load(phase, argument, index, mask)

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
