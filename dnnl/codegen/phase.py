"""The function of a phase: what it is given, and its way through the work items.

It takes the list of the kernel's arguments and a range of items::

    void symbol(void **args, int64_t begin, int64_t end)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from llvmlite import ir

from dnnl.codegen.access import Operand
from dnnl.codegen.builder import I64, PTR, Emitter, Module, i64
from dnnl.runtime.image import Phase

_RANGE = ir.FunctionType(ir.VoidType(), [PTR, I64, I64])


class PhaseFunction:
    """One phase while it is written: ``e`` writes its code, ``arguments`` are the addresses of the
    kernel's arguments in ``slots``, which are those that it touches."""

    def __init__(self, module: Module, symbol: str, slots: Iterable[int]) -> None:
        function = module.function(symbol, _RANGE)
        self._symbol = symbol
        self.e = e = Emitter(module, function)
        given, self._begin, self._end = function.args
        self.arguments = {
            slot: e.b.load(e.b.gep(given, [i64(slot)], source_etype=PTR), typ=PTR)
            for slot in sorted(set(slots))
        }

    @staticmethod
    def of(module: Module, symbol: str, operands: Iterable[Operand]) -> PhaseFunction:
        """A phase that touches ``operands``."""
        return PhaseFunction(module, symbol, (operand.slot for operand in operands))

    def pointers(self, operands: Iterable[Operand]) -> dict[Operand, ir.Value]:
        """The address of each operand."""
        return {operand: self.arguments[operand.slot] for operand in operands}

    def each_item(self, item: Callable[[ir.Value], None]) -> None:
        """Run ``item(number)`` for every work item that a call of the function is to do."""
        self.e.loop(self._begin, self._end, item, unroll=False, name="item")

    def each_range(self, run: Callable[[ir.Value, ir.Value], None]) -> None:
        """Run ``run(begin, end)`` for ranges of items that are all that a call is to do."""
        run(self._begin, self._end)

    def end(self, count: int) -> Phase:
        """Finish the function; there are ``count`` work items."""
        self.e.b.ret_void()
        return Phase(self._symbol, count)
