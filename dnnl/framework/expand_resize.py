"""Resizing by the resampling primitive where it computes that, else axis by axis: nearest elements
are gathered, others are weighted sums of those."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.framework.exact import is_whole
from dnnl.framework.expand_data import gathered
from dnnl.framework.graph import Shape
from dnnl.framework.interpolation import (
    Axis,
    Rule,
    is_identity,
    is_resampling,
    nearest,
    outside,
    taps,
)
from dnnl.framework.shapes import Scope
from dnnl.framework.shapes_resize import axes_of, rule_of
from dnnl.framework.writer import Writer
from dnnl.runtime.storage import check_room

_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
_MOST_SPATIAL = 3
_PLACE = 64  # bytes that computing the place of an element takes for a while


def resize(writer: Writer) -> bool:
    """Nothing where each element is itself, one resampling, or some nodes for each axis."""
    scope = Scope(writer.node, writer.graph)
    rule, axes = rule_of(scope), axes_of(scope)
    source, dst = writer.node.inputs[0], tuple(axis.new for axis in axes)
    if is_whole(writer.dtype) and rule.mode != "nearest":
        raise Unimplemented(f"{rule.mode} interpolation of {writer.dtype}; Cast makes floats of it")
    if 0 in dst:
        writer.add("Identity", (writer.constant(np.zeros(dst)),), dst)
        return True
    # Before the places of so many elements are computed.
    check_room(max(prod(dst) * writer.dtype.itemsize, max(dst) * _PLACE))
    changed = [d for d, axis in enumerate(axes) if not is_identity(rule, axis)]
    if not changed:
        writer.add("Identity", (source,), dst)
    elif _resamples(writer, rule, [axes[d] for d in changed]):
        _resampled(writer, rule.mode, changed, dst)
    elif rule.mode == "nearest":
        _chosen(writer, rule, axes, changed)
    else:
        _interpolated(writer, rule, axes, changed)
    return True


def _resamples(writer: Writer, rule: Rule, changed: Sequence[Axis]) -> bool:
    """Whether the primitive computes it, as it does not of integers that f32 does not hold."""
    held = not is_whole(writer.dtype) or writer.dtype in _BYTES
    few = len(changed) <= _MOST_SPATIAL
    return held and few and all(is_resampling(rule, axis) for axis in changed)


def _resampled(writer: Writer, mode: str, changed: Sequence[int], dst: Shape) -> None:
    """The axes that change are those of space: they come to the end where they are not there."""
    source, attrs = writer.node.inputs[0], {"mode": mode}
    shape = writer.graph.shape_of(source)
    rank = len(shape)
    if changed[0] >= 2 and rank <= 2 + _MOST_SPATIAL:
        writer.add("Resize", (source,), dst, attrs)
        return
    others = [d for d in range(rank) if d not in changed]
    perm = (*others, *changed)
    ahead = tuple(shape[d] for d in others) or (1,)
    ahead = (prod(ahead[:-1]), ahead[-1])
    turned, resized = (tuple(sizes[d] for d in perm) for sizes in (shape, dst))
    value = writer.add("Transpose", (source,), turned, {"perm": perm})
    value = writer.reshape(value, (*ahead, *turned[len(others) :]))
    seen = (*ahead, *resized[len(others) :])
    value = writer.reshape(writer.add("Resize", (value,), seen, attrs), resized)
    back = tuple(perm.index(d) for d in range(rank))
    writer.add("Transpose", (value,), dst, {"perm": back})


def _chosen(writer: Writer, rule: Rule, axes: Sequence[Axis], changed: list[int]) -> None:
    """The nearest slices of each axis, those axes first that lose elements."""
    value, shape = writer.node.inputs[0], tuple(axis.old for axis in axes)
    for d in _in_order(axes, changed):
        places = nearest(rule, axes[d])
        shape = (*shape[:d], axes[d].new, *shape[d + 1 :])
        value = gathered(writer, value, shape, d, places)
        value = _extrapolated(writer, value, shape, d, outside(rule, axes[d]), rule.extrapolation)


def _in_order(axes: Sequence[Axis], changed: Sequence[int]) -> list[int]:
    """Those axes first that lose elements, which leaves less to do for the others."""
    return sorted(changed, key=lambda d: axes[d].new / axes[d].old)


def _extrapolated(
    writer: Writer, value: str, shape: Shape, axis: int, beyond: np.ndarray, other: float
) -> str:
    """``value`` with another number where ``beyond`` holds along an axis."""
    if not beyond.any():
        return value
    mask = beyond.reshape([-1 if at == axis else 1 for at in range(len(shape))])
    sources = (writer.constant(mask, np.dtype(np.bool_)), writer.constant(other), value)
    return writer.add("Where", sources, shape)


def _interpolated(writer: Writer, rule: Rule, axes: Sequence[Axis], changed: list[int]) -> None:
    """Weighted sums along each axis of what is gathered for all taps: products with matrices would
    spread an infinity."""
    value, shape = writer.node.inputs[0], tuple(axis.old for axis in axes)
    for d in _in_order(axes, changed):
        places, weights = taps(rule, axes[d])
        ahead, behind, count, new = prod(shape[:d]), prod(shape[d + 1 :]), *places.shape
        check_room(ahead * count * new * behind * writer.dtype.itemsize)
        value = writer.reshape(value, (ahead, axes[d].old, behind))
        value = gathered(writer, value, (ahead, count * new, behind), 1, places.ravel())
        seen, factors = (ahead, count, new, behind), weights[:, :, np.newaxis]
        value = writer.reshape(value, seen)
        value = writer.add("Mul", (value, writer.constant(factors)), seen)
        if count > 1:
            value = writer.add("ReduceSum", (value,), (ahead, 1, new, behind), {"axes": (1,)})
        shape = (*shape[:d], new, *shape[d + 1 :])
        value = writer.reshape(value, shape)
        value = _extrapolated(writer, value, shape, d, outside(rule, axes[d]), rule.extrapolation)
