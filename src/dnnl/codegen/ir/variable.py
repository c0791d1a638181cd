"""A mutable integer of a generated function."""

from __future__ import annotations

from dnnl.codegen.ir.builder import I64, Emitter, Value, i64


class Variable:
    """An i64 that is 0 at the start of the function. LLVM promotes it to a register."""

    def __init__(self, e: Emitter) -> None:
        self._b = e.b
        with self._b.goto_entry_block():
            self._slot = self._b.alloca(I64)
            self._b.store(i64(0), self._slot)

    @property
    def value(self) -> Value:
        """The current value."""
        return self._b.load(self._slot, typ=I64)

    def set(self, value: Value) -> None:
        """Assign a value."""
        self._b.store(value, self._slot)
