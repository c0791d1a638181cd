"""Resizing by the resampling primitive, at once or axis by axis; integers that it does not compute
are gathered."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import Shape, is_whole
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.operators.expand_data import gathered
from dnnl.operators.interpolation import (
    InterpolatedAxis,
    Rule,
    is_identity,
    is_resampling,
    nearest,
    outside,
    taps,
)
from dnnl.operators.shapes_resize import axes_of, rule_of, whole_factors
from dnnl.runtime.storage import check_capacity
from dnnl.types.size import typical
from dnnl.types.taps import Taps

_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
_MOST_SPATIAL = 3
_LONGEST = 2**20  # elements along an axis of the primitive
_PLACE = 64  # bytes that computing the place of an element takes for a while
_PASS = 8  # an element that is stored and read again takes as long as so many taps


def resize(writer: Writer) -> bool:
    """Nothing where each element is itself, else resamplings, or some nodes for each axis."""
    scope = Scope(writer.node, writer.graph)
    rule = rule_of(scope)
    if _enlarged(writer, rule):
        return True
    axes = axes_of(scope)
    source, dst = writer.node.inputs[0], tuple(axis.new for axis in axes)
    if is_whole(writer.dtype) and rule.mode != "nearest":
        raise Unimplemented(f"{rule.mode} interpolation of {writer.dtype}; Cast makes floats of it")
    if 0 in dst:
        writer.add("Identity", (writer.constant(np.zeros(dst)),), dst)
        return True
    # Before the places of so many elements are computed.
    check_capacity(max(prod(dst) * writer.dtype.itemsize, max(dst) * _PLACE))
    changed = [d for d, axis in enumerate(axes) if not is_identity(rule, axis)]
    # Those axes first that lose elements, which leaves less to do for the others.
    changed.sort(key=lambda d: axes[d].new / axes[d].old)
    if not changed:
        writer.add("Identity", (source,), dst)
    elif _is_gathered(writer, rule, axes):
        _gathered(writer, rule, axes, changed)
    else:
        _resampled(writer, rule, axes, changed)
    return True


def _enlarged(writer: Writer, rule: Rule) -> bool:
    """One resampling by whole factors along axes of which only a run knows the sizes."""
    scope = Scope(writer.node, writer.graph)
    factors, shape = whole_factors(scope), scope.shape()
    if factors is None or is_whole(writer.dtype) or len(shape) > 2 + _MOST_SPATIAL:
        return False
    usual = [typical(n) for n in shape]
    axes = [
        InterpolatedAxis(n, n * times, Fraction(times), Fraction(n * times))
        for n, times in zip(usual, factors, strict=True)
    ]
    if not all(is_resampling(rule, axis) for axis in axes) or set(factors[:2]) != {1}:
        return False
    mode = "nearest" if rule.mode == "nearest" else "linear"
    dst = writer.graph.shape_of(writer.node.output)
    writer.add("Resize", (writer.node.inputs[0],), dst, {"mode": mode, "taps": ()})
    return True


def _is_gathered(writer: Writer, rule: Rule, axes: Sequence[InterpolatedAxis]) -> bool:
    """Whether elements are moved that the primitive does not: integers that f32 does not hold, and
    those of axes that are longer than its code has places for."""
    held = not is_whole(writer.dtype) or writer.dtype in _BYTES
    longest = max(max(axis.old, axis.new) for axis in axes)
    return rule.mode == "nearest" and (not held or longest > _LONGEST)


def _gathered(
    writer: Writer, rule: Rule, axes: Sequence[InterpolatedAxis], changed: Sequence[int]
) -> None:
    """The nearest slices of each axis."""
    value, shape = writer.node.inputs[0], tuple(axis.old for axis in axes)
    for d in changed:
        shape = (*shape[:d], axes[d].new, *shape[d + 1 :])
        value = gathered(writer, value, shape, d, nearest(rule, axes[d]))
    _extrapolated(writer, value, rule, axes)


def _resampled(
    writer: Writer, rule: Rule, axes: Sequence[InterpolatedAxis], changed: Sequence[int]
) -> None:
    """Weighted sums along all axes at once, or one after the other where these are fewer terms."""
    value, shape = writer.node.inputs[0], tuple(axis.old for axis in axes)
    own = {d: taps(rule, axes[d]) for d in changed}
    for part in _parts(axes, own):
        sizes = tuple(axes[d].new if d in part else n for d, n in enumerate(shape))
        usual = all(is_resampling(rule, axes[d]) for d in part)
        given = {} if usual else {d: own[d] for d in part}
        mode = "nearest" if rule.mode == "nearest" else "linear"
        value = _pass(writer, value, mode, sorted(part), (shape, sizes), given)
        shape = sizes
    _extrapolated(writer, value, rule, axes)


def _parts(axes: Sequence[InterpolatedAxis], own: dict[int, Taps]) -> list[list[int]]:
    """The axes that are resized."""
    left, total, apart = prod(axis.old for axis in axes), prod(axis.new for axis in axes), 0.0
    for d, each in own.items():
        left = left * axes[d].new // axes[d].old
        apart += left * (each.count + _PASS)
    at_once = total * (prod(each.count for each in own.values()) + _PASS)
    if len(own) <= _MOST_SPATIAL and at_once <= apart:
        return [list(own)]
    return [[d] for d in own]


def _pass(
    writer: Writer,
    source: str,
    mode: str,
    changed: Sequence[int],
    shapes: tuple[Shape, Shape],
    own: dict[int, Taps],
) -> str:
    """One resampling of ``source`` along axes, which are those of space: they come to the end where
    they are not there. Without taps of its ``own`` it has the usual ones."""
    shape, dst = shapes
    rank = len(shape)

    def add(value: str, sizes: Shape, spatial: Sequence[int]) -> str:
        each = [own.get(d) or Taps([range(dst[d])], np.ones((1, dst[d]))) for d in spatial]
        attrs = {"mode": mode, "taps": tuple(each) if own else ()}
        return writer.add("Resize", (value,), sizes, attrs)

    if changed[0] >= 2 and rank <= 2 + _MOST_SPATIAL:
        return add(source, dst, range(2, rank))
    others = [d for d in range(rank) if d not in changed]
    perm = (*others, *changed)
    ahead = tuple(shape[d] for d in others) or (1,)
    ahead = (prod(ahead[:-1]), ahead[-1])
    permuted, resized = (tuple(sizes[d] for d in perm) for sizes in (shape, dst))
    value = writer.add("Transpose", (source,), permuted, {"perm": perm})
    value = writer.reshape(value, (*ahead, *permuted[len(others) :]))
    value = writer.reshape(add(value, (*ahead, *resized[len(others) :]), changed), resized)
    back = tuple(perm.index(d) for d in range(rank))
    return writer.add("Transpose", (value,), dst, {"perm": back})


def _extrapolated(writer: Writer, value: str, rule: Rule, axes: Sequence[InterpolatedAxis]) -> None:
    """Another number where the region that is taken goes beyond the axes."""
    shape = tuple(axis.new for axis in axes)
    for d, axis in enumerate(axes):
        beyond = outside(rule, axis)
        if beyond.any():
            mask = beyond.reshape([-1 if at == d else 1 for at in range(len(shape))])
            number = writer.constant(rule.extrapolation)
            sources = (writer.constant(mask, np.dtype(np.bool_)), number, value)
            value = writer.add("Where", sources, shape)
