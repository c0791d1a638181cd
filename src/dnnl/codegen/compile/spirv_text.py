"""The IR of vectors in the terms that LLVM 22 can write to SPIR-V.

Its optimiser makes one condition of equal ones, for which the backend writes an invalid selection:
one between vectors has a condition for each lane. And it converts vectors of conditions to floats
directly, for which the backend has no instruction from 256 bits on: it has selections.
"""

from __future__ import annotations

import re
from itertools import count

_VALUE = r"(?:%\"[^\"]*\"|[^ ,]+)"
_SELECTION = re.compile(
    rf"^(?P<result> *%.+ = select (?:[a-z]+ )*)i1 (?P<condition>{_VALUE}), "
    r"(?P<values><(?P<lanes>\d+) x .*)$",
    re.MULTILINE,
)
_CONVERSION = re.compile(
    rf"^(?P<result> *%.+ =) (?P<sign>[us])itofp (?:[a-z]+ )*(?P<mask><\d+ x i1> {_VALUE}) "
    r"to (?P<kind><\d+ x (?P<element>\w+)>)",
    re.MULTILINE,
)


def writable(ir: str) -> str:
    """The text of a module with other selections and conversions."""
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

    return _CONVERSION.sub(_selected, _SELECTION.sub(by_lane, ir))


def _selected(found: re.Match[str]) -> str:
    result, sign, mask, kind, element = found.group("result", "sign", "mask", "kind", "element")
    one = f"splat ({element} {'-' if sign == 's' else ''}1.0)"
    return f"{result} select {mask}, {kind} {one}, {kind} zeroinitializer"
