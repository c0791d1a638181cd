"""Calls of phases, by a work item of another one, on parts of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.codegen.ir.builder import I8, PTR, Emitter, Value, i64
from dnnl.runtime.image import Phase

_POINTER = 8


class PhaseCalls:
    """Calls functions of phases, which are in the module already, in the thread that runs the item.

    ``memory`` are `PhaseCalls.nbytes` bytes for their lists of arguments, ``scratch`` is the
    scratch memory that the largest of them takes.
    """

    def __init__(self, e: Emitter, memory: Value, scratch: Value) -> None:
        self._e, self._memory, self._scratch = e, memory, scratch
        self._list = e.element(memory, i64(_POINTER), I8)

    @staticmethod
    def nbytes(arguments: int) -> int:
        """The bytes of a list of so many arguments."""
        return _POINTER * (1 + arguments)

    def use(self, addresses: Sequence[Value]) -> None:
        """Set the addresses of the arguments of the calls that follow, by slot."""
        b = self._e.b
        b.store(self._scratch, self._memory)
        for slot, address in enumerate(addresses):
            b.store(address, b.gep(self._list, [i64(slot)], source_etype=PTR))

    def call(self, phase: Phase, count: int) -> None:
        """Run the first ``count`` work items of a phase."""
        function = self._e.module.ir.get_global(phase.symbol)
        # Its scratch is that of one thread, whose number is 0 there.
        self._e.b.call(function, [self._list, i64(0), i64(count), i64(0)])
