"""Operators that choose, repeat or surround elements, written as others."""

from __future__ import annotations

from math import prod

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.framework.graph import ModelError, Shape
from dnnl.framework.shapes import Scope
from dnnl.framework.shapes_data import around, padding, slices
from dnnl.framework.writer import Writer

_TRUTH = np.dtype(np.bool_)
_INDEX = np.dtype(np.int64)


def slices_of(writer: Writer) -> bool:
    """One axis after the other, those that go backwards as a Gather."""
    node, graph = writer.node, writer.graph
    found = slices(Scope(node, graph))
    if len(found) == 1 and found[0].step > 0:
        return False
    value, shape = node.inputs[0], graph.shape_of(node.inputs[0])
    for part in found:
        whole = part.count == shape[part.axis] and part.step == 1
        shape = _with(shape, part.axis, part.count)
        if part.step < 0:
            places = range(part.first, part.first + part.count * part.step, part.step)
            value = gathered(writer, value, shape, part.axis, tuple(places))
        elif not whole:
            end = part.first + part.count * part.step
            named = {"starts": (part.first,), "ends": (end,), "axes": (part.axis,)}
            value = writer.add("Slice", (value,), shape, {**named, "steps": (part.step,)})
    return _ended(writer, value)


def tile(writer: Writer) -> bool:
    """Each axis by a Gather that goes around."""
    node, graph = writer.node, writer.graph
    value, shape = node.inputs[0], graph.shape_of(node.inputs[0])
    for axis, size in enumerate(graph.shape_of(node.output)):
        if size != shape[axis]:
            places = tuple(place % shape[axis] for place in range(size))
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
    for axis, before, behind in padding(scope):
        extent = shape[axis]
        if mode != "constant":
            if not extent:
                raise ModelError(f"there is nothing to repeat along axis {axis}")
            places = tuple(around(mode, extent, before, behind))
            shape = _with(shape, axis, len(places))
            value = gathered(writer, value, shape, axis, places)
            continue
        kept = max(0, extent + min(before, 0) + min(behind, 0))
        if kept < extent:
            first = -min(before, 0)
            named = {"starts": (first,), "ends": (first + kept,), "axes": (axis,)}
            value = writer.add("Slice", (value,), _with(shape, axis, kept), named)
        parts = [
            writer.constant(np.full(_with(shape, axis, size), filler)) if size > 0 else ""
            for size in (before, behind)
        ]
        sources = tuple(filter(None, (parts[0], value, parts[1])))
        shape = _with(shape, axis, extent + before + behind)
        if len(sources) > 1:
            value = writer.add("Concat", sources, shape, {"axis": axis})
    return _ended(writer, value)


def trilu(writer: Writer) -> bool:
    """A constant mask chooses between the source and zeros."""
    node, graph = writer.node, writer.graph
    scope, shape = Scope(node, graph), graph.shape_of(node.output)
    k = scope.constant(1)
    if k is not None and k.size != 1:
        raise ModelError("k must be one number")
    offset = 0 if k is None else int(k.item())
    every = np.ones(shape[-2:], np.bool_)
    mask = np.triu(every, offset) if scope.attr("upper", 1) else np.tril(every, offset)
    sources = (writer.constant(mask, _TRUTH), node.inputs[0], writer.constant(0))
    writer.add("Where", sources, shape)
    return True


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
        raise Unimplemented(f"{node}: it asks for infinities of neither sign")
    found = [
        writer.add("Equal", (node.inputs[0], writer.constant(number)), shape, dtype=_TRUTH)
        for number in wanted
    ]
    if len(found) > 1:
        writer.add("Or", (found[0], found[1]), shape, dtype=_TRUTH)
    return True


def gathered(writer: Writer, value: str, shape: Shape, axis: int, places: tuple[int, ...]) -> str:
    """The slices of ``value`` along an axis at ``places``, which have the ``shape``."""
    if not prod(shape):
        rule = "no elements in the order that indices say"
        raise Unimplemented(f"{writer.node}: {rule}")
    indices = writer.constant(places, _INDEX)
    return writer.add("Gather", (value, indices), shape, {"axis": axis})


def _with(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _ended(writer: Writer, value: str) -> bool:
    """Nothing left to do is a node as well."""
    if not writer.nodes:
        writer.add("Identity", (value,), writer.graph.shape_of(writer.node.output))
    return True
