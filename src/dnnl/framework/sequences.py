"""Lists of tensors, as loops make them.

A list is never changed: an operator gives a new one, which shares its tensors with the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import Array, ModelError, Node
from dnnl.graph.scope import normal_axis

Given = Sequence[Any]


def empty(node: Node, given: Given) -> list[Any]:
    """A list of no tensors."""
    return [[]]


def constructed(node: Node, given: Given) -> list[Any]:
    """A list of all sources."""
    if not given:
        raise ModelError("a list is made of one tensor or more")
    kinds = {array.dtype for array in given}
    if len(kinds) > 1:
        raise ModelError(f"tensors of {', '.join(sorted(map(str, kinds)))}: a list has one type")
    return [list(given)]


def inserted(node: Node, given: Given) -> list[Any]:
    """A list with one more tensor, at its end or before a position."""
    items, tensor = _list(node, given), given[1]
    if items and items[0].dtype != tensor.dtype:
        rule = f"must be of {items[0].dtype}, as the others of the list"
        raise InvalidArguments(f"tensor {node.input(1)!r}", str(tensor.dtype), rule)
    place = _position(node, given, 2, len(items), len(items))
    return [[*items[:place], tensor, *items[place:]]]


def erased(node: Node, given: Given) -> list[Any]:
    """A list without one of its tensors, by default the last."""
    items = _list(node, given)
    place = _position(node, given, 1, len(items) - 1, len(items) - 1)
    return [[*items[:place], *items[place + 1 :]]]


def at(node: Node, given: Given) -> list[Any]:
    """One tensor of a list."""
    items = _list(node, given)
    return [items[_position(node, given, 1, len(items) - 1, None)]]


def length(node: Node, given: Given) -> list[Any]:
    """How many tensors a list has, an int64 scalar."""
    return [np.array(len(_list(node, given)), np.int64)]


def _list(node: Node, given: Given) -> list[Array]:
    if not isinstance(given[0], list):
        raise ModelError(f"input {node.input(0)!r} is a tensor, not a list of tensors")
    return given[0]


def _position(node: Node, given: Given, source: int, last: int, default: int | None) -> int:
    """A place in a list, which may be counted from its end, from 0 to ``last``."""
    count = len(given[0])
    array = given[source] if source < len(given) else None
    if array is None:
        if default is None or not 0 <= default <= last:
            raise InvalidArguments("position", None, f"the list has {count} tensors")
        return default
    if array.size != 1 or array.dtype.kind not in "iu":
        found = f"{array.dtype} {list(array.shape)}"
        raise InvalidArguments(f"position {node.input(source)!r}", found, "must be one integer")
    place = int(array.item())
    if not -count <= place <= last:
        rule = f"must be from {-count} to {last}: the list has {count} tensors"
        raise InvalidArguments(f"position {node.input(source)!r}", place, rule)
    return place + count if place < 0 else place


def split(node: Node, given: Given) -> list[Any]:
    """The parts of a tensor along an axis: of given sizes, of one size but the last, or of one
    slice, then without the axis unless ``keepdims`` says otherwise."""
    source, sizes = given[0], given[1] if len(given) > 1 else None
    axis = normal_axis(node.attrs.get("axis", 0), source.ndim)
    extent = source.shape[axis]
    if sizes is None:
        parts = np.split(source, extent, axis) if extent else []
        if not node.attrs.get("keepdims", 1):
            parts = [part.squeeze(axis) for part in parts]
        return [parts]
    if sizes.ndim > 1 or sizes.dtype.kind not in "iu" or (not sizes.ndim and int(sizes) < 1):
        rule = "must be a positive integer or a row of sizes"
        raise InvalidArguments(f"split {node.input(1)!r}", sizes.tolist(), rule)
    if not sizes.ndim:
        ends = np.arange(int(sizes), extent, int(sizes))
    elif (sizes < 0).any() or sizes.sum() != extent:
        rule = f"must add up to {extent}, the slices of axis {axis}"
        raise InvalidArguments(f"split {node.input(1)!r}", sizes.tolist(), rule)
    else:
        ends = np.cumsum(sizes)[:-1]
    return [np.split(source, ends, axis)]


def joined(node: Node, given: Given) -> list[Any]:
    """The tensors of a list one after the other along an axis, a new one for ``new_axis``."""
    items, axis = _list(node, given), node.attrs.get("axis")
    if axis is None:
        raise ModelError("attribute 'axis' is missing")
    if not items:
        raise InvalidArguments(f"list {node.input(0)!r}", [], "must have one tensor or more")
    is_new = bool(node.attrs.get("new_axis", 0))
    axis = normal_axis(axis, items[0].ndim + is_new)
    shapes = {array.shape for array in items}
    if not is_new:
        shapes = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(shapes) > 1 or len({array.ndim for array in items}) > 1:
        every = ", ".join(str(array.shape) for array in items[:4])
        raise ModelError(f"tensors of shapes {every} cannot be joined along axis {axis}")
    return [np.stack(items, axis) if is_new else np.concatenate(items, axis)]
