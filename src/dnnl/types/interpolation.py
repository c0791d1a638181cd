"""Rules by which the elements of an axis become those of another size, for any sizes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import NamedTuple

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.types.layout_input import read_float
from dnnl.types.taps import Places, Taps, Weights

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
_COORDINATES = (
    "half_pixel", "asymmetric", "align_corners", "half_pixel_for_nearest", "pytorch_half_pixel",
)  # fmt: skip
_ROUNDINGS = ("half_up", "half_down", "floor", "ceil", "floor_f32")
_IN_F32 = {"asymmetric": 0.0, "half_pixel_for_nearest": 0.5}
"""What "floor_f32" adds to the number of an element, by coordinates."""
_MOST = 2**16
_KEYS = -0.75


class Line(NamedTuple):
    """Positions of elements: element i is at ``(start + i * step) / unit``."""

    start: int
    step: int
    unit: int


@dataclass(frozen=True, slots=True)
class Interpolation:
    """How each element of an axis is made of those of another size.

    Element i of N is at position x among the O given ones. With s = N / O, or ``scale``:

    - ``half_pixel``: x = (i + 1/2) / s - 1/2
    - ``asymmetric``: x = i / s
    - ``align_corners``: x = i * (O - 1) / (N - 1), or 0 where N is 1; it has no scale
    - ``half_pixel_for_nearest``: x = (i + 1/2) / s
    - ``pytorch_half_pixel``: as ``half_pixel``, but 0 where N is 1

    ``function`` is ``nearest``, the element at x rounded as ``rounding`` says: ``floor``, ``ceil``,
    or to the nearest one with halves up or down; ``linear`` between the two next to x; or
    ``cubic``, Keys' convolution of four elements with the coefficient ``cubic``. Beyond an end of
    the axis is the last element. With the rounding ``floor_f32``, x is the product of 1 / s and i,
    or i + 1/2, both in f32, and is rounded down, as in PyTorch (``asymmetric`` and
    ``half_pixel_for_nearest`` alone).

    >>> Interpolation("linear", "align_corners").table(3, 5)[0]
    array([[0, 0, 1, 1, 2],
           [0, 1, 1, 2, 2]])
    """

    function: str
    coordinates: str = "half_pixel"
    rounding: str = "half_up"
    scale: Fraction | None = None
    cubic: float = _KEYS

    def __post_init__(self) -> None:
        """Raises InvalidArguments for unknown names and for numbers that make no positions."""
        for name, known in (
            ("function", tuple(_TAPS)), ("coordinates", _COORDINATES), ("rounding", _ROUNDINGS),
        ):  # fmt: skip
            if not isinstance(given := getattr(self, name), str) or given not in known:
                raise InvalidArguments(name, given, f"expected one of {', '.join(known)}")
        if self.rounding == "floor_f32" and self.coordinates not in _IN_F32:
            rule = f"has positions of {', '.join(_IN_F32)}"
            raise InvalidArguments("rounding", self.rounding, rule, f"not of {self.coordinates}")
        if self.scale is not None:
            self._check_scale()
        if not abs(read_float("cubic", self.cubic)) < inf:
            raise InvalidArguments("cubic", self.cubic, "expected a finite number")

    def _check_scale(self) -> None:
        rule = f"expected a fractions.Fraction of positive integers below {_MOST}"
        scale = self.scale
        fits = isinstance(scale, Fraction) and 0 < scale.numerator < _MOST > scale.denominator
        if not fits:
            raise InvalidArguments("scale", scale, rule)
        if self.coordinates == "align_corners":
            rule = "align_corners has positions of the sizes alone"
            raise InvalidArguments("scale", scale, rule, "leave it out")

    @property
    def count(self) -> int:
        """How many elements each new one is made of."""
        return _TAPS[self.function]

    def line(self, old: int, new: int) -> Line:
        """The positions of ``new`` elements among ``old``."""
        above, below = (new, old) if self.scale is None else self.scale.as_integer_ratio()
        match self.coordinates:
            case "pytorch_half_pixel" if new == 1:
                return Line(0, 0, 1)
            case "half_pixel" | "pytorch_half_pixel":
                return Line(below - above, 2 * below, 2 * above)
            case "asymmetric":
                return Line(0, below, above)
            case "align_corners":
                return Line(0, old - 1, new - 1) if new > 1 else Line(0, 0, 1)
            case _:
                return Line(below, 2 * below, 2 * above)

    @property
    def in_f32(self) -> float | None:
        """What is added to the number of an element before f32 rounds its position; None where
        positions are exact."""
        return _IN_F32[self.coordinates] if self.rounding == "floor_f32" else None

    def whole(self, unit: int) -> tuple[int, int]:
        """How a position is rounded to the nearest element: that of ``x / unit`` is
        ``floor((times * x + shift) / (times * unit))`` with these ``times`` and ``shift``."""
        times = {"half_up": (2, unit), "half_down": (2, unit - 1), "ceil": (1, unit - 1)}
        return times.get(self.rounding, (1, 0))

    def table(self, old: int, new: int) -> tuple[Places, Weights]:
        """Which of ``old`` elements make each of ``new`` ones, and their weights: both [taps, new].

        Where two taps are the same element, each has half of its weight: a weight of 0 would turn
        an infinity into NaN.
        """
        start, step, unit = self.line(old, new)
        x = start + np.arange(new, dtype=np.int64) * step
        if self.function == "nearest" and self.in_f32 is not None:
            above, below = (new, old) if self.scale is None else self.scale.as_integer_ratio()
            middles = np.arange(new, dtype=np.float32) + np.float32(self.in_f32)
            places = (middles * np.float32(below / above)).astype(np.int64)
            return np.clip(places, 0, old - 1)[np.newaxis], np.ones((1, new))
        if self.function == "nearest":
            times, shift = self.whole(unit)
            places = (times * x + shift) // (times * unit)
            return np.clip(places, 0, old - 1)[np.newaxis], np.ones((1, new))
        before, rest = np.divmod(x, unit)
        part = rest / unit
        if self.function == "linear":
            first, last = (np.clip(n, 0, old - 1) for n in (before, before + (rest > 0)))
            weight = np.where(first == last, 0.5, part)
            return np.stack([first, last]), np.stack([1.0 - weight, weight])
        places = np.clip(before + np.arange(-1, 3)[:, np.newaxis], 0, old - 1)
        distance = np.abs(np.arange(-1, 3)[:, np.newaxis] - part)
        taps = Taps(places, keys(distance, self.cubic))
        return taps.places, taps.weights


def keys(distance: Weights, a: float) -> Weights:
    """The weight of an element so far away, by Keys' cubic convolution with coefficient ``a``."""
    d = distance
    near = (1 - d) * (1 + d - (a + 2) * d * d)  # by their roots, near which they are exact, too
    return np.where(d <= 1, near, np.where(d < 2, a * (d - 1) * (d - 2) ** 2, 0.0))
