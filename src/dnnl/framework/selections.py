"""Operators whose results have as many elements as contents decide, on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import Array, ModelError, Node
from dnnl.graph.scope import normal_axis

_INDEX = np.dtype(np.int64)
Given = Sequence[Array | None]


def nonzero(node: Node, given: Given) -> list[Array]:
    """The indices [rank, n] of the elements that are not 0, in row-major order; those of a scalar
    are [0, n]."""
    source = _source(node, given, 0)
    if not source.ndim:
        return [np.zeros((0, np.count_nonzero(source)), _INDEX)]
    return [np.stack(np.nonzero(source)).astype(_INDEX, copy=False)]


def compress(node: Node, given: Given) -> list[Array]:
    """The slices of an axis, or the elements of the whole, for which a condition holds."""
    source, condition = _source(node, given, 0), _source(node, given, 1)
    if condition.dtype != np.bool_ or condition.ndim != 1:
        found = f"{condition.dtype} {list(condition.shape)}"
        raise InvalidArguments(f"condition {node.input(1)!r}", found, "must be a row of bool")
    axis = node.attrs.get("axis")
    data = source.ravel() if axis is None else source
    axis = 0 if axis is None else normal_axis(axis, source.ndim)
    extent = data.shape[axis]
    if condition.size > extent:
        rule = f"must have at most {extent} elements, those of axis {axis}"
        raise InvalidArguments(f"condition {node.input(1)!r}", condition.size, rule)
    return [data[(slice(None),) * axis + (np.flatnonzero(condition),)]]


def unique(node: Node, given: Given) -> list[Array]:
    """The different elements, or slices of an axis: themselves, where the first of each is, which
    one each element is, and how many there are of each."""
    source = _source(node, given, 0)
    axis = node.attrs.get("axis")
    if axis is not None:
        axis = normal_axis(axis, source.ndim)
    compared = source.astype(np.float32) if source.dtype.kind == "V" else source
    _, first, inverse, counts = np.unique(
        compared, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.ravel()
    if not node.attrs.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(order.size)
        first, counts, inverse = first[order], counts[order], places[inverse]
    chosen = source.ravel()[first] if axis is None else np.take(source, first, axis)
    return [chosen, *(each.astype(_INDEX, copy=False) for each in (first, inverse, counts))]


def top_k(node: Node, given: Given) -> list[Array]:
    """The k largest or smallest elements along an axis and their places; of equal ones those with
    the lowest places, in the order of their values."""
    source = _source(node, given, 0)
    axis = normal_axis(node.attrs.get("axis", -1), source.ndim)
    count, extent = _count(node, given), source.shape[axis]
    if not 0 <= count <= extent:
        rule = f"must be from 0 to {extent}, the elements of axis {axis}"
        raise InvalidArguments(f"k {node.input(1)!r}", count, rule)
    rows = source if axis == source.ndim - 1 else np.moveaxis(source, axis, -1)
    largest = bool(node.attrs.get("largest", 1))
    places = _first(_keys(rows, largest=largest), count)
    found = np.take_along_axis(rows, places, -1), places
    if rows is source:
        return list(found)
    return [np.ascontiguousarray(np.moveaxis(each, -1, axis)) for each in found]


def _count(node: Node, given: Given) -> int:
    if "k" in node.attrs:  # before operator set 10
        return int(node.attrs["k"])
    count = _source(node, given, 1)
    if count.size != 1 or count.dtype.kind not in "iu":
        found = f"{count.dtype} {list(count.shape)}"
        raise InvalidArguments(f"k {node.input(1)!r}", found, "must be one integer")
    return int(count.item())


def _keys(rows: Array, *, largest: bool) -> Array:
    """Integers in whose order the elements are wanted. A NaN is larger than any other number, as in
    ONNX Runtime."""
    if rows.dtype.kind == "V":
        rows = rows.astype(np.float32)
    keys = rows
    if rows.dtype.kind == "f":
        whole = (rows + rows.dtype.type(0)).view(f"i{rows.itemsize}")  # 0 for -0
        most = np.iinfo(whole.dtype).max
        ordered = np.where(whole < 0, whole ^ most, whole)  # the sign is apart from the number
        keys = np.where(np.isnan(rows), most, ordered)
    return ~keys if largest else keys  # exact, also for the least number of a type


def _first(keys: Array, count: int) -> npt.NDArray[np.int64]:
    """The places of the smallest keys, in order; of equal ones those that come first."""
    extent = keys.shape[-1]
    if count == 1 and extent:
        return np.asarray(keys.argmin(-1, keepdims=True), _INDEX)
    if 0 < count < extent // 8:
        # Only keys up to the last one that is wanted are sorted: of equal ones there may be more.
        last = np.partition(keys, count - 1, axis=-1)[..., count - 1 : count]
        most = int((keys <= last).sum(-1).max(initial=count))
        if most <= extent // 4:
            chosen = np.argsort(~(keys <= last), axis=-1, kind="stable")[..., :most]
            within = np.argsort(np.take_along_axis(keys, chosen, -1), axis=-1, kind="stable")
            return np.take_along_axis(chosen, within[..., :count], -1).astype(_INDEX)
    return np.argsort(keys, axis=-1, kind="stable")[..., :count].astype(_INDEX)


def non_max_suppression(node: Node, given: Given) -> list[Array]:
    """Rows (batch, class, box) of the boxes with the highest scores, none of which overlaps one
    before it in its class by more than a threshold."""
    boxes, scores = _source(node, given, 0), _source(node, given, 1)
    shapes = f"boxes {list(boxes.shape)}, scores {list(scores.shape)}"
    if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.ndim != 3:
        raise ModelError(f"{shapes}: they must be [batch, n, 4] and [batch, classes, n]")
    if (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        raise ModelError(f"{shapes}: they must agree in the batch and in the number of boxes")
    most = int(_number(node, given, 2, 0))
    limit = np.float32(_number(node, given, 3, 0.0))
    if not 0 <= limit <= 1:
        rule = "must be between 0 and 1"
        raise InvalidArguments(f"iou_threshold {node.input(3)!r}", float(limit), rule)
    least = _number(node, given, 4, None)
    corners = _corners(boxes, centered=bool(node.attrs.get("center_point_box", 0)))
    found = [
        (batch, kind, box)
        for batch in range(scores.shape[0] if most > 0 else 0)
        for kind in range(scores.shape[1])
        for box in _kept(corners[batch], scores[batch, kind], most, limit, least)
    ]
    return [np.array(found, _INDEX).reshape(-1, 3)]


def _number(node: Node, given: Given, place: int, default: Any) -> Any:
    array = given[place] if place < len(given) else None
    if array is None:
        return default
    if array.size != 1:
        rule = "must be one number"
        raise InvalidArguments(f"input {node.input(place)!r}", list(array.shape), rule)
    return array.item()


def _corners(boxes: Array, *, centered: bool) -> Array:
    """The lower and the upper corner of each box, [batch, n, 4]."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centered:
        first, second = first - second / 2, first + second / 2
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _kept(
    corners: Array, scores: Array, most: int, limit: np.float32, least: float | None
) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[scores[order] > np.float32(least)]
    areas = (corners[:, 2:] - corners[:, :2]).prod(-1)
    selected: list[int] = []
    while order.size and len(selected) < most:
        best, rest = int(order[0]), order[1:]
        selected.append(best)
        low = np.maximum(corners[best, :2], corners[rest, :2])
        high = np.minimum(corners[best, 2:], corners[rest, 2:])
        shared = np.maximum(high - low, 0).prod(-1)
        union = areas[best] + areas[rest] - shared
        apart = (areas[best] <= 0) | (areas[rest] <= 0) | (shared <= 0) | (union <= 0)
        order = rest[apart | (shared <= limit * union)]
    return selected


def _source(node: Node, given: Given, place: int) -> Array:
    array = given[place] if place < len(given) else None
    if array is None:
        raise ModelError(f"input {place} is missing")
    return array
