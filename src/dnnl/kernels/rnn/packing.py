"""Weights that an execution brings into the blocks that its products read.

A square of weights is loaded along whichever axis is contiguous, and transposed in registers where
products want the other one::

    rows of memory                 a square                  blocks of units
    units are contiguous     k: [u0 u1 u2 ... ]        k: [u0 u1 u2 ... ]  as it is
    inputs are contiguous    u: [k0 k1 k2 ... ]        k: [u0 u1 u2 ... ]  transposed
"""

from __future__ import annotations

from collections.abc import Callable

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I32, Emitter, Value, i64
from dnnl.codegen.ir.transpose import transpose_registers
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.rnn.memory import PACKED
from dnnl.kernels.rnn.problem import along_units, k_of_blocks
from dnnl.kernels.rnn.tiles import LayerTiles
from dnnl.runtime.image import Phase


class WeightsPacking(LayerTiles):
    """Writes the phases that pack weights."""

    def _pack(self, argument: int) -> Phase:
        """Weights in blocks of units, as operands."""
        if along_units(self._tensors[argument][1]):
            return self._pack_rows(argument)
        return self._pack_squares(argument)

    def _pack_rows(self, argument: int) -> Phase:
        conf, name, desc = self._conf, PACKED[argument], self._tensors[argument][1]
        phase, (inputs, *gates, units) = self._phase(f"pack_{name}"), desc.dims[2:]
        e, operands, strides = phase.e, conf.operands, conf.parts[name].strides
        element = storage(operands.weights).element
        groups = operands.k_blocks(inputs) * operands.groups

        def item(number: Value) -> None:
            d, place = e.divmod(number, groups)
            block, group = e.divmod(place, operands.groups)
            k = e.mul(place, operands.group)

            def write(count: int) -> None:
                for gate in range(gates[0] if gates else 1):
                    index = [d, i64(0), block, i64(gate), group, i64(0), i64(0)]
                    to, own = self._part(phase, name, index), [i64(conf.place_of(gate))]

                    def one(at: Value, mask: Mask, own: list[Value] = own, to: Value = to) -> None:
                        rows = [
                            [i64(self._layer), d, e.add(k, i64(n)), *own[: len(gates)], at]
                            for n in range(count)
                        ]
                        value = self._grouped(phase, argument, rows, mask)
                        offset = e.mul(at, strides[1] // self._lanes)
                        vector.store(e, value, e.element(to, offset, element))

                    self._each_vector(e, units, one)

            self._each_group(e, place, groups, inputs, write)

        phase.each_item(conf.directions * groups, item)
        return phase.end(conf.directions * groups)

    def _each_group(
        self, e: Emitter, number: Value, groups: int, inputs: int, write: Callable[[int], None]
    ) -> None:
        """Write the K group of a number, which has fewer inputs at the end, and none behind."""
        whole, rest = divmod(inputs, self._conf.operands.group)
        if whole == groups:
            write(self._conf.operands.group)
            return
        self._either(
            e, e.b.icmp_signed("<", number, i64(whole)),
            lambda: write(self._conf.operands.group),
            lambda: self._either(
                e, e.b.icmp_signed("==", number, i64(whole)), lambda: write(rest), lambda: write(0)
            ),
        )  # fmt: skip

    def _pack_squares(self, argument: int) -> Phase:
        """Those whose inputs are contiguous: as many K groups as vectors have lanes at a time."""
        conf, name, desc = self._conf, PACKED[argument], self._tensors[argument][1]
        phase, (inputs, *gates, units) = self._phase(f"pack_{name}"), desc.dims[2:]
        e, operands, lanes = phase.e, conf.operands, self._lanes
        groups = operands.k_blocks(inputs) * operands.groups
        columns, blocks = -(-groups // lanes), conf.blocks(units)
        rest = groups - (columns - 1) * lanes

        def item(number: Value) -> None:
            before, block = e.divmod(number, blocks)
            d, column = e.divmod(before, columns)

            def square(count: int, last: bool, mask: Mask) -> None:
                beyond = inputs - (columns - 1) * lanes * operands.group if last else 0
                for gate in range(gates[0] if gates else 1):
                    rows = self._square(
                        phase, argument, (d, column, gate, block),
                        self._first_lanes(beyond, lanes * operands.group), mask, operands.group,
                    )  # fmt: skip
                    rows = transpose_registers(e, rows) if lanes > 1 else rows
                    for n, value in enumerate(rows[:count]):
                        place = e.add(e.mul(column, lanes), i64(n))
                        own, group = e.divmod(place, operands.groups)
                        index = [d, block, own, i64(gate), group, i64(0), i64(0)]
                        vector.store(e, value, self._part(phase, name, index))

            def each(count: int, last: bool) -> None:
                self._each_block(e, block, units, lambda mask: square(count, last, mask))

            whole = inputs % (lanes * operands.group) == 0
            if whole or columns == 1:
                each(rest, not whole)
                return
            last = e.b.icmp_signed("==", column, i64(columns - 1))
            self._either(e, last, lambda: each(rest, True), lambda: each(lanes, False))

        phase.each_item(conf.directions * columns * blocks, item)
        return phase.end(conf.directions * columns * blocks)

    @staticmethod
    def _first_lanes(count: int, lanes: int) -> Mask:
        """A mask of so many lanes; of all of them for 0."""
        return vector.known_lanes([lane < count for lane in range(lanes)]) if count else None

    def _square(
        self,
        phase: PhaseFunction,
        argument: int,
        place: tuple[Value, Value, int, Value],
        inputs: Mask,
        mask: Mask,
        group: int = 1,
    ) -> list[Value]:
        """Vectors along the axis that is contiguous in memory, one for each place of the other, of
        a block of units and one of inputs, with zeros beyond the last of either: in f32, or where
        K groups have more inputs than one, these as they are. ``place`` is the direction, the block
        of inputs, the gate and the block of units."""
        e, lanes, (d, column, gate, block) = phase.e, self._lanes, place
        slot, desc = self._tensors[argument]
        if k_of_blocks(desc) > 1:
            return self._square_of_pairs(phase, argument, place, inputs)
        row, strides, along = storage(desc.data_type), desc.strides, along_units(desc)
        blocked = bool(desc.inner_blocks)
        wide = 1 if along else group
        kind = vector.vector_type(row.element, lanes * wide)
        zero = vector.splat_constant(vector.vector_type(I32 if group > 1 else F32, lanes), 0)
        offset = e.number(desc.offset0 + self._layer * strides[0])
        offset = e.add(offset, e.mul(d, strides[1]))
        offset = e.add(offset, e.mul(column, strides[2] * lanes * wide))
        offset = e.add(offset, e.number(self._gate_offset(desc, gate)))
        offset = e.add(offset, e.mul(block, strides[-1] if blocked else strides[-1] * lanes))
        start = e.element(phase.arguments[slot], offset, row.element)
        last = desc.dims[2] - 1 if along else desc.dims[-1] - 1
        apart, first, loaded, partial = (
            (strides[2], column, mask, inputs) if along else (strides[-1], block, inputs, mask)
        )
        made = []
        for number in range(lanes):
            beyond: Value = i64(number)
            if partial is not None:  # the last vector stands for those that are not there
                beyond = e.smaller(beyond, e.b.sub(i64(last), e.mul(first, lanes)))
            address = e.element(start, e.mul(beyond, apart), row.element)
            own = vector.load(e, address, kind, None if blocked else loaded)
            made.append(e.b.bitcast(own, zero.type) if group > 1 else row.to_core(e, own))
        if partial is None:
            return made
        return self._there(e, made, partial)

    @staticmethod
    def _there(e: Emitter, made: list[Value], partial: Mask) -> list[Value]:
        """The vectors that a mask has lanes of, and zeros instead of others."""
        zero = vector.splat_constant(made[0].type, 0)
        there = vector.each_lane(e, partial)
        return [e.b.select(own, value, zero) for own, value in zip(there, made, strict=True)]

    def _square_of_pairs(
        self,
        phase: PhaseFunction,
        argument: int,
        place: tuple[Value, Value, int, Value],
        inputs: Mask,
    ) -> list[Value]:
        """A square of weights whose blocks have K groups of two bf16: the units of each input."""
        e, lanes, (d, column, gate, block) = phase.e, self._lanes, place
        slot, desc = self._tensors[argument]
        groups, row = k_of_blocks(desc) // 2, storage(desc.data_type)
        last = -(-desc.dims[2] // k_of_blocks(desc)) * groups - 1
        strides, made = desc.strides, list[Value]()
        offset = e.number(desc.offset0 + self._layer * strides[0])
        offset = e.add(offset, e.mul(d, strides[1]))
        offset = e.add(offset, e.number(self._gate_offset(desc, gate)))
        offset = e.add(offset, e.mul(block, strides[-1]))
        words = vector.vector_type(I32, lanes)
        kind, half = vector.vector_type(F32, lanes), vector.splat_constant(words, 16)
        for pair in range(lanes // 2):
            number = e.smaller(e.add(e.mul(column, lanes // 2), i64(pair)), i64(last))
            k_block, group = e.divmod(number, groups)
            at = e.add(e.add(offset, e.mul(k_block, strides[2])), e.mul(group, 2 * lanes))
            both = vector.load(e, e.element(phase.arguments[slot], at, row.element), words)
            first = e.b.shl(both, half)
            second = e.b.shl(e.b.lshr(both, half), half)
            made += [e.b.bitcast(first, kind), e.b.bitcast(second, kind)]
        return made if inputs is None else self._there(e, made, inputs)
