"""Deferred stores: convert and store several neighbouring vectors at once.

A register of f32 fills a quarter of a register of bytes. Where an iteration stores several
consecutive vectors, the stores wait until all values exist, and one conversion narrows them all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter
from dnnl.codegen.memory.access import Operand

Write = Callable[[ir.Value], None]


@dataclass(frozen=True, eq=False)
class DeferredStores:
    """The deferred stores of one iteration, which stores ``count`` consecutive vectors to each of
    ``operands``, in order."""

    count: int
    operands: Collection[Operand]
    _pending: dict[Operand, list[tuple[ir.Value, Write]]] = field(default_factory=dict)

    def add(self, e: Emitter, operand: Operand, value: ir.Value, write: Write) -> None:
        """Add a store. ``write`` converts and stores a vector of any length at this one's address;
        it runs once all ``count`` values are there."""
        values = self._pending.setdefault(operand, [])
        values.append((value, write))
        if len(values) == self.count:
            values[0][1](vector.join(e, [value for value, _ in values]))
            del self._pending[operand]

    def flush(self) -> None:
        """Store the remaining values one by one, as where a later vector of the group was
        masked."""
        for values in self._pending.values():
            for value, write in values:
                write(value)
