"""What the phases of a backward pass share: what the forward pass has left, packed weights whose
inputs are columns, and products with them."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I64, Emitter, Value, Values, i64
from dnnl.codegen.ir.transpose import transpose_registers
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.rnn.gradient_problem import GradientConf
from dnnl.kernels.rnn.memory import Place
from dnnl.kernels.rnn.packing import WeightsPacking
from dnnl.kernels.rnn.problem import along_units
from dnnl.kernels.rnn.product import Factor, Tile, multiply, shaped
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType

_BACK = {
    int(Arg.WEIGHTS_LAYER): "layer_back",
    int(Arg.WEIGHTS_ITER): "iter_back",
    int(Arg.WEIGHTS_PROJECTION): "projection_back",
}


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
        index = [i64(place.direction), place.block, step, row, i64(slot), i64(0)]
        return self._part(phase, "gate_diffs", index)

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
        vector.store(phase.e, value, self._slot(phase, place, step, row, slot))

    def _now(self, phase: PhaseFunction) -> Value:
        """The number of the step."""
        return phase.e.b.load(self._part(phase, "step", [i64(0)]), typ=I64)

    # Packed weights.

    def _pack_back(self, argument: int) -> Phase:
        """Weights with the inputs as columns, in f32: rows of all units, slot by slot."""
        conf, name = self._conf, _BACK[argument]
        desc = conf.tensors[argument]
        columns, units = desc.dims[2], desc.dims[-1]
        width = conf.parts[name].strides[4] // self._lanes
        gates = [0]
        if desc.ndims > 4:
            slots = conf.layer_slots if argument == Arg.WEIGHTS_LAYER else conf.iter_slots
            gates = sorted(range(len(slots)), key=lambda gate: slots[gate])
        phase = self._phase(f"pack_{name}")
        e, blocks = phase.e, conf.blocks(units)

        def item(number: Value) -> None:
            rest, block = e.divmod(number, blocks)
            d, column = e.divmod(rest, conf.blocks(columns))
            group, beside = e.divmod(column, width)

            def square(inputs: Mask, mask: Mask) -> None:
                for slot, gate in enumerate(gates):
                    place = d, column, gate, block
                    rows = self._square(phase, argument, place, inputs, mask)
                    if along_units(desc) and self._lanes > 1:
                        rows = transpose_registers(e, rows)
                    for lane, value in enumerate(rows):
                        index = [d, group, block, i64(slot), i64(lane), beside, i64(0)]
                        vector.store(e, value, self._part(phase, name, index))

            self._each_block(e, column, columns, lambda inputs: self._each_block(
                e, block, units, lambda mask: square(inputs, mask),
            ))  # fmt: skip

        count = conf.directions * conf.blocks(columns) * blocks
        phase.each_item(count, item)
        return phase.end(count)

    def _dot(self, phase: PhaseFunction) -> Multiply:
        """Gradients are products of f32."""
        return self._conf.operands.multiply(phase.e.isa, DataType.f32)

    def _back(
        self, phase: PhaseFunction, argument: int, direction: int, group: Value, slots: range
    ) -> Factor:
        """The packed weights of a group of blocks of inputs, from the first of some slots on."""
        part = self._conf.parts[_BACK[argument]]
        index = [i64(direction), group, i64(0), i64(slots.start), *[i64(0)] * 3]
        pointer = self._part(phase, _BACK[argument], index)
        beside = tuple(range(0, part.strides[4], self._lanes))
        return Factor(pointer, self._dot(phase), part.strides[4], beside, None)

    def _through(
        self,
        phase: PhaseFunction,
        first: Tile,
        rows: Sequence[Value],
        factor: Factor,
        count: int,
        blocks: Value,
        apart: tuple[int, int],
    ) -> Tile:
        """``first`` plus the products of rows, whose ``blocks`` have ``count`` elements each, with
        packed weights. Blocks of the rows, and of the weights, are so many elements ``apart``."""
        e, height, width = phase.e, len(rows), len(factor.gates)

        def one(_: Value, weights: Value, *carried: Value) -> Values:
            pointers, flat = carried[:height], carried[height:]
            own = Factor(weights, factor.multiply, factor.per_block, factor.gates, None)
            tile = multiply(e, shaped(flat, 0, height, width), pointers, own, count)
            following = [e.b.gep(p, [e.number(apart[0])], source_etype=F32) for p in pointers]
            behind = e.b.gep(weights, [i64(apart[1])], source_etype=F32)
            return behind, *following, *(value for row in tile for value in row)

        flat = [value for row in first for value in row]
        carried = e.loop(
            i64(0), blocks, one, (factor.pointer, *rows, *flat), unroll=False, name="block"
        )
        return shaped(carried[1 + height :], 0, height, width)
