"""What a code generator hands to an engine: machine code and how to launch it.

This is the only thing that code generation and the runtime have in common.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """One function of an image and the number of independent work items that it does.

    The function is ``void symbol(void **args, int64_t begin, int64_t end)`` and does the items
    ``begin .. end - 1``; an engine calls it for disjoint ranges that cover ``0 .. count - 1``, in
    any order and at the same time. A phase starts when the one before it is complete.
    """

    symbol: str
    count: int


@dataclass(frozen=True, slots=True)
class Image:
    """Code for one kind of engine (``target``), immutable and picklable.

    ``code`` is a relocatable object that defines every phase's symbol and refers to nothing but
    ``memcpy``, ``memmove`` and ``memset``. ``args[i]`` of a phase function is the address of the
    execution argument whose id is ``arguments[i]``.
    """

    target: str
    code: bytes
    phases: tuple[Phase, ...]
    arguments: tuple[int, ...]
