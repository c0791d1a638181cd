"""Deferred stores: convert and store several neighbouring vectors at once.

A register of f32 fills a quarter of a register of bytes. Where an iteration stores several
consecutive vectors, the stores wait until all values exist, and one conversion narrows them all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from llvmlite import ir

from dnnl.codegen.conversion.convert import Conversion
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter
from dnnl.codegen.memory.access import Operand

Write = Callable[[ir.Value], None]


@dataclass(frozen=True, eq=False)
class DeferredStores:
    """The deferred stores of one iteration, which stores ``count`` consecutive vectors to each of
    ``operands``, in order; if ``aligned``, to a multiple of the size of all."""

    count: int
    operands: Collection[Operand]
    aligned: bool = False
    _pending: dict[Operand, list[tuple[ir.Value, Write]]] = field(default_factory=dict)

    def add(
        self,
        e: Emitter,
        operand: Operand,
        value: ir.Value,
        where: ir.Value,
        convert: Conversion,
        streamed: bool,
    ) -> None:
        """Convert and store ``value`` at ``where``, once all ``count`` values are there. Scalars
        are converted alone."""
        if value.type.count == 1:
            value, convert = convert(e, value), lambda _, value: value
        values = self._pending.setdefault(operand, [])
        values.append((value, partial(self._write, e, where, convert, streamed)))
        if len(values) == self.count:
            values[0][1](vector.join(e, [value for value, _ in values]))
            del self._pending[operand]

    def _write(
        self, e: Emitter, where: ir.Value, convert: Conversion, streamed: bool, value: ir.Value
    ) -> None:
        raw = convert(e, value)
        if self.aligned and raw.type.count == self.count:
            e.b.store(raw, where, align=vector.bits(raw.type) // 8 * self.count)
        else:
            vector.store(e, raw, where, streamed=streamed)

    def flush(self) -> None:
        """Store the remaining values one by one, as where a later vector of the group was
        masked."""
        for values in self._pending.values():
            for value, write in values:
                write(value)
