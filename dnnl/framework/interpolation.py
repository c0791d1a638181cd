"""How one axis of an image gets another size: the places and the weights of what is taken.

Places are computed in f32 from scales in f32, as ONNX Runtime does, because a rounding that falls
on one side of a half or on the other one chooses another element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.floating[Any]]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of ``old`` elements that gets ``new`` ones.

    ``scale`` is the factor between them, ``width`` the new size with its fraction, ``begin`` and
    ``end`` the region that is taken, as parts of the axis.
    """

    old: int
    new: int
    scale: float
    width: float
    begin: float = 0.0
    end: float = 1.0


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


def _half_pixel(at: Float, axis: Axis) -> Float:
    return (at + np.float32(0.5)) / np.float32(axis.scale) - np.float32(0.5)


def _pytorch_half_pixel(at: Float, axis: Axis) -> Float:
    return _half_pixel(at, axis) if axis.new > 1 else np.zeros_like(at)


def _half_pixel_symmetric(at: Float, axis: Axis) -> Float:
    offset = axis.old / 2 * (1 - axis.new / axis.width)
    return np.float32(offset) + _half_pixel(at, axis)


def _half_pixel_for_nearest(at: Float, axis: Axis) -> Float:
    return (at + np.float32(0.5)) / np.float32(axis.scale)


def _asymmetric(at: Float, axis: Axis) -> Float:
    return at / np.float32(axis.scale)


def _align_corners(at: Float, axis: Axis) -> Float:
    if axis.width == 1:
        return np.zeros_like(at)
    return at * np.float32(axis.old - 1) / np.float32(axis.width - 1)


def _crop_and_resize(at: Float, axis: Axis) -> Float:
    last = np.float32(axis.old - 1)
    begin, end = np.float32(axis.begin), np.float32(axis.end)
    if axis.new == 1:
        return np.full_like(at, np.float32(0.5) * (begin + end) * last)
    return begin * last + at * (end - begin) * last / np.float32(axis.new - 1)


CROPS = "tf_crop_and_resize"
COORDINATES: dict[str, Callable[[Float, Axis], Float]] = {
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    CROPS: _crop_and_resize,
    "tf_half_pixel_for_nn": _half_pixel_for_nearest,
}
"""Where each new element lies among the old ones, by the name of a coordinate transformation."""

ROUNDINGS: dict[str, Callable[[Float], Float]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
}
"""Which element is the nearest one, by the name of a mode."""


def coordinates(rule: Rule, axis: Axis) -> Float:
    """Where each new element lies among the old ones: [new]."""
    return COORDINATES[rule.coordinates](np.arange(axis.new, dtype=np.float32), axis)


def is_identity(rule: Rule, axis: Axis) -> bool:
    """Whether each element is itself."""
    return axis.old == axis.new and np.array_equal(coordinates(rule, axis), np.arange(axis.new))


def outside(rule: Rule, axis: Axis) -> npt.NDArray[np.bool_]:
    """Which new elements lie outside of the old ones and are extrapolated: [new]."""
    x = coordinates(rule, axis)
    if rule.coordinates != CROPS:
        return np.zeros(x.shape, np.bool_)
    return (x < 0) | (x > axis.old - 1)


def nearest(rule: Rule, axis: Axis) -> Places:
    """The old element that each new one is: [new]."""
    rounding = rule.rounding
    if rounding == "simple":
        rounding = "floor" if axis.scale >= 1 else "ceil"
    # In f64 the half that is added or taken away rounds nothing.
    places = ROUNDINGS[rounding](coordinates(rule, axis).astype(np.float64))
    return np.clip(places, 0, axis.old - 1).astype(np.intp)


def weights(rule: Rule, axis: Axis) -> npt.NDArray[np.float64]:
    """What each new element takes of each old one in an interpolation: [new, old], 0 where it is
    extrapolated."""
    table = np.zeros((axis.new, axis.old))
    places, parts = _taps(rule, axis)
    inside = np.clip(places, 0, axis.old - 1)
    np.add.at(table, (np.arange(axis.new)[:, np.newaxis], inside), parts)
    table[outside(rule, axis)] = 0.0
    return table


def _taps(rule: Rule, axis: Axis) -> tuple[Places, npt.NDArray[np.float64]]:
    """The places around each new element, some of them outside, and their weights: [new, taps]."""
    x = coordinates(rule, axis).astype(np.float64)[:, np.newaxis]
    stretch = max(1.0, 1.0 / axis.scale) if rule.antialias else 1.0
    reach = stretch * (1 if rule.mode == "linear" else 2)
    places = np.floor(x - reach) + 1 + np.arange(int(np.ceil(2 * reach)))
    distance = np.abs(places - x) / stretch
    parts = np.maximum(0.0, 1.0 - distance)
    if rule.mode == "cubic":
        parts = _cubic(distance, rule.cubic)
    if rule.exclude_outside:
        parts = np.where((places < 0) | (places >= axis.old), 0.0, parts)
    total = parts.sum(1, keepdims=True)
    return places.astype(np.intp), parts / np.where(total == 0, 1.0, total)


def _cubic(distance: npt.NDArray[np.float64], a: float) -> npt.NDArray[np.float64]:
    """The weight of an element so far away, by Keys' convolution with coefficient ``a``."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def is_resampling(rule: Rule, axis: Axis) -> bool:
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
    places = np.clip(coordinates(rule, axis).astype(np.float64), *limits)
    return np.allclose(places, np.clip(x, *limits), 0, 1e-6 * old)
