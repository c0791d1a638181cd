"""What resizing makes of each axis, from the attributes and the constant sources of a node."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction
from math import floor, isfinite

import numpy as np

from dnnl.graph.graph import Array, ModelError, TensorType
from dnnl.graph.scope import Scope, normal_axis
from dnnl.operators.interpolation import (
    COORDINATES,
    CROPS,
    ROUNDINGS,
    InterpolatedAxis,
    Rule,
    ratio,
)
from dnnl.types.size import is_known

_MODES = ("nearest", "linear", "cubic")
_POLICIES = ("stretch", "not_larger", "not_smaller")
_WITHOUT_SIZES = frozenset({"asymmetric", "half_pixel", "pytorch_half_pixel"})
"""The coordinates for which a factor decides how far elements are apart."""
_MOST = 2**31
_FIRST = 10
"""The last operator set with scales alone, which divide the coordinates."""


def resize(scope: Scope) -> list[TensorType]:
    """The source's type with the new sizes."""
    rule_of(scope)
    factors = whole_factors(scope)
    if factors is not None:
        return scope.result([n * times for n, times in zip(scope.shape(), factors, strict=True)])
    return scope.result([axis.new for axis in axes_of(scope)])


def whole_factors(scope: Scope) -> tuple[int, ...] | None:
    """How many times each axis gets as long, where this alone decides what becomes of the axes of
    which only a run knows the size; None where numbers are needed, or where all are known."""
    shape = scope.shape()
    resized = [normal_axis(axis, len(shape)) for axis in scope.attr("axes", range(len(shape)))]
    scales = None if all(map(is_known, shape)) else _scales(scope, len(resized))
    rule = rule_of(scope)
    if scales is None or rule.coordinates not in _WITHOUT_SIZES or rule.antialias:
        return None
    if not all(scale.is_integer() for scale in scales):
        return None
    factors = dict(zip(resized, map(int, scales), strict=True))
    return tuple(factors.get(d, 1) for d in range(len(shape)))


def rule_of(scope: Scope) -> Rule:
    """How elements are made.

    Raises ModelError for names that ONNX does not have, and numbers that make no weights.
    """
    old = _is_old(scope)
    cubic = scope.attr("cubic_coeff_a", -0.75)
    if not isfinite(cubic):
        raise ModelError(f"attribute 'cubic_coeff_a' = {cubic} must be finite")
    coordinates = _name(scope, "coordinate_transformation_mode", "half_pixel", COORDINATES)
    rounding = _name(scope, "nearest_mode", "round_prefer_floor", ROUNDINGS)
    return Rule(
        _name(scope, "mode", "nearest", _MODES),
        "asymmetric" if old else coordinates,
        "simple" if old else rounding,
        cubic,
        bool(scope.attr("antialias", 0)),
        bool(scope.attr("exclude_outside", 0)),
        scope.attr("extrapolation_value", 0.0),
    )


def _is_old(scope: Scope) -> bool:
    return scope.node.op == "Upsample" or scope.graph.opset <= _FIRST


def _name(scope: Scope, attribute: str, default: str, known: Collection[str]) -> str:
    name = str(scope.attr(attribute, default.encode()).decode(errors="replace"))
    if name not in known:
        raise ModelError(f"attribute {attribute!r} = {name!r} must be one of {', '.join(known)}")
    return name


def axes_of(scope: Scope) -> tuple[InterpolatedAxis, ...]:
    """What becomes of each axis.

    Raises ModelError for scales, sizes and regions that do not fit the source.
    """
    shape = tuple(map(int, scope.shape()))  # the places of all elements are needed
    resized = [normal_axis(axis, len(shape)) for axis in scope.attr("axes", range(len(shape)))]
    if len(set(resized)) != len(resized):
        raise ModelError(f"axes {scope.attr('axes')} name one twice")
    axes = [InterpolatedAxis(n, n, Fraction(1), Fraction(n)) for n in shape]
    regions = _regions(scope, len(resized))
    scales, sizes = _scales(scope, len(resized)), _sizes(scope, len(resized))
    if (scales is None) == (sizes is None):
        raise ModelError("either scales or sizes must be given")
    if sizes is not None:
        factors = _factors(scope, [shape[d] for d in resized], sizes)
    for index, d in enumerate(resized):
        begin, end = regions[index]
        if sizes is not None:
            axes[d] = _sized(shape[d], sizes[index], factors[index], begin, end)
        elif scales is not None:
            axes[d] = _scaled(shape[d], scales[index], begin, end)
        if shape[d] == 0 and axes[d].new:
            raise ModelError(f"axis {d} has no elements to make {axes[d].new} of")
    return tuple(axes)


def _scaled(old: int, scale: float, begin: Fraction, end: Fraction) -> InterpolatedAxis:
    # In f32, where 0.7 of 10 is 7.
    width = float(np.float32(old) * np.float32(end - begin) * np.float32(scale))
    if width >= _MOST:
        raise ModelError(f"{scale} times {old} elements are too many")
    exact = ratio(old, floor(width), scale)
    return InterpolatedAxis(old, floor(width), exact, old * (end - begin) * exact, begin, end)


def _sized(
    old: int, size: int, factor: Fraction | None, begin: Fraction, end: Fraction
) -> InterpolatedAxis:
    """``factor`` applies to all axes where the aspect ratio is fixed."""
    if factor is None:
        return InterpolatedAxis(old, size, Fraction(size, max(1, old)), Fraction(size), begin, end)
    return InterpolatedAxis(
        old, floor(factor * old + Fraction(1, 2)), factor, factor * old, begin, end
    )


def _factors(scope: Scope, old: Sequence[int], sizes: Sequence[int]) -> list[Fraction | None]:
    """The one factor of all axes for a fixed aspect ratio."""
    policy = _name(scope, "keep_aspect_ratio_policy", "stretch", _POLICIES)
    if policy == "stretch" or not sizes or 0 in old:
        return [None] * len(sizes)
    chosen = min if policy == "not_larger" else max
    factors = (Fraction(size, n) for size, n in zip(sizes, old, strict=True))
    return [chosen(factors)] * len(sizes)


def _scales(scope: Scope, count: int) -> list[float] | None:
    if "scales" in scope.node.attrs:
        given: Array | None = np.asarray(scope.node.attrs["scales"])
    else:
        given = scope.constant(1 if _is_old(scope) else 2)
    if given is None or not given.size:
        return None
    scales = [float(n) for n in given.ravel()]
    if len(scales) != count or not all(isfinite(n) and n > 0 for n in scales):
        raise ModelError(f"scales {scales} must be {count} positive numbers")
    return scales


def _sizes(scope: Scope, count: int) -> list[int] | None:
    given = None if _is_old(scope) else scope.constant(3)
    if given is None or not given.size:
        return None
    sizes = [int(n) for n in given.ravel()]
    if len(sizes) != count or not all(0 <= n < _MOST for n in sizes):
        raise ModelError(f"sizes {sizes} must be {count} of at least 0 and less than {_MOST}")
    return sizes


def _regions(scope: Scope, count: int) -> list[tuple[Fraction, Fraction]]:
    """Where each axis begins and ends, as parts of it: all of it unless a region is asked for."""
    mode = scope.attr("coordinate_transformation_mode", b"").decode(errors="replace")
    if mode != CROPS or _is_old(scope):
        return [(Fraction(0), Fraction(1))] * count
    given = scope.constant(1)
    numbers = [] if given is None else [float(n) for n in given.ravel()]
    if len(numbers) != 2 * count or not all(map(isfinite, numbers)):
        raise ModelError(f"roi {numbers} must be {2 * count} numbers: {count} starts, then ends")
    ends = list(map(Fraction, numbers))
    return list(zip(ends[:count], ends[count:], strict=True))
