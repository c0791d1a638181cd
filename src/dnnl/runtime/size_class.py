"""Which executions code serves whose sizes only these know, and what each then takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from dnnl.types import arithmetic

Execution = tuple[tuple[int, ...], tuple[int, ...], int]
"""The numbers of all symbols, the work items of each phase, and the bytes of temporary memory."""
Serve = Callable[[tuple[int, ...]], Execution | None]
"""What an execution on tensors of these numbers takes; None if it is not served."""


@dataclass(frozen=True)
class SizeClass:
    """Expressions over the numbers ``n`` of an execution's tensors, and over the symbols s0, s1,
    ... of the code: ``sources`` of the latter, ``conditions`` that must all hold, the ``counts`` of
    the work items, and the bytes of the ``scratchpad``."""

    sources: tuple[str, ...]
    conditions: tuple[str, ...]
    counts: tuple[str, ...]
    scratchpad: str

    def serve(self) -> Serve:
        """The function that decides.

        Raises `arithmetic.NoArithmetic` where something is no expression of integers.
        """
        return _function(self)


@lru_cache(maxsize=1024)  # layers of one shape have equal ones, and differ in their weights
def _function(own: SizeClass) -> Serve:
    names = [f"s{number}" for number in range(len(own.sources))]
    known, given = frozenset(names), frozenset(("n",))
    for text in own.sources:
        arithmetic.check(text, given)
    for text in (*own.counts, own.scratchpad):
        arithmetic.check(text, known)
    for text in own.conditions:
        arithmetic.check(text, known | given)
    symbols = "".join(f"{name}," for name in names)
    counts = "".join(f"{count}," for count in own.counts)
    conditions = " and ".join(f"({condition})" for condition in own.conditions) or "1"
    return arithmetic.trusted(
        f"lambda n: (lambda {','.join(names)}: (({symbols}), ({counts}), {own.scratchpad}) "
        f"if {conditions} else None)({','.join(own.sources)})"
    )
