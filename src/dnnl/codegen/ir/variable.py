"""A number that code changes as it runs."""

from __future__ import annotations

from dnnl.codegen.ir.builder import I64, Emitter, Value, i64


class Variable:
    """An i64 that is 0 where the function begins; LLVM keeps it in a register."""

    def __init__(self, e: Emitter) -> None:
        self._b = e.b
        with self._b.goto_entry_block():
            self._slot = self._b.alloca(I64)
            self._b.store(i64(0), self._slot)

    @property
    def value(self) -> Value:
        """The number as it is now."""
        return self._b.load(self._slot, typ=I64)

    def set(self, value: Value) -> None:
        """Change the number."""
        self._b.store(value, self._slot)
