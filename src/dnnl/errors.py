"""The exceptions of the library: what was given, which rule it broke, what works instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

_RUNTIME_DIM = str(-(2**63))  # the number that stands for what only execution knows


class Error(Exception):
    """Base of every exception that the library raises on purpose."""


class InvalidArguments(Error, ValueError):
    """An argument breaks a rule of the operation, whatever the implementation.

    ``argument`` names it, ``value`` is what was given, ``rule`` is what must hold and ``hint``
    (may be empty) is the nearest thing that works.
    """

    def __init__(self, argument: str, value: object, rule: str, hint: str = "") -> None:
        self.argument, self.value, self.rule, self.hint = argument, value, rule, hint
        text = f"{argument} = {value!r}: {rule}" + (f"; {hint}" if hint else "")
        super().__init__(text.replace(_RUNTIME_DIM, "RUNTIME_DIM"))

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), (self.argument, self.value, self.rule, self.hint)


class Unimplemented(Error, NotImplementedError):
    """A valid request that no implementation takes; ``reasons`` has one line for each."""

    def __init__(self, message: str, reasons: Sequence[object] = ()) -> None:
        self.message, self.reasons = message, tuple(reasons)
        super().__init__("\n  - ".join([message, *map(str, self.reasons)]))

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return type(self), (self.message, self.reasons)


class OutOfMemory(Error, MemoryError):
    """A buffer of the requested size could not be allocated."""
