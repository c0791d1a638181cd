"""Work-groups: memory that their items share, and reductions that merge what each item has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Values, i64

Merge = Callable[[Emitter, Values, Values], Values]
_AT_ONCE = 8
"""The values that an item merges before others see the result, a power of two."""


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

    def reduce(self, values: Values, merge: Merge) -> Values:
        """Reduce the values of all items, vectors of one lane, with ``merge``; each item has the
        result. The first half of the values is merged with the other half, then half of these, and
        so on: the order depends on the size alone. An item does several steps at once, since a
        barrier takes longer than loads from shared memory."""
        e, count = self._e, self.size
        kinds = [value.type.element for value in values]
        arrays = [self.array(number, kind, self.size) for number, kind in enumerate(kinds)]

        def write(own: Values) -> None:
            for array, value in zip(arrays, own, strict=True):
                e.b.store(vector.only(e, value), self.place(array, self.member))

        def read(member: ir.Value) -> Values:
            places = [self.place(array, member) for array in arrays]
            found = map(lambda place, kind: e.b.load(place, typ=kind), places, kinds)
            return tuple(vector.splat(e, value, 1) for value in found)

        def merged(first: ir.Value, apart: int, number: int) -> Values:
            """The values of ``number`` items that are ``apart``."""
            found = [read(e.add(first, i64(apart * n))) for n in range(number)]
            while len(found) > 1:
                half = len(found) // 2
                found = [merge(e, *two) for two in zip(found[:half], found[half:], strict=True)]
            return found[0]

        def step(left: int) -> Values:
            write(merged(self.member, left, _AT_ONCE))
            return ()

        self.barrier()  # behind reads of the last reduction
        write(values)
        self.barrier()
        while count > _AT_ONCE:
            count //= _AT_ONCE
            here = e.b.icmp_unsigned("<", self.member, i64(count))
            e.branch(here, partial(step, count), lambda: ())
            self.barrier()
        return merged(i64(0), 1, count)

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
        assert found.value_type.count == count, "an array has one size"
        return found

    def place(self, array: ir.GlobalVariable, index: ir.Value) -> ir.Value:
        """The address of an element of shared memory."""
        return self._e.b.gep(array, [i64(0), index], source_etype=array.value_type)
