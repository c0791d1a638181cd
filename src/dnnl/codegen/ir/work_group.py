"""Reductions of a work-group: merge the values that its items have, in memory that they share."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Values, i64


class WorkGroup:
    """A group of ``size`` items, a power of two. ``member`` is the number of this one in it.

    Make it in the entry block. All items of the group must get to each reduction.
    """

    def __init__(self, e: Emitter, size: int) -> None:
        device = e.isa.device
        assert device is not None
        assert device.groups is not None, "the device has no work-groups"
        self._e, self._groups, self.size = e, device.groups, size
        self.member, self.number = self._groups.member(e.b), self._groups.number(e.b)
        if self._groups.require is not None:
            self._groups.require(e.function, size)

    def reduce(self, values: Values, merge: Callable[[Emitter, Values, Values], Values]) -> Values:
        """Reduce the values of all items, vectors of one lane, with ``merge``; each item has the
        result. The first half of the items merge their values with those of the other half, then
        half of them, and so on: the order does not depend on the device."""
        e, b, steps = self._e, self._e.b, self.size.bit_length() - 1
        arrays = [self._array(number, value.type.element) for number, value in enumerate(values)]

        def write(own: Values) -> None:
            for array, value in zip(arrays, own, strict=True):
                b.store(vector.only(e, value), self._place(array, self.member))

        def read(member: ir.Value) -> Values:
            kinds = [array.value_type.element for array in arrays]
            places = [self._place(array, member) for array in arrays]
            found = map(lambda place, kind: b.load(place, typ=kind), places, kinds)
            return tuple(vector.splat(e, value, 1) for value in found)

        def step(number: ir.Value, *own: ir.Value) -> Values:
            half = b.lshr(i64(self.size // 2), number)
            self._groups.barrier(b)

            def merged() -> Values:
                more = merge(e, own, read(e.add(self.member, half)))
                write(more)
                return more

            return e.branch(b.icmp_unsigned("<", self.member, half), merged, lambda: own)

        self._groups.barrier(b)  # behind reads of the last reduction
        write(values)
        e.loop(i64(0), i64(steps), step, values, unroll=False, name="half")
        self._groups.barrier(b)
        return read(i64(0))

    def _array(self, number: int, element: ir.Type) -> ir.GlobalVariable:
        """The memory for value ``number`` of each item, shared by the reductions of a function."""
        e = self._e
        name = f"{e.function.name}_group_{element}{number}"
        found = e.module.ir.globals.get(name)
        if found is None:
            kind = ir.ArrayType(element, self.size)
            found = ir.GlobalVariable(e.module.ir, kind, name, addrspace=self._groups.memory)
            found.linkage, found.align = "internal", vector.bits(element) // 8
            found.type = ir.PointerType(addrspace=self._groups.memory)
        return found

    def _place(self, array: ir.GlobalVariable, member: ir.Value) -> ir.Value:
        return self._e.b.gep(array, [i64(0), member], source_etype=array.value_type)
