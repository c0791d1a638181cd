"""What the phases of a backward pass share: what the forward pass has left, and the gradients of
gates."""

from __future__ import annotations

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I64, Emitter, Value, i64
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.rnn.gradient_problem import GradientConf
from dnnl.kernels.rnn.memory import Place
from dnnl.kernels.rnn.packing import WeightsPacking


class BackwardMemory(WeightsPacking):
    """The tensors and temporaries of the gradient of a layer."""

    _conf: GradientConf

    def _loaded(self, e: Emitter, pointer: Value, mask: Mask) -> Value:
        return vector.load(e, pointer, vector.vector_type(F32, self._lanes), mask)

    # What the forward pass has left.

    def _gate(
        self, phase: PhaseFunction, place: Place, step: Value, row: Value, number: int
    ) -> Value:
        """A gate of the units of a block."""
        unit = phase.e.mul(place.block, self._lanes)
        index = [i64(self._layer), i64(place.direction), step, row, i64(number), unit]
        return self._loaded(phase.e, self._part(phase, "gates", index), place.mask)

    def _cell(self, phase: PhaseFunction, place: Place, step: Value, row: Value) -> Value:
        """The cells of the units of a block before a step."""
        e = phase.e
        start = self._cells(phase, i64(place.direction), step, row)
        return self._loaded(e, e.element(start, e.mul(place.block, self._lanes), F32), place.mask)

    # Gradients of gates.

    def _slot(
        self, phase: PhaseFunction, place: Place, step: Value, row: Value, slot: int
    ) -> Value:
        """Where the gradients of a gate are."""
        conf, e = self._conf, phase.e
        index = [i64(place.direction), place.block, step, row, i64(slot), i64(0)]
        if conf.in_pairs:
            unit = e.add(i64(slot * conf.pitch(conf.channels)), e.mul(place.block, self._lanes))
            index = [i64(place.direction), step, row, unit]
        return self._part(phase, "gate_diffs", index)

    def _slot_value(
        self, phase: PhaseFunction, place: Place, step: Value, row: Value, slot: int
    ) -> Value:
        """The gradients of a gate of the units of a block."""
        start = self._slot(phase, place, step, row, slot)
        return self._get(phase.e, "gate_diffs", start, i64(0))

    def _store_slot(
        self,
        phase: PhaseFunction,
        place: Place,
        step: Value,
        row: Value,
        slot: int,
        value: Value,
        alive: Value | None,
    ) -> None:
        value = self._unless_past(phase.e, alive, value)
        start = self._slot(phase, place, step, row, slot)
        self._put(phase.e, "gate_diffs", start, i64(0), value)

    def _projected_row(
        self, phase: PhaseFunction, direction: int, block: Value, step: Value, row: Value
    ) -> Value:
        """Where the gradients of what a projection gives are."""
        index = [i64(direction), block, step, row, i64(0)]
        if self._conf.in_pairs:
            index = [i64(direction), step, row, phase.e.mul(block, self._lanes)]
        return self._part(phase, "projected", index)

    def _clear_gaps(self, phase: PhaseFunction, direction: Value, row: Value) -> None:
        """Zeros behind the units of each slot of a row, in all steps, and behind its outputs:
        products of pairs read whole K blocks."""
        conf, e = self._conf, phase.e
        pitch, gaps = conf.pitch(conf.channels), list[tuple[str, int]]()
        for slot in range(conf.slots):
            first = self._lanes * conf.blocks(conf.channels)
            gaps += [("gate_diffs", slot * pitch + unit)
                     for unit in range(first, pitch, self._lanes)]  # fmt: skip
        if conf.projection is not None:
            first = self._lanes * conf.blocks(conf.outputs)
            gaps += [("projected", unit)
                     for unit in range(first, conf.pitch(conf.outputs), self._lanes)]  # fmt: skip
        zero = vector.splat_constant(vector.vector_type(F32, self._lanes), 0)

        def clear(step: Value) -> None:
            for name, unit in gaps:
                to = self._part(phase, name, [direction, step, row, i64(unit)])
                self._put(e, name, to, i64(0), zero)

        if gaps:
            e.loop(i64(0), e.number(conf.steps), clear, unroll=False, name="step")

    def _now(self, phase: PhaseFunction) -> Value:
        """The number of the step."""
        return phase.e.b.load(self._part(phase, "step", [i64(0)]), typ=I64)
