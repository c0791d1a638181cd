"""Stores of neighbouring vectors that wait for each other.

A register of f32 makes a quarter of one of bytes. Where an iteration of a loop stores several
vectors side by side, the first ones wait for the last, and all of them are converted at a time.
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
    """What waits in one iteration, which stores ``count`` vectors of each of some ``operands``, the
    first one first."""

    count: int
    operands: Collection[Operand]
    _pending: dict[Operand, list[tuple[ir.Value, Write]]] = field(default_factory=dict)

    def add(self, e: Emitter, operand: Operand, value: ir.Value, write: Write) -> None:
        """Write a value together with those that follow; ``write`` converts any number of vectors
        and stores them where this one belongs."""
        values = self._pending.setdefault(operand, [])
        values.append((value, write))
        if len(values) == self.count:
            values[0][1](vector.join(e, [value for value, _ in values]))
            del self._pending[operand]

    def flush(self) -> None:
        """Write what is left alone, as where a later vector has lanes that are not stored."""
        for values in self._pending.values():
            for value, write in values:
                write(value)
