"""Work-groups: memory that their items share, and reductions that merge what each item has."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Values, i64


class WorkGroup:
    """A group of ``size`` items, a power of two. ``member`` is the number of this one in it.

    Make it in the entry block. All items of the group must get to each reduction and barrier.
    """

    def __init__(self, e: Emitter, size: int) -> None:
        device = e.isa.device
        assert device is not None
        assert device.groups is not None, "the device has no work-groups"
        self._e, self.groups, self.size = e, device.groups, size
        self.member, self.number = self.groups.member(e.b), self.groups.number(e.b)
        if self.groups.require is not None:
            self.groups.require(e.function, size)

    def reduce(self, values: Values, merge: Callable[[Emitter, Values, Values], Values]) -> Values:
        """Reduce the values of all items, vectors of one lane, with ``merge``; each item has the
        result. The first half of the items merge their values with those of the other half, then
        half of them, and so on: the order does not depend on the device."""
        e, b, steps = self._e, self._e.b, self.size.bit_length() - 1
        kinds = [value.type.element for value in values]
        arrays = [self.array(number, kind, self.size) for number, kind in enumerate(kinds)]

        def write(own: Values) -> None:
            for array, value in zip(arrays, own, strict=True):
                b.store(vector.only(e, value), self.place(array, self.member))

        def read(member: ir.Value) -> Values:
            places = [self.place(array, member) for array in arrays]
            found = map(lambda place, kind: b.load(place, typ=kind), places, kinds)
            return tuple(vector.splat(e, value, 1) for value in found)

        def step(number: ir.Value, *own: ir.Value) -> Values:
            half = b.lshr(i64(self.size // 2), number)
            self.barrier()

            def merged() -> Values:
                more = merge(e, own, read(e.add(self.member, half)))
                write(more)
                return more

            return e.branch(b.icmp_unsigned("<", self.member, half), merged, lambda: own)

        self.barrier()  # behind reads of the last reduction
        write(values)
        e.loop(i64(0), i64(steps), step, values, unroll=False, name="half")
        self.barrier()
        return read(i64(0))

    def barrier(self) -> None:
        """Wait until all items are here. What they wrote to shared memory is there then."""
        self.groups.barrier(self._e.b)

    def array(self, number: int, element: ir.Type, count: int) -> ir.GlobalVariable:
        """Shared memory for ``count`` elements, the same one for a ``number`` in a function."""
        e = self._e
        name = f"{e.function.name}_group_{element}{number}"
        found = e.module.ir.globals.get(name)
        if found is None:
            kind = ir.ArrayType(element, count)
            found = ir.GlobalVariable(e.module.ir, kind, name, addrspace=self.groups.memory)
            found.linkage = "internal"
            found.align = max(vector.bits(element) // 8, self.groups.bank)
            found.type = ir.PointerType(addrspace=self.groups.memory)
        return found

    def place(self, array: ir.GlobalVariable, index: ir.Value) -> ir.Value:
        """The address of an element of shared memory."""
        return self._e.b.gep(array, [i64(0), index], source_etype=array.value_type)
