"""Resampling: an image in another size, by the nearest elements or by linear interpolation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, floor, prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dnnl.errors import InvalidArguments
from dnnl.reference.arrays import Array, f64, name_of
from dnnl.reference.fill import byte_range, generator, integers
from dnnl.reference.rule import Rule, core_eps
from dnnl.reference.specification import Description, Specification, Values, zero_limit
from dnnl.reference.tolerance import EXACT, Tolerance
from dnnl.types.arg import Arg
from dnnl.types.interpolation import Interpolation
from dnnl.types.kinds import Alg
from dnnl.types.taps import Taps

Places = NDArray[np.int64]
Weigh = Callable[[Array], Array]
EachTaps = Sequence[Taps | Interpolation]

TOLERANCE = {
    "resampling_nearest": EXACT,
    "resampling_linear": Tolerance(ulps=8, growth=1, floor=None),
}  # length: the number of weights, 2 to the number of spatial dimensions
# length: how many elements of dst an element of src is a part of, on average.
BACKWARD_TOLERANCE = Tolerance(ulps=8, growth=2, floor=None)


def resampling(
    src: ArrayLike,
    alg: Alg | str,
    spatial: Sequence[int],
    taps: EachTaps = (),
) -> Array:
    """``src`` [N, C, spatial...] -> [N, C, ``spatial``...].

    Element o of O is at x = (o + 1/2) * I / O - 1/2 among the I elements of src. The nearest one
    to it is that of x rounded, halves away from zero; linear interpolation is between the two
    next to it, which are the same behind the ends. Where ``taps`` are given, one for each of the
    spatial dimensions, they say which elements are summed up, and by which weights.
    """
    return _forward(f64(src), alg, spatial, taps)


def resampling_backward(
    diff_dst: ArrayLike,
    alg: Alg | str,
    spatial: Sequence[int],
    taps: EachTaps = (),
) -> Array:
    """``diff_dst`` [N, C, output...] -> diff_src [N, C, ``spatial``...]: each element of dst gives
    its gradient to those that it was made of, by their weights."""
    return _backward(f64(diff_dst), alg, spatial, taps)


def _forward(
    data: Array, alg: Alg | str, spatial: Sequence[int], taps: EachTaps, weigh: Weigh = np.positive
) -> Array:
    """Sums along all axes, of weights as ``weigh`` makes them."""
    for axis, new in enumerate(spatial, 2):
        places, weights = _taps(data.shape[axis], new, alg, taps[axis - 2 : axis - 1])
        data = _gathered(data, axis, places, weigh(weights))
    return data


def _backward(
    data: Array, alg: Alg | str, spatial: Sequence[int], taps: EachTaps, weigh: Weigh = np.positive
) -> Array:
    """What is given back along all axes, by weights as ``weigh`` makes them."""
    for axis, old in enumerate(spatial, 2):
        places, weights = _taps(old, data.shape[axis], alg, taps[axis - 2 : axis - 1])
        data = _scattered(data, axis, old, places, weigh(weights))
    return data


def _gathered(data: Array, axis: int, places: Places, weights: Array) -> Array:
    """Weighted sums along one axis; what has no weight is no part of them, infinite or not."""
    total = np.zeros((*data.shape[:axis], places.shape[1], *data.shape[axis + 1 :]))
    for place, weight in zip(places, weights, strict=True):
        column = weight.reshape([-1 if at == axis else 1 for at in range(data.ndim)])
        total += np.where(column == 0, 0.0, np.take(data, place, axis)) * column
    return total


def _scattered(data: Array, axis: int, old: int, places: Places, weights: Array) -> Array:
    """What each of ``old`` elements along one axis is given back."""
    total = np.zeros((*data.shape[:axis], old, *data.shape[axis + 1 :]))
    lines, given = np.moveaxis(total, axis, 0), np.moveaxis(data, axis, 0)
    for tap, at in np.ndindex(*places.shape):
        if weights[tap, at]:
            lines[places[tap, at]] += weights[tap, at] * given[at]
    return total


def _taps(old: int, new: int, alg: Alg | str, given: EachTaps = ()) -> tuple[Places, Array]:
    """The elements of ``old`` that each of ``new`` is made of, and their weights: [taps, new]."""
    for own in given:
        return (own.places, own.weights) if isinstance(own, Taps) else _interpolated(old, new, own)
    number, unit = np.arange(new), 2 * max(1, new)
    # Twice as many units as elements of ``new`` make an element of ``old``: all is exact but the
    # last division.
    place = (2 * number + 1) * old
    match name_of(alg):
        case "resampling_nearest":
            return np.minimum(place // unit, old - 1)[np.newaxis], np.ones((1, new))
        case "resampling_linear":
            middle = place - unit // 2
            first = np.maximum(middle // unit, 0)
            last = np.minimum(-(-middle // unit), old - 1)
            second = np.abs(middle - unit * first) / unit
            return np.stack([first, last]), np.stack([1.0 - second, second])
        case name:
            raise InvalidArguments("alg", name, "expected a resampling")


def _interpolated(old: int, new: int, rule: Interpolation) -> tuple[Places, Array]:
    """The elements that a rule takes, and their weights."""
    positions = [_position(at, old, new, rule) for at in range(new)]
    if rule.function == "nearest":
        if rule.rounding == "floor_f32":
            positions = [_in_f32(x, rule.scale or Fraction(new, old)) for x in positions]
        places = np.array([[_rounded(x, rule.rounding) for x in positions]])
        return np.clip(places, 0, old - 1), np.ones((1, new))
    before = np.array([floor(x) for x in positions])
    part = np.array([float(x - floor(x)) for x in positions])
    if rule.function == "linear":
        places, weights = np.stack([before, before + 1]), np.stack([1 - part, part])
    else:
        places = before + np.arange(-1, 3)[:, np.newaxis]
        d, a = np.abs(np.arange(-1, 3)[:, np.newaxis] - part), rule.cubic
        near = (1 - d) * (1 + d - (a + 2) * d**2)
        far = a * (d - 1) * (d - 2) ** 2
        weights = np.where(d <= 1, near, far)
        weights[:, part == 0] = [[0.0], [1.0], [0.0], [0.0]]
    return np.clip(places, 0, old - 1), weights


def _position(at: int, old: int, new: int, rule: Interpolation) -> Fraction:
    """Where an element is among ``old`` ones."""
    scale, half = rule.scale or Fraction(new, old), Fraction(1, 2)
    match rule.coordinates:
        case "pytorch_half_pixel" if new == 1:
            return Fraction(0)
        case "half_pixel" | "pytorch_half_pixel":
            return (at + half) / scale - half
        case "asymmetric":
            return at / scale
        case "half_pixel_for_nearest":
            return (at + half) / scale
        case _:
            return Fraction(at * (old - 1), max(1, new - 1))


def _in_f32(x: Fraction, scale: Fraction) -> Fraction:
    """A position where f32 rounds the distance of two, and then its product."""
    step = Fraction(float(np.float32(1 / scale)))
    return Fraction(float(np.float32(float(x * scale * step))))


def _rounded(x: Fraction, rounding: str) -> int:
    match rounding:
        case "floor" | "floor_f32":
            return floor(x)
        case "ceil":
            return ceil(x)
        case "half_up":
            return floor(x + Fraction(1, 2))
        case _:
            return ceil(x - Fraction(1, 2))


_LIMIT = 64


class _Resampling(Specification):
    """Whole numbers, all of one sign where they are added up."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Whole numbers that the type holds."""
        forward = desc.propagation.is_forward
        argument, name = (Arg.SRC, "src_desc") if forward else (Arg.DIFF_DST, "diff_dst_desc")
        tensor = getattr(desc, name)
        kind = tensor.data_type
        low, high = byte_range(kind) if kind.is_integer and kind.bits == 8 else (-_LIMIT, _LIMIT)
        low = low if desc.alg_kind is Alg.resampling_nearest and forward else 1
        return {argument: integers(generator("resampling", tensor.dims), tensor.dims, low, high)}

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """dst, or the gradient of src."""
        if desc.propagation.is_forward:
            dst = resampling(values[Arg.SRC], desc.alg_kind, desc.dst_desc.dims[2:], desc.taps)
            return {Arg.DST: dst}
        given = values[Arg.DIFF_DST], desc.alg_kind, desc.diff_src_desc.dims[2:], desc.taps
        return {Arg.DIFF_SRC: resampling_backward(*given)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality of nearest elements; otherwise a few epsilons, and one rounding."""
        kind, size = desc.desc_of(argument).data_type, None
        if any(isinstance(each, Interpolation) and each.function == "cubic" for each in desc.taps):
            size = self._terms(desc, values)  # with negative weights, which cancel others
        if desc.propagation.is_forward:
            exact = desc.alg_kind is Alg.resampling_nearest
            terms = max(8, prod(each.count for each in desc.taps))
            threshold = kind.eps if exact else kind.eps + 2 * terms * core_eps(kind)
            return Rule(threshold, zero_limit(kind), size=size)
        # Where dst is smaller, most elements of src are no part of it.
        return Rule(kind.eps + 64 * core_eps(kind), zeros=100, size=size)

    def _terms(self, desc: Description, values: Values) -> Array:
        """The sums of the absolute values of all terms."""
        if desc.propagation.is_forward:
            data, spatial = values[Arg.SRC], desc.dst_desc.dims[2:]
            return _forward(np.abs(f64(data)), desc.alg_kind, spatial, desc.taps, np.abs)
        data, spatial = values[Arg.DIFF_DST], desc.diff_src_desc.dims[2:]
        return _backward(np.abs(f64(data)), desc.alg_kind, spatial, desc.taps, np.abs)


SPECIFICATION = _Resampling()
