"""The gradients of inputs, weights and biases of a layer: products over all steps.

    panels    `Panels`: what gradients of weights multiply
    inputs    rows of the gradients of gates times weights
    weights   `WeightProducts`: inputs times the gradients of gates
    sums      biases and peepholes: sums of the gradients of gates

Gradients of weights are added to what memory holds, unless they overwrite it.
"""

from __future__ import annotations

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Value, Values, i64
from dnnl.kernels.rnn.back_products import BackProduct
from dnnl.kernels.rnn.memory import Place
from dnnl.kernels.rnn.product import Tile
from dnnl.kernels.rnn.weight_products import WeightProducts
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg


class WeightGradients(WeightProducts):
    """Writes the phases of a layer behind its steps."""

    def products(self) -> list[Phase]:
        """All gradients that are sums over steps, or products of the gates of all of them."""
        conf = self._conf
        there = bool(conf.steps and conf.rows)
        made = []
        if there and conf.inputs and self._gives_inputs:
            made += self._inputs()
        if conf.inputs:
            made += self._weights(Arg.WEIGHTS_LAYER, "inputs", conf.layer_slots)
        if conf.is_gru:
            made += self._weights(Arg.WEIGHTS_ITER, "before", conf.iter_slots[:2])
            made += self._weights(Arg.WEIGHTS_ITER, "second", conf.iter_slots[2:], first=2)
        else:
            made += self._weights(Arg.WEIGHTS_ITER, "before", conf.iter_slots)
        if conf.projection is not None:
            made += self._weights(Arg.WEIGHTS_PROJECTION, "second", (0,))
        if conf.diff_bias is not None or conf.peephole is not None:
            made.append(self._sums())
        if there and conf.diff_attention is not None and self._layer == 0:
            made.append(self._attention())
        return made

    @property
    def _gives_inputs(self) -> bool:
        """Whether anybody reads the gradients of the inputs."""
        return self._layer > 0 or self._conf.diff_src_layer is not None

    def _inputs(self) -> list[Phase]:
        """Gradients of src, which both directions add to, or of the results of the layer below."""
        if self._layer > 0:
            return [self._inputs_of(None)]
        return [self._inputs_of(d) for d in range(self._conf.directions)]

    def _inputs_of(self, direction: int | None) -> Phase:
        """Those by one direction, or by each apart."""
        conf, name = self._conf, "inputs" if direction is None else f"inputs{direction}_"
        phase, width = self._phase(name), conf.group
        e, zero = phase.e, vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
        behind = direction is not None and direction < conf.directions - 1

        def source(place: Place, flat: Value) -> Value:
            step, row = e.divmod(flat, conf.rows)  # in the order of steps, in which rows follow
            d = place.direction if direction is None else direction
            return self._slot(phase, Place(d, i64(0), row, 1, None), step, row, 0)

        def time_of(flat: Value) -> tuple[Value, Value]:
            step, row = e.divmod(flat, conf.rows)
            return step if direction is None else self._time(e, direction, step), row

        def units(place: Place) -> list[Value]:
            blocks = [e.add(e.mul(place.block, width), i64(number)) for number in range(width)]
            return [e.mul(block, self._lanes) for block in blocks]

        def added(flat: Value, unit: Value) -> Value:
            return self._part(phase, "added", [*time_of(flat), unit])

        def first(place: Place, flat: Value) -> list[Value]:
            if not direction:
                return [zero] * width
            return [self._loaded(e, added(flat, unit), None) for unit in units(place)]

        def finish(place: Place, tile: Tile) -> None:
            for r, values in enumerate(tile):
                flat = e.add(place.row, i64(r))
                time, row = time_of(flat)
                for number, (unit, value) in enumerate(zip(units(place), values, strict=True)):
                    if behind:
                        vector.store(e, value, added(flat, unit))
                    elif direction is not None:
                        mask = place.mask if number == width - 1 else None
                        self._store(phase, Arg.DIFF_SRC_LAYER, [time, row, unit], value, mask)
                    else:
                        index = [i64(place.direction), time, row, unit]
                        vector.store(e, value, self._part(phase, "below", index))

        return self._each_back(phase, conf.steps * conf.rows, BackProduct(
            Arg.WEIGHTS_LAYER, range(conf.gates), conf.inputs, width, "gate_diffs", source, first,
            finish, direction=direction,
        ))  # fmt: skip

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
            rows_of = [(Arg.DIFF_BIAS, conf.place_of(number)) for number in range(len(biases))]
            rows_of += [(Arg.DIFF_WEIGHTS_PEEPHOLE, number) for number in range(len(peepholes))]
            results = [
                (argument, [i64(self._layer), i64(place.direction), i64(number), unit])
                for argument, number in rows_of
            ]
            before = tuple(self._held(phase, own, at, place.mask) for own, at in results)

            def one(flat: Value, *sums: Value) -> Values:
                step, row = e.divmod(flat, conf.rows)
                slots = {
                    slot: self._slot_value(phase, place, step, row, slot)
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
        phase = self._phase("attention_sums")
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
