"""Operators that choose, repeat or surround elements, written as others."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from dnnl.graph.graph import ModelError, Shape
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.operators.shapes_data import around, padding, slices
from dnnl.runtime.storage import check_capacity
from dnnl.types.size import surely_equal

_TRUTH = np.dtype(np.bool_)
_INDEX = np.dtype(np.int64)
_OUTSIDE = 2**56
"""Larger than any tensor, and so small that a sum of one for each axis is an int64."""
Places = npt.NDArray[np.integer]


def slices_of(writer: Writer) -> bool:
    """One axis after the other, those that go backwards as a Gather."""
    node, graph = writer.node, writer.graph
    found = slices(Scope(node, graph))
    if len(found) == 1 and found[0].step > 0:
        return False
    value, shape = node.inputs[0], graph.shape_of(node.inputs[0])
    for part in found:
        whole = surely_equal(part.count, shape[part.axis]) and part.step == 1
        shape = _with(shape, part.axis, part.count)
        if part.step < 0:
            check_capacity(prod(shape) * writer.dtype.itemsize + part.count * _INDEX.itemsize)
            places = part.first + part.step * np.arange(part.count)
            value = gathered(writer, value, shape, part.axis, places)
        elif not whole:
            end = part.first + part.count * part.step
            named = {"starts": (part.first,), "ends": (end,), "axes": (part.axis,)}
            value = writer.add("Slice", (value,), shape, {**named, "steps": (part.step,)})
    return _ended(writer, value)


def tile(writer: Writer) -> bool:
    """Each axis by a Gather that goes around."""
    node, graph = writer.node, writer.graph
    value, shape = node.inputs[0], graph.shape_of(node.inputs[0])
    out = graph.shape_of(node.output)
    check_capacity(prod(out) * writer.dtype.itemsize + sum(out) * _INDEX.itemsize)
    for axis, size in enumerate(out):
        if not surely_equal(size, shape[axis]):
            places = np.arange(size) % max(1, shape[axis])
            shape = _with(shape, axis, size)
            value = gathered(writer, value, shape, axis, places)
    return _ended(writer, value)


def pad(writer: Writer) -> bool:
    """Constants before and behind each axis, or a Gather where elements are repeated."""
    node, graph = writer.node, writer.graph
    scope = Scope(node, graph)
    mode = scope.attr("mode", b"constant").decode()
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise ModelError(f"attribute 'mode' = {mode!r} is none of constant, edge, reflect, wrap")
    filler = scope.constant(2) if node.input(2) else np.asarray(scope.attr("value", 0.0))
    value, shape = node.inputs[0], graph.shape_of(node.inputs[0])
    out = graph.shape_of(node.output)
    check_capacity(2 * prod(out) * writer.dtype.itemsize + sum(out) * _INDEX.itemsize)
    for axis, front, back in padding(scope):
        first, rest = max(0, -front), shape[axis] + min(front, 0) + min(back, 0)
        before, behind = (max(0, size + min(rest, 0)) for size in (front, back))
        rest = max(0, rest)
        if rest < shape[axis]:
            shape = _with(shape, axis, rest)
            named = {"starts": (first,), "ends": (first + rest,), "axes": (axis,)}
            value = writer.add("Slice", (value,), shape, named)
        whole = _with(shape, axis, before + rest + behind)
        if mode != "constant":
            if not rest and 0 not in whole:
                raise ModelError(f"there is nothing to repeat along axis {axis}")
            value = gathered(writer, value, whole, axis, around(mode, rest, before, behind))
        elif before or behind:
            parts = [
                writer.constant(np.full(_with(shape, axis, size), filler, writer.dtype))
                if size
                else ""
                for size in (before, behind)
            ]
            sources = tuple(filter(None, (parts[0], value, parts[1])))
            value = writer.add("Concat", sources, whole, {"axis": axis})
        shape = whole
    return _ended(writer, value)


def trilu(writer: Writer) -> bool:
    """A constant mask chooses between the source and zeros."""
    node, graph = writer.node, writer.graph
    scope, shape = Scope(node, graph), graph.shape_of(node.output)
    k = scope.constant(1)
    if k is not None and k.size != 1:
        raise ModelError("k must be one number")
    offset = 0 if k is None else int(k.item())
    check_capacity(prod(shape[-2:]))
    every = np.ones(shape[-2:], np.bool_)
    mask = np.triu(every, offset) if scope.attr("upper", 1) else np.tril(every, offset)
    sources = (writer.constant(mask, _TRUTH), node.inputs[0], writer.constant(0))
    writer.add("Where", sources, shape)
    return True


def gather_nd(writer: Writer) -> bool:
    """Slices of the source seen with one axis instead of those that are indexed, by the place on it
    that each row of indices means."""
    node, graph = writer.node, writer.graph
    shape, rows = graph.shape_of(node.inputs[0]), graph.shape_of(node.inputs[1])
    batch = Scope(node, graph).attr("batch_dims", 0)
    axes, rest = shape[batch : batch + rows[-1]], shape[batch + rows[-1] :]
    first = prod(axes) * np.arange(prod(shape[:batch]))
    first = first.reshape((*shape[:batch], *[1] * (len(rows) - 1 - batch)))
    strides = np.cumprod((1, *axes[:0:-1]))[::-1]
    known = graph.constants.get(node.inputs[1])
    if known is None:
        places = _places(writer, axes, strides)
        if batch:
            base = writer.constant(first, _INDEX)
            places = writer.add("Add", (places, base), rows[:-1], dtype=_INDEX)
    else:
        wrapped = np.where(known < 0, known + axes, known)
        places = writer.constant((wrapped * strides).sum(-1) + first, _INDEX)
    seen = writer.reshape(node.inputs[0], (prod(shape[:batch]) * prod(axes), *rest))
    writer.add("Gather", (seen, places), (*rows[:-1], *rest), {"axis": 0})
    return True


def _places(writer: Writer, axes: Shape, strides: Places) -> str:
    """The flat offsets of rows of indices among ``axes`` seen as one; where one of a row is
    outside, a place far behind the end, which a run refuses."""
    indices, rows = writer.node.inputs[1], writer.graph.shape_of(writer.node.inputs[1])

    def add(op: str, *inputs: str, dtype: np.dtype = _INDEX) -> str:
        return writer.add(op, inputs, rows, dtype=dtype)

    zero, extents = writer.constant(0, _INDEX), writer.constant(axes, _INDEX)
    negative = add("Less", indices, zero, dtype=_TRUTH)
    wrapped = add("Where", negative, add("Add", indices, extents), indices)
    low = add("GreaterOrEqual", wrapped, zero, dtype=_TRUTH)
    inside = add("And", low, add("Less", wrapped, extents, dtype=_TRUTH), dtype=_TRUTH)
    parts = add("Mul", wrapped, writer.constant(strides, _INDEX))
    parts = add("Where", inside, parts, writer.constant(_OUTSIDE, _INDEX))
    attrs = {"axes": (-1,), "keepdims": 0}
    return writer.add("ReduceSum", (parts,), rows[:-1], attrs, _INDEX)


def is_nan(writer: Writer) -> bool:
    """What does not equal itself."""
    value, shape = writer.node.inputs[0], writer.graph.shape_of(writer.node.output)
    number = writer.add("Equal", (value, value), shape, dtype=_TRUTH)
    writer.add("Not", (number,), shape, dtype=_TRUTH)
    return True


def is_inf(writer: Writer) -> bool:
    """What equals an infinity of a sign that is asked for."""
    node, graph = writer.node, writer.graph
    scope, shape = Scope(node, graph), graph.shape_of(node.output)
    wanted = [
        sign * np.inf
        for sign, name in ((1, "detect_positive"), (-1, "detect_negative"))
        if scope.attr(name, 1)
    ]
    if not wanted:
        never = writer.constant(np.zeros(shape), _TRUTH)
        writer.add("Identity", (never,), shape, dtype=_TRUTH)
        return True
    found = [
        writer.add("Equal", (node.inputs[0], writer.constant(number)), shape, dtype=_TRUTH)
        for number in wanted
    ]
    if len(found) > 1:
        writer.add("Or", (found[0], found[1]), shape, dtype=_TRUTH)
    return True


def gathered(writer: Writer, value: str, shape: Shape, axis: int, places: Places) -> str:
    """The slices of ``value`` along an axis at ``places``, which have the ``shape``."""
    if not prod(shape):
        return writer.add("Identity", (writer.constant(np.zeros(shape)),), shape)
    indices = writer.constant(places, _INDEX)
    return writer.add("Gather", (value, indices), shape, {"axis": axis})


def _with(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _ended(writer: Writer, value: str) -> bool:
    """Nothing left to do is a node as well."""
    if not writer.nodes:
        writer.add("Identity", (value,), writer.graph.shape_of(writer.node.output))
    return True
