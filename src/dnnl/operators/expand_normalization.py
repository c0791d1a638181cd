"""Normalizations in the shapes that their primitives take: rows, or groups of channels."""

from __future__ import annotations

from math import prod

import numpy as np

from dnnl.graph.graph import Shape
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import same_shape
from dnnl.graph.writer import Writer
from dnnl.operators.shapes_normalization import PER_CHANNEL

_MOST_DIMENSIONS = 5
_F32 = np.dtype(np.float32)


def layer(writer: Writer) -> bool:
    """Rows along the last dimension, which the dimensions from ``axis`` on become.

    Scale and shift that have one number for each place in a row stay, others become nodes, and so
    do statistics that are results.
    """
    node, shape = writer.node, writer.graph.shape_of(writer.node.output)
    axis = Scope(node, writer.graph).axis(-1)
    row = shape[axis:]
    parameters = [_per_place(writer, node.input(index), row) for index in (1, 2)]
    if node.input(1) and not parameters[0]:
        parameters[1] = ""  # the shift comes after the scale
    seen = shape
    if axis != len(shape) - 1 or not 2 <= len(shape) <= _MOST_DIMENSIONS:
        seen = (prod(shape[:axis]), prod(row))
    source = _seen(writer, node.inputs[0], shape, seen)
    attrs = {"epsilon": node.attrs.get("epsilon", 1e-5)}
    if any(node.outputs[1:]):
        rows = (prod(shape[:axis]), prod(row))
        _statistics(writer, _seen(writer, source, seen, rows), rows, attrs["epsilon"])
    result = writer.add(node.op, (source, *parameters), seen, attrs)
    result = _seen(writer, result, seen, shape)
    for index, op in ((1, "Mul"), (2, "Add")):
        if node.input(index) and not parameters[index - 1]:
            result = writer.add(op, (result, node.input(index)), shape)
    return True


def _statistics(writer: Writer, source: str, shape: Shape, epsilon: float) -> None:
    """The mean of each row of a matrix, and one divided by its deviation, in f32."""
    rows = (shape[0], 1)

    def add(op: str, inputs: tuple[str, ...], shape: Shape, **attrs: object) -> str:
        return writer.add(op, inputs, shape, attrs, _F32)

    def mean(value: str) -> str:
        return value if same_shape(shape, rows) else add("ReduceMean", (value,), rows, axes=(1,))

    if writer.dtype != _F32:
        source = add("Cast", (source,), shape, to=_F32)
    means = mean(source)
    distance = add("Sub", (source, means), shape)
    variance = mean(add("Mul", (distance, distance), shape))
    shifted = add("Add", (variance, writer.constant(epsilon, _F32)), rows)
    inverse = add("Pow", (shifted, writer.constant(-0.5, _F32)), rows)
    for index, value in ((1, means), (2, inverse)):
        if index < len(writer.node.outputs) and writer.node.outputs[index]:
            result = writer.graph.shape_of(writer.node.outputs[index])
            writer.show(writer.reshape(value, result, _F32), index)


def _per_place(writer: Writer, value: str, row: Shape) -> str:
    """``value`` as a vector with one number for each place in a row; "" where it is none."""
    if not value:
        return ""
    shape = writer.graph.shape_of(value)
    leading = len(shape) - len(row)
    if any(extent != 1 for extent in shape[: max(0, leading)]):
        return ""
    array = writer.graph.constants.get(value)
    if array is not None:
        fitting = array.reshape(shape[max(0, leading) :])
        return writer.constant(np.broadcast_to(fitting, row).ravel())
    if prod(shape) != prod(row):
        return ""
    return _seen(writer, value, shape, (prod(row),))


def _seen(writer: Writer, value: str, shape: Shape, seen: Shape) -> str:
    return value if same_shape(shape, seen) else writer.reshape(value, seen)


def group(writer: Writer) -> bool:
    """Groups of channels, of one channel each for an instance normalization, with a scale and a
    shift for each channel."""
    node, graph = writer.node, writer.graph
    shape = graph.shape_of(node.output)
    groups = shape[1] if node.op == "InstanceNormalization" else node.attrs["num_groups"]
    parameters = [_per_channel(writer, value, shape[1]) for value in node.inputs[1:3]]
    seen = shape
    if not 3 <= len(shape) <= _MOST_DIMENSIONS:
        seen = (*shape[:2], prod(shape[2:]))
    source = _seen(writer, node.inputs[0], shape, seen)
    attrs = {"epsilon": node.attrs.get("epsilon", 1e-5), "num_groups": max(1, groups)}
    result = writer.add("GroupNormalization", (source, *parameters), seen, attrs)
    _seen(writer, result, seen, shape)
    return True


def _per_channel(writer: Writer, value: str, channels: int) -> str:
    """``value``, which may have a number for each group, with one for each channel."""
    if writer.node.op != "GroupNormalization" or writer.graph.opset >= PER_CHANNEL:
        return value
    groups = writer.node.attrs["num_groups"]
    array = writer.graph.constants.get(value)
    if array is not None:
        return writer.constant(np.repeat(array, channels // groups))
    column = writer.reshape(value, (groups, 1))
    ones = writer.constant(np.ones((1, channels // groups)))
    table = writer.add("Mul", (column, ones), (groups, channels // groups))
    return writer.reshape(table, (channels,))
