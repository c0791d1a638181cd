"""How one axis of an image gets another size: the places and the weights of what is taken.

Places are fractions, as a rounding that falls on one side of a half or on the other one chooses
another element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from dnnl.types.interpolation import Interpolation, keys
from dnnl.types.taps import Taps

Float = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
_HALF = Fraction(1, 2)
_LARGEST_DENOMINATOR = 2**11  # with which each scale in f32 is that of one fraction at most
_S64 = 2**62


@dataclass(frozen=True, slots=True)
class InterpolatedAxis:
    """An axis of ``old`` elements that gets ``new`` ones.

    ``scale`` is the factor between them, ``width`` the new size with its fraction, ``begin`` and
    ``end`` the region that is taken, as parts of the axis.
    """

    old: int
    new: int
    scale: Fraction
    width: Fraction
    begin: Fraction = Fraction(0)
    end: Fraction = Fraction(1)


def ratio(old: int, new: int, scale: float) -> Fraction:
    """The fraction that a ``scale`` in f32 rounds: that of the sizes, or else the one with the
    least denominator, such as 3/10 for the float that is next to 0.3."""
    found = Fraction(new, max(1, old))
    if np.float32(new / max(1, old)) != np.float32(scale):
        found = Fraction(scale).limit_denominator(_LARGEST_DENOMINATOR)
    return found if np.float32(float(found)) == np.float32(scale) else Fraction(scale)


@dataclass(frozen=True, slots=True)
class Rule:
    """How elements are made: by the ``nearest`` one, or by "linear" or "cubic" interpolation.

    ``coordinates`` and ``rounding`` are names that ONNX gives, "simple" being the rounding of
    operator set 10: down where the axis grows, else up.
    """

    mode: str
    coordinates: str
    rounding: str
    cubic: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False
    extrapolation: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """Positions of elements: element i is at ``start + i * step``."""

    start: Fraction
    step: Fraction

    def places(self, count: int) -> Float:
        """Those of ``count`` elements, rounded once."""
        above, below = self._over(count)
        return np.asarray(above / below, np.float64)

    def floors(self, count: int, shift: Fraction = Fraction(0)) -> Places:
        """What is not above the places plus ``shift``."""
        above, below = Line(self.start + shift, self.step)._over(count)
        return np.asarray(above // below, np.intp)

    def _over(self, count: int) -> tuple[np.ndarray, int]:
        """The places as integers over a common denominator, of Python where s64 is too short."""
        below = lcm(self.start.denominator, self.step.denominator)
        first, step = int(self.start * below), int(self.step * below)
        largest = max(abs(first), abs(first + step * count), below)
        kind: Any = np.int64 if largest < _S64 else object
        return first + np.arange(count).astype(kind) * step, below


def _half_pixel(axis: InterpolatedAxis) -> Line:
    return Line(_HALF / axis.scale - _HALF, 1 / axis.scale)


def _pytorch_half_pixel(axis: InterpolatedAxis) -> Line:
    return _half_pixel(axis) if axis.new > 1 else Line(Fraction(0), Fraction(0))


def _half_pixel_symmetric(axis: InterpolatedAxis) -> Line:
    line = _half_pixel(axis)
    return Line(line.start + axis.old * _HALF * (1 - axis.new / axis.width), line.step)


def _half_pixel_for_nearest(axis: InterpolatedAxis) -> Line:
    return Line(_HALF / axis.scale, 1 / axis.scale)


def _asymmetric(axis: InterpolatedAxis) -> Line:
    return Line(Fraction(0), 1 / axis.scale)


def _align_corners(axis: InterpolatedAxis) -> Line:
    step = (axis.old - 1) / (axis.width - 1) if axis.width != 1 else Fraction(0)
    return Line(Fraction(0), step)


def _crop_and_resize(axis: InterpolatedAxis) -> Line:
    last = axis.old - 1
    if axis.new == 1:
        return Line(_HALF * (axis.begin + axis.end) * last, Fraction(0))
    return Line(axis.begin * last, (axis.end - axis.begin) * last / (axis.new - 1))


CROPS = "tf_crop_and_resize"
COORDINATES: dict[str, Callable[[InterpolatedAxis], Line]] = {
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    CROPS: _crop_and_resize,
    "tf_half_pixel_for_nn": _half_pixel_for_nearest,
}
"""Positions of new elements among the old ones, by coordinate transformation."""

ROUNDINGS: dict[str, Callable[[Line, int], Places]] = {
    "ceil": lambda line, count: -_mirrored(line).floors(count),
    "floor": lambda line, count: line.floors(count),
    "round_prefer_ceil": lambda line, count: line.floors(count, _HALF),
    "round_prefer_floor": lambda line, count: -_mirrored(line).floors(count, _HALF),
}
"""Which elements are the nearest ones, by the name of a mode."""


def _mirrored(line: Line) -> Line:
    return Line(-line.start, -line.step)


def coordinates(rule: Rule, axis: InterpolatedAxis) -> Line:
    """The positions of the new elements among the old ones."""
    return COORDINATES[rule.coordinates](axis)


_COORDINATES_OF_ANY = {
    **{name: name for name in ("align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel")},
    "tf_half_pixel_for_nn": "half_pixel_for_nearest",
}
_ROUNDINGS_OF_ANY = {
    "ceil": "ceil",
    "floor": "floor",
    "round_prefer_ceil": "half_up",
    "round_prefer_floor": "half_down",
}


def of_any_size(rule: Rule, scale: Fraction | None) -> Interpolation | None:
    """The rule for axes of any sizes, which the primitive takes; None where it has none. Without a
    ``scale`` that of the sizes applies."""
    coordinates = _COORDINATES_OF_ANY.get(rule.coordinates)
    rounding = _ROUNDINGS_OF_ANY.get(rule.rounding)
    if coordinates is None or rounding is None or rule.antialias or rule.exclude_outside:
        return None
    if coordinates == "align_corners":
        scale = None
    usual = "half_up" if rule.mode != "nearest" else rounding
    return Interpolation(rule.mode, coordinates, usual, scale, rule.cubic)


def is_identity(rule: Rule, axis: InterpolatedAxis) -> bool:
    """Whether each element is itself."""
    line = coordinates(rule, axis)
    return axis.old == axis.new and line.start == 0 and (line.step == 1 or axis.new == 1)


def outside(rule: Rule, axis: InterpolatedAxis) -> npt.NDArray[np.bool_]:
    """Which new elements are outside of the old ones and are extrapolated: [new]."""
    if rule.coordinates != CROPS:
        return np.zeros(axis.new, np.bool_)
    line = coordinates(rule, axis)
    return (line.floors(axis.new) < 0) | (ROUNDINGS["ceil"](line, axis.new) > axis.old - 1)


def nearest(rule: Rule, axis: InterpolatedAxis) -> Places:
    """The old element that each new one is: [new]."""
    rounding = rule.rounding
    if rounding == "simple":
        rounding = "floor" if axis.scale >= 1 else "ceil"
    places = ROUNDINGS[rounding](coordinates(rule, axis), axis.new)
    return np.clip(places, 0, axis.old - 1)


def taps(rule: Rule, axis: InterpolatedAxis) -> Taps:
    """The old elements that each new one is made of; of those that are extrapolated any."""
    if is_identity(rule, axis):
        return _single(np.arange(axis.new))
    if rule.mode == "nearest":
        return _single(nearest(rule, axis))
    places, parts = _around(rule, axis)
    return Taps(np.clip(places, 0, axis.old - 1), parts)


def _single(places: Places) -> Taps:
    return Taps(places[np.newaxis], np.ones((1, len(places))))


def _around(rule: Rule, axis: InterpolatedAxis) -> tuple[Places, Float]:
    """The places around each new element, some of them outside, and their weights: both
    [taps, new]."""
    x = coordinates(rule, axis).places(axis.new)
    stretch = max(1.0, float(1 / axis.scale)) if rule.antialias else 1.0
    reach = stretch * (1 if rule.mode == "linear" else 2)
    places = np.floor(x - reach) + 1 + np.arange(int(np.ceil(2 * reach)))[:, np.newaxis]
    distance = np.abs(places - x) / stretch
    parts = np.maximum(0.0, 1.0 - distance)
    if rule.mode == "cubic":
        parts = keys(distance, rule.cubic)
    if rule.exclude_outside:
        parts = np.where((places < 0) | (places >= axis.old), 0.0, parts)
    total = parts.sum(0)
    parts[0, total == 0] = 1.0  # far outside
    return places.astype(np.intp), parts / np.where(total == 0, 1.0, total)


def is_resampling(rule: Rule, axis: InterpolatedAxis) -> bool:
    """Whether the resampling primitive takes the same elements with the same weights."""
    new, old = axis.new, axis.old
    if rule.mode == "cubic" or outside(rule, axis).any():
        return False
    if rule.mode == "nearest":
        places = (2 * np.arange(new) + 1) * old // (2 * new)
        return np.array_equal(nearest(rule, axis), places)
    if rule.antialias and axis.scale < 1:
        return False
    x = ((2 * np.arange(new) + 1) * old / new - 1) / 2
    limits = 0, old - 1
    places = np.clip(coordinates(rule, axis).places(new), *limits)
    return np.allclose(places, np.clip(x, *limits), 0, 1e-6 * old)
