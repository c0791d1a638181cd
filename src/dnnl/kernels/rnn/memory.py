"""Where the phases of a layer find what they read and write: tensors and parts of the scratchpad.

What is loaded becomes f32, and what is stored is converted from it to the type that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dnnl.codegen.conversion.convert import Storage, storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I8, I32, I64, Emitter, Module, Value, i64
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.rnn.problem import RnnConf
from dnnl.kernels.rnn.product import Factor, Tile
from dnnl.kernels.rnn.quantized import quantized
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import surely_equal

PACKED = {
    int(Arg.WEIGHTS_LAYER): "layer_weights",
    int(Arg.WEIGHTS_ITER): "iter_weights",
    int(Arg.WEIGHTS_PROJECTION): "projection_weights",
}
"""The parts of the scratchpad for weights that are packed."""
SUMS = {
    int(Arg.WEIGHTS_LAYER): "layer_sums",
    int(Arg.WEIGHTS_ITER): "iter_sums",
    int(Arg.WEIGHTS_PROJECTION): "projection_sums",
}
"""Those for the sums of their columns."""


@dataclass(frozen=True)
class Place:
    """Where a work item is: its direction, block of units and first row, and how many rows."""

    direction: int
    block: Value
    row: Value
    rows: int
    mask: Mask


@dataclass(frozen=True)
class Product:
    """What a phase multiplies: ``weights`` of some ``gates`` by ``inputs`` operands of each row
    from its ``source`` on; rows of operands are those of a ``part`` of the scratchpad. The sums are
    added to the vectors that are ``first``, one for each gate, and ``finish`` is what becomes of
    them. A ``factor`` of its own is what is multiplied instead of weights as a forward pass has
    them, with columns of ``width`` blocks as its gates; where ``nothing`` is true, sums are zeros.
    ``joined`` products are those of one direction."""

    weights: int
    gates: Sequence[int]
    inputs: int
    part: str
    source: Callable[[Place, Value], Value]
    first: Callable[[Place, Value], list[Value]]
    finish: Callable[[Place, Tile], None]
    factor: Callable[[Place], Factor] | None = None
    width: int = 1
    joined: bool = False
    nothing: Value | None = None


class LayerMemory:
    """The tensors and temporaries of a layer."""

    def __init__(self, conf: RnnConf, module: Module, arguments: Arguments, layer: int) -> None:
        self._conf, self._module, self._layer = conf, module, layer
        self._lanes = conf.lanes
        self._last = layer == conf.layers - 1
        self._tensors = {
            argument: (arguments.slot(argument), desc)
            for argument, desc in (conf.tensors | conf.parameters).items()
        }
        self._scratchpad = arguments.slot(Arg.SCRATCHPAD)
        self._trains = conf.workspace is not None
        self._tables: dict[bytes, Value] = {}

    def _phase(self, name: str) -> PhaseFunction:
        slots = [slot for slot, _ in self._tensors.values()]
        operands = self._conf.operands
        kind = operands.data if operands.byte_pairs else self._conf.src_layer.data_type
        symbol = f"rnn__{name}{self._layer}__{kind}__{self._lanes}x1__{self._module.isa.name}"
        return PhaseFunction(self._module, symbol, [*slots, self._scratchpad])

    # Parts of the scratchpad.

    def _part(self, phase: PhaseFunction, name: str, index: Sequence[Value]) -> Value:
        """The address of an element of a part of the scratchpad, or of the workspace."""
        part, e = self._conf.parts[name], phase.e
        own = part.argument == Arg.SCRATCHPAD
        slot = self._scratchpad if own else self._tensors[part.argument][0]
        base = e.element(phase.arguments[slot], e.number(part.begin), I8)
        terms = [e.mul(own, stride) for own, stride in zip(index, part.strides, strict=True)]
        return e.element(base, e.total(0, terms), storage(part.data_type).element)

    def _form(self, kind: DataType, shift: float) -> Storage:
        """How numbers are stored as a type: where they are integers, quantized with a shift."""
        integers = self._conf.src_layer.data_type.is_integer and kind in (DataType.u8, DataType.s8)
        form = storage(kind)
        return quantized(form, self._conf.qparams.scale, shift) if integers else form

    def _get(self, e: Emitter, name: str, row: Value, unit: Value, mask: Mask = None) -> Value:
        """A vector of a row of a part. Rows of the workspace have nothing behind the ``mask``,
        those of the scratchpad whole vectors."""
        part = self._conf.parts[name]
        form = self._form(part.data_type, self._conf.shift)
        kind = vector.vector_type(form.element, self._lanes)
        own = mask if part.argument == Arg.WORKSPACE else None
        return form.to_core(e, vector.load(e, e.element(row, unit, form.element), kind, own))

    def _put(
        self, e: Emitter, name: str, row: Value, unit: Value, value: Value, mask: Mask = None
    ) -> None:
        """Store a vector to a row of a part, see `_get`. Operands have zeros behind the ``mask``:
        products read whole K groups, and what is not finite times a weight of 0 is NaN."""
        part = self._conf.parts[name]
        is_operand = name in (*self._conf.channels_of_rows, "left")
        if mask is not None and is_operand and self._conf.operands.group > 1:
            value = e.b.select(mask, value, vector.splat_constant(value.type, 0))
        form = self._form(part.data_type, self._conf.shift)
        own = mask if part.argument == Arg.WORKSPACE else None
        vector.store(e, form.from_core(e, value), e.element(row, unit, form.element), own)

    def _clear(self, e: Emitter, name: str, row: Value, channels: int) -> None:
        """Zeros behind so many channels of a row of operands, to the end of its last K block."""
        zero = vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
        for unit in range(self._lanes * self._conf.blocks(channels), self._conf.pitch(channels),
                          self._lanes):  # fmt: skip
            self._put(e, name, row, i64(unit), zero)

    def _source(self, phase: PhaseFunction, direction: int, row: Value) -> Value:
        """The inputs of a row of all steps: of src, or of the layer below in the order of steps."""
        conf, e = self._conf, phase.e
        if self._layer == 0 and conf.converts:
            return self._part(phase, "inputs", [row, i64(0)])
        if self._layer == 0:
            strides = conf.src_layer.strides
            dense = surely_equal(strides[0], conf.rows * strides[1])
            step, n = (i64(0), row) if dense else e.divmod(row, conf.rows)
            return self._address(phase, Arg.SRC_LAYER, [step, n, i64(0)])
        return self._operand(phase, i64(direction), i64(1), row, self._layer - 1)

    def _products(self, phase: PhaseFunction, place: Place, row: Value, gate: int) -> Value:
        """A vector of the products of the inputs; rows are those of all steps."""
        index = [i64(place.direction), row, place.block, i64(gate), i64(0)]
        return self._part(phase, "products", index)

    def _state(
        self,
        phase: PhaseFunction,
        direction: Value,
        step: Value,
        row: Value,
        layer: int | None = None,
    ) -> Value:
        """What is left of the states of a row before a step, of this layer or another one."""
        return self._states(phase, "left", direction, step, row, layer)

    def _operand(
        self,
        phase: PhaseFunction,
        direction: Value,
        step: Value,
        row: Value,
        layer: int | None = None,
    ) -> Value:
        """The states of a row before a step as products read them."""
        return self._states(phase, "states", direction, step, row, layer)

    def _states(
        self,
        phase: PhaseFunction,
        name: str,
        direction: Value,
        step: Value,
        row: Value,
        layer: int | None,
    ) -> Value:
        """A row of a part: the workspace has the states of all layers, the scratchpad those of two
        in turn."""
        own = self._layer if layer is None else layer
        all_layers = self._conf.parts[name].argument == Arg.WORKSPACE
        place = i64(own if all_layers else own % 2)
        return self._part(phase, name, [place, direction, step, row, i64(0)])

    def _states_of(self, phase: PhaseFunction, place: Place, step: Value, row: Value) -> Value:
        """The states of the units of a block, in a row, before a step."""
        e = phase.e
        start = self._state(phase, i64(place.direction), step, row)
        unit = e.mul(place.block, self._lanes)
        return self._get(e, "left", start, unit, place.mask)

    def _store_gates(
        self,
        phase: PhaseFunction,
        place: Place,
        step: Value,
        r: int,
        gates: Sequence[Value],
        first: int = 0,
    ) -> None:
        """Gates of a row, from the ``first`` on, for the gradient: in training. Behind the end of a
        sequence they are zeros."""
        if not self._trains:
            return
        e = phase.e
        row, unit = e.add(place.row, i64(r)), e.mul(place.block, self._lanes)
        alive = self._alive(phase, self._time(e, place.direction, step, layered=False), row)
        for number, value in enumerate(gates, first):
            index = [i64(self._layer), i64(place.direction), step, row, i64(number), unit]
            own = self._unless_past(e, alive, value)
            vector.store(e, own, self._part(phase, "gates", index), place.mask)

    def _cells(self, phase: PhaseFunction, direction: Value, step: Value, row: Value) -> Value:
        """The cells of a row before a step; but in training those behind it take their place."""
        if self._trains:
            index = [i64(self._layer), direction, step, row, i64(0)]
            return self._part(phase, "cells", index)
        return self._part(phase, "cells", [direction, row, i64(0)])

    def _row(self, phase: PhaseFunction, name: str, direction: int, row: Value) -> Value:
        """A row of the cells, or of what the first product of a step leaves."""
        return self._part(phase, name, [i64(direction), row, i64(0)])

    def _time(self, e: Emitter, direction: int, step: Value, *, layered: bool = True) -> Value:
        """The time of a step. With ``layered`` the place of its products: layers above the first
        have them in the order of steps."""
        if not self._conf.reverse[direction] or (layered and self._layer > 0):
            return step
        return e.b.sub(e.number(self._conf.steps - 1), step)

    # Tensors.

    def _address(self, phase: PhaseFunction, argument: int, index: Sequence[Value]) -> Value:
        """The address of an element of a tensor without blocks."""
        slot, desc = self._tensors[argument]
        e = phase.e
        terms = [e.mul(own, stride) for own, stride in zip(index, desc.strides, strict=True)]
        offset = e.total(desc.offset0, terms)
        return e.element(phase.arguments[slot], offset, storage(desc.data_type).element)

    def _load(
        self,
        phase: PhaseFunction,
        argument: int,
        index: Sequence[Value],
        mask: Mask,
    ) -> Value:
        """A vector of channels."""
        row = self._form(self._tensors[argument][1].data_type, self._conf.qparams.shift)
        kind = vector.vector_type(row.element, self._lanes)
        loaded = vector.load(phase.e, self._address(phase, argument, index), kind, mask)
        return row.to_core(phase.e, loaded)

    def _store(
        self,
        phase: PhaseFunction,
        argument: int,
        index: Sequence[Value],
        value: Value,
        mask: Mask,
    ) -> None:
        """A vector of channels, rounded to the type of the tensor."""
        row = self._form(self._tensors[argument][1].data_type, self._conf.qparams.shift)
        stored = row.from_core(phase.e, value)
        vector.store(phase.e, stored, self._address(phase, argument, index), mask)

    def _splat(self, phase: PhaseFunction, argument: int, index: Sequence[Value]) -> Value:
        """One element in all lanes."""
        row, e = storage(self._tensors[argument][1].data_type), phase.e
        one = vector.vector_type(row.element, 1)
        loaded = vector.load(e, self._address(phase, argument, index), one)
        return vector.splat(e, vector.only(e, row.to_core(e, loaded)), self._lanes)

    def _vector(self, phase: PhaseFunction, argument: int, place: Place, gate: int) -> Value:
        """The units of a block of a tensor of layers, directions, gates and channels."""
        unit = phase.e.mul(place.block, self._lanes)
        index = [i64(self._layer), i64(place.direction), i64(gate), unit]
        return self._load(phase, argument, index, place.mask)

    def _biases(self, phase: PhaseFunction, place: Place, gates: Sequence[int]) -> list[Value]:
        if self._conf.bias is None:
            kind = vector.vector_type(F32, self._lanes)
            return [vector.splat_constant(kind, 0) for _ in gates]
        places = map(self._conf.place_of, gates)
        return [self._vector(phase, Arg.BIAS, place, own) for own in places]

    def _gate_offset(self, desc: MemoryDesc, gate: int) -> int:
        """How many elements weights have before those of a gate; a projection has no gates."""
        return self._conf.place_of(gate) * desc.strides[3] if desc.ndims == 5 else 0

    def _factor(
        self, phase: PhaseFunction, argument: int, place: Place, gates: Sequence[int]
    ) -> Factor:
        """The weights of a block: [layers, directions, inputs, gates, units], in blocks of units or
        not; a projection has no gates."""
        slot, desc = self._tensors[argument]
        operands, isa = self._conf.operands, phase.e.isa
        less = []
        if not operands.is_integer:
            less = self._parameters(phase, Arg.ZERO_POINTS | argument, place, gates)
        if self._conf.packs(desc):
            name = PACKED[argument]
            strides = self._conf.parts[name].strides
            zeros = [i64(0)] * (len(strides) - 2)
            pointer = self._part(phase, name, [i64(place.direction), place.block, *zeros])
            apart = tuple(gate * strides[3] for gate in gates)
            multiply = operands.multiply(isa, operands.weights)
            return Factor(pointer, multiply, strides[2], apart, None, less)
        e, strides = phase.e, desc.strides
        blocked = bool(desc.inner_blocks)
        per_block = strides[-1] if blocked else self._lanes * strides[-1]
        start = desc.offset0 + self._layer * strides[0] + place.direction * strides[1]
        offset = e.add(e.number(start), e.mul(place.block, per_block))
        multiply = operands.multiply(isa, desc.data_type)
        pointer = e.element(phase.arguments[slot], offset, multiply.element[1])
        apart = tuple(self._gate_offset(desc, gate) for gate in gates)
        mask = None if blocked else place.mask
        return Factor(pointer, multiply, strides[2], apart, mask, less)

    def _parameters(
        self, phase: PhaseFunction, argument: int, place: Place, gates: Sequence[int]
    ) -> list[Value]:
        """Scales or zero points of weights for the units of a block, of each gate; none where there
        are none."""
        if argument not in self._tensors:
            return []
        dims, unit = self._tensors[argument][1].dims, phase.e.mul(place.block, self._lanes)
        found = list[Value]()
        for gate in gates:
            of_gate = [i64(self._conf.place_of(gate))] if len(dims) == 5 else []
            every = [i64(self._layer), i64(place.direction), i64(0), *of_gate, unit]
            index = [at if size > 1 else i64(0) for at, size in zip(every, dims, strict=True)]
            if dims[-1] == 1:
                found.append(self._splat(phase, argument, index))
            else:
                found.append(self._load(phase, argument, index, place.mask))
        return found

    def _weights_scales(self, phase: PhaseFunction, place: Place, product: Product) -> list[Value]:
        """What sums of integers are multiplied by, for each gate."""
        e, kind, data = phase.e, vector.vector_type(F32, self._lanes), self._conf.qparams.scale
        own = self._conf.scales(product.weights)
        if not own.mask:
            return [vector.splat_constant(kind, 1 / (data * own.values[0]))] * len(product.gates)
        units = self._tensors[product.weights][1].dims[-1]
        padded = self._lanes * self._conf.blocks(units)
        factors = np.zeros((len(own.values) // units, padded))
        factors[:, :units] = 1 / (data * np.reshape(own.values, (-1, units)))
        key = bytes(factors)
        if key not in self._tables:
            self._tables[key] = self._module.table(F32, factors)
        unit, found = e.mul(place.block, self._lanes), list[Value]()
        projects = product.weights == Arg.WEIGHTS_PROJECTION
        for row in product.gates if projects else map(self._conf.place_of, product.gates):
            at = e.add(unit, i64(row * padded))
            found.append(vector.load(e, e.element(self._tables[key], at, F32), kind))
        return found

    # Lengths of sequences.

    def _alive(self, phase: PhaseFunction, time: Value, row: Value) -> Value | None:
        """Whether a row has this time; None where all rows have all of them."""
        if self._conf.lengths is None:
            return None
        b = phase.e.b
        length = b.load(self._address(phase, Arg.SEQUENCE_LENGTHS, [row]), typ=I32)
        return b.icmp_signed("<", time, b.sext(length, I64))

    @staticmethod
    def _unless_past(
        e: Emitter, alive: Value | None, value: Value, otherwise: Value | None = None
    ) -> Value:
        """The value where the row has the time, else another one, or zeros."""
        if alive is None:
            return value
        return e.b.select(alive, value, otherwise or vector.splat_constant(value.type, 0))

    # Rows.

    def _clear_states(self, phase: PhaseFunction, direction: Value, row: Value) -> None:
        """Zeros behind the channels of a row of operands that cells write: products read whole K
        blocks, in which NaN times a weight of 0 would be NaN."""
        conf, e = self._conf, phase.e
        if conf.in_two:
            between = self._part(phase, "between", [direction, row, i64(0)])
            self._clear(e, "between", between, conf.channels)

        def clear(step: Value, channels: int = conf.outputs) -> None:
            self._clear(e, "states", self._operand(phase, direction, step, row), channels)

        clear(i64(0), conf.before)
        if conf.pitch(conf.outputs) > self._lanes * conf.blocks(conf.outputs):
            e.loop(i64(1), e.number(conf.steps + 1), clear, unroll=False, name="step")

    def _fill_gaps(self, phase: PhaseFunction, direction: Value, row: Value) -> None:
        """Zeros behind the states of a row of the workspace, before a single step or behind it,
        whichever are fewer: what a primitive writes does not depend on what memory held."""
        conf, e = self._conf, phase.e
        zero = vector.splat_constant(vector.vector_type(F32, self._lanes), 0)
        step, channels = min(enumerate((conf.before, conf.outputs)), key=lambda pair: pair[1])
        gap = e.element(self._state(phase, direction, i64(step), row), i64(channels), F32)

        def fill(at: Value, mask: Mask) -> None:
            self._put(e, "left", gap, at, zero, mask)

        if conf.widest > channels:
            self._each_vector(e, conf.widest - channels, fill)

    def _grouped(
        self, phase: PhaseFunction, argument: int, rows: Sequence[Sequence[Value]], mask: Mask
    ) -> Value:
        """The weights of the inputs of a K group, side by side for each unit."""
        e = phase.e
        if self._conf.operands.group == 1:
            return self._load(phase, argument, rows[0], mask)
        element = storage(self._tensors[argument][1].data_type).element
        kind = vector.vector_type(I32, self._lanes)
        total: Value = vector.splat_constant(kind, 0)
        for number, index in enumerate(rows):
            narrow = vector.vector_type(element, self._lanes)
            own = vector.load(e, self._address(phase, argument, index), narrow, mask)
            shift = vector.splat_constant(kind, element.width * number)
            total = e.b.or_(total, e.b.shl(e.b.zext(own, kind), shift))
        return total

    def _fill(
        self, phase: PhaseFunction, name: str, to: Value, argument: int, place: list[Value],
        channels: int,
    ) -> None:  # fmt: skip
        """Copy a row of a tensor to a part of the scratchpad, or zeros where it is absent."""
        e = phase.e
        zero = vector.splat_constant(vector.vector_type(F32, self._lanes), 0)

        def one(at: Value, mask: Mask) -> None:
            value = zero
            if argument in self._tensors:
                value = self._load(phase, argument, [*place, at], mask)
            self._put(e, name, to, at, value, mask)

        self._each_vector(e, channels, one)

    def _write(
        self, phase: PhaseFunction, name: str, source: Value, argument: int, place: list[Value],
        channels: int,
    ) -> None:  # fmt: skip
        """Copy a row of a part of the scratchpad to a tensor."""
        e = phase.e

        def one(at: Value, mask: Mask) -> None:
            value = self._get(e, name, source, at, mask)
            self._store(phase, argument, [*place, at], value, mask)

        self._each_vector(e, channels, one)

    def _each_vector(self, e: Emitter, channels: int, body: Callable[[Value, Mask], None]) -> None:
        rest = channels % self._lanes
        whole = i64(channels - rest)

        def one(at: Value) -> None:
            body(at, None)

        e.loop(i64(0), whole, one, step=self._lanes, unroll=False, name="c")
        if rest:
            body(whole, vector.known_lanes([lane < rest for lane in range(self._lanes)]))
