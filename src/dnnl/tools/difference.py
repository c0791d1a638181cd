"""How far one array is from another, and where most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dnnl.graph.graph import Array
from dnnl.graph.rounding import Rounding

TOLERANCE = 1e-3
"""The largest relative error of a model in f32 that counts as equal: sums in another order differ
by about 1e-6 of a layer's largest values, and small elements of the result see all of it."""

FLOOR = 1e-2
"""Elements below this part of the largest one are measured as if they were that large: what is
left of cancelled sums has no relative precision of its own."""

GROWTH = 4.0
"""How many times the sum of all roundings may be what is left of it: where parts cancel, as before
a bias that normalizations leave, the error of the parts stays. ResNet-50 and MobileNetV2 with
random weights reach 2.9 and 2.2, as ONNX Runtime does with numbers rounded between its nodes."""

PEAK = 5.0
"""How many times the norm's error that of one element among millions may be."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What counts as equal: errors of elements up to ``element``, relative to themselves or, where
    that is more, to ``FLOOR`` of the largest one; where ``norm`` is finite, to the root mean square
    of all, and in the whole, of Euclidean norms, up to ``norm``."""

    element: float = TOLERANCE
    norm: float = np.inf
    reason: str = "f32"

    @classmethod
    def of(cls, rounding: Rounding | None) -> Tolerance:
        """Of a model that rounds to types smaller than f32: by half an epsilon at each step, with
        signs that are independent enough for a sum that grows as a root, and what `GROWTH` says."""
        if rounding is None:
            return cls()
        norm = GROWTH * 0.5 * rounding.eps * rounding.depth**0.5
        reason = f"{rounding.depth} roundings one after the other, epsilon {rounding.eps:g}"
        return cls(PEAK * norm, norm, reason)

    def __str__(self) -> str:
        if np.isinf(self.norm):
            return f"relative errors up to {self.element:g} ({self.reason})"
        limits = f"{self.norm:.2g} of the norm, {self.element:.2g} of elements"
        return f"relative errors up to {limits} ({self.reason})"

    def floor(self, expected: Array) -> float:
        """What smaller elements are measured at."""
        finite = np.abs(expected[np.isfinite(expected)])
        if np.isinf(self.norm):
            return FLOOR * float(finite.max(initial=0.0)) or 1.0
        return _norm(finite) / max(finite.size, 1) ** 0.5 or 1.0


F32 = Tolerance()


@dataclass(frozen=True, slots=True)
class Difference:
    """The element of ``output`` that is furthest off, how many exceed the tolerance, and the
    relative error of the whole, by Euclidean norms.

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
    norm: float = 0.0
    tolerance: Tolerance = F32

    @property
    def is_equal(self) -> bool:
        """Whether every element and the whole are within the tolerance."""
        return self.exceeding == 0 and self.norm <= self.tolerance.norm

    def __str__(self) -> str:
        if self.shapes:
            return f"{self.output!r} has shape {self.shapes}"
        where = f"{self.output!r} at {list(self.index)}"
        values = f"{self.given:.9g} instead of {self.expected:.9g}"
        limit = f"{self.tolerance.element:.3g}"
        count = f"{self.exceeding} of {self.size} elements differ by more than {limit}"
        text = f"{where}: {values}, relative error {self.relative:.3g}; {count}"
        if self.norm > self.tolerance.norm:
            text += f"; the norm by {self.norm:.3g}, more than {self.tolerance.norm:.3g}"
        return text


def compare(output: str, given: Array, expected: Array, tolerance: Tolerance = F32) -> Difference:
    """Measure ``given`` against ``expected``, as ``tolerance`` says. What is not finite must be
    equal."""
    a, b = np.asarray(given, np.float64), np.asarray(expected, np.float64)
    if a.shape != b.shape:
        shapes = f"{a.shape} instead of {b.shape}"
        size = max(b.size, 1)
        return Difference(output, np.inf, np.inf, (), np.nan, np.nan, size, size, shapes)
    if not b.size:
        return Difference(output, 0.0, 0.0, (), np.nan, np.nan, 0, 0)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    floor = tolerance.floor(b)
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
        int(np.count_nonzero(relative > tolerance.element)),
        b.size,
        norm=_norm(absolute[np.isfinite(b)]) / (_norm(b[np.isfinite(b)]) or 1.0),
        tolerance=tolerance,
    )


def is_constant(array: Array) -> bool:
    """Whether an array says nothing of what computed it: one value everywhere, or a single zero."""
    if not array.size:
        return False
    first = array.flat[0]
    same = np.array_equal(array, np.full_like(array, first), equal_nan=array.dtype.kind in "fc")
    return same and (array.size > 1 or not first)


def _norm(array: Array) -> float:
    """The Euclidean norm; infinite where an element is not finite."""
    largest = float(np.abs(array).max(initial=0.0))
    if not 0.0 < largest < np.inf:
        return 0.0 if largest == 0.0 else np.inf
    return largest * float(np.sqrt(np.sum((array / largest) ** 2)))
