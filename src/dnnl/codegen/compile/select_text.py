"""Selections between vectors, as SPIR-V has them: with a condition for each lane.

LLVM's optimiser makes one condition of equal ones, for which the SPIR-V backend of LLVM 22 writes
an invalid instruction.
"""

from __future__ import annotations

import re
from itertools import count

_SELECTION = re.compile(
    r"^(?P<result> *%.+ = select (?:[a-z]+ )*)i1 (?P<condition>%\"[^\"]*\"|[^ ,]+), "
    r"(?P<values><(?P<lanes>\d+) x .*)$",
    re.MULTILINE,
)


def with_vector_conditions(ir: str) -> str:
    """The text of a module, with each single condition between vectors as a vector of it."""
    numbers = count()

    def by_lane(found: re.Match[str]) -> str:
        result, condition, lanes, values = found.group("result", "condition", "lanes", "values")
        kind, number = f"<{lanes} x i1>", next(numbers)
        one, every = f"%first.condition.{number}", f"%vector.condition.{number}"
        zeros = f"<{lanes} x i32> zeroinitializer"
        return (
            f"  {one} = insertelement {kind} poison, i1 {condition}, i32 0\n"
            f"  {every} = shufflevector {kind} {one}, {kind} poison, {zeros}\n"
            f"{result}{kind} {every}, {values}"
        )

    return _SELECTION.sub(by_lane, ir)
