"""How far one array is from another, and where most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dnnl.framework.graph import Array

TOLERANCE = 1e-3
"""The largest relative error of a model in f32 that counts as equal: sums in another order differ
by about 1e-6 of a layer's largest values, and small elements of the result see all of it."""

FLOOR = 1e-2
"""Elements below this part of the largest one are measured as if they were that large: what is
left of cancelled sums has no relative precision of its own."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The element of ``output`` that is furthest off, and how many exceed the tolerance.

    ``shapes`` says so where the shapes differ, and then nothing else was compared.
    """

    output: str
    relative: float
    absolute: float
    index: tuple[int, ...]
    given: float
    expected: float
    exceeding: int
    size: int
    shapes: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether every element is within the tolerance."""
        return self.exceeding == 0

    def __str__(self) -> str:
        if self.shapes:
            return f"{self.output!r} has shape {self.shapes}"
        where = f"{self.output!r} at {list(self.index)}"
        values = f"{self.given:.9g} instead of {self.expected:.9g}"
        count = f"{self.exceeding} of {self.size} elements differ by more than {TOLERANCE:g}"
        return f"{where}: {values}, relative error {self.relative:.3g}; {count}"


def compare(output: str, given: Array, expected: Array) -> Difference:
    """Measure ``given`` against ``expected``.

    The relative error is that to the expected element, or to ``FLOOR`` of the largest one if that
    is more. What is not finite must be equal.
    """
    a, b = np.asarray(given, np.float64), np.asarray(expected, np.float64)
    if a.shape != b.shape:
        shapes = f"{a.shape} instead of {b.shape}"
        size = max(b.size, 1)
        return Difference(output, np.inf, np.inf, (), np.nan, np.nan, size, size, shapes)
    if not b.size:
        return Difference(output, 0.0, 0.0, (), np.nan, np.nan, 0, 0)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    floor = FLOOR * np.abs(b[np.isfinite(b)]).max(initial=0.0) or 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        absolute = np.where(same, 0.0, np.abs(a - b))
        relative = np.where(same, 0.0, absolute / np.maximum(np.abs(b), floor))
    relative[np.isnan(relative)] = np.inf
    worst = int(np.argmax(relative))
    index = tuple(int(i) for i in np.unravel_index(worst, b.shape))
    return Difference(
        output,
        float(relative.flat[worst]),
        float(absolute.flat[worst]),
        index,
        float(a.flat[worst]),
        float(b.flat[worst]),
        int(np.count_nonzero(relative > TOLERANCE)),
        b.size,
    )
