"""Reductions as those that a primitive has, of axes of more than one element, which stay as 1."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan, prod

import numpy as np

from dnnl.graph.graph import Shape, is_whole
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import same_shape
from dnnl.graph.writer import Writer
from dnnl.operators.shapes_reduction import reduced_axes
from dnnl.runtime.storage import check_capacity
from dnnl.types.dtype import DataType

_Nodes = Callable[[Writer, Shape], str]

_OF_NOTHING = {
    "ReduceLogSum": -inf,
    "ReduceLogSumExp": -inf,
    "ReduceMax": -inf,
    "ReduceMean": nan,
    "ReduceMin": inf,
    "ReduceProd": 1.0,
}
"""What no elements give; 0 where nothing is said."""


def reduction(writer: Writer) -> bool:
    """One reduction with what is computed of each element before it and of its results."""
    node, graph = writer.node, writer.graph
    shape, dst = graph.shape_of(node.inputs[0]), graph.shape_of(node.output)
    if 0 in shape:
        check_capacity(prod(dst) * writer.dtype.itemsize)
        nothing = writer.constant(np.full(dst, _of_nothing(writer)))
        writer.add("Identity", (nothing,), dst)
        return True
    axes = reduced_axes(Scope(node, graph))
    left = tuple(1 if d in axes else n for d, n in enumerate(shape))
    if same_shape(left, shape):
        result = _of_one(writer, shape)
    else:
        result = _composed(writer, shape, tuple(d for d in axes if shape[d] != 1), left)
    if left != dst:
        writer.reshape(result, dst)
    elif not writer.nodes:
        writer.add("Identity", (result,), dst)
    return True


def _of_nothing(writer: Writer) -> float:
    op, dtype = writer.node.op, writer.dtype
    value = _OF_NOTHING.get(op, 0.0)
    if not is_whole(dtype) or np.isfinite(value):
        return value
    if dtype.kind == "b":
        return value > 0
    return np.iinfo(dtype).max if value > 0 else np.iinfo(dtype).min


def _of_one(writer: Writer, shape: Shape) -> str:
    """What is left of an operator that adds up nothing."""
    source, op = writer.node.inputs[0], writer.node.op
    if op == "ReduceSumSquare":
        return writer.add("Mul", (source, source), shape)
    if op == "ReduceLogSum":
        return writer.add("Log", (source,), shape)
    if op in ("ReduceL1", "ReduceL2"):
        return _magnitudes(writer, shape)
    return source


def _magnitudes(writer: Writer, shape: Shape) -> str:
    source = writer.node.inputs[0]
    return source if writer.dtype.kind == "u" else writer.add("Abs", (source,), shape)


def _composed(writer: Writer, shape: Shape, axes: Shape, left: Shape) -> str:
    """The operator over ``axes``, all of which have more than one element."""

    def reduced(op: str, value: str) -> str:
        return writer.add(op, (value,), left, {"axes": axes})

    source, op = writer.node.inputs[0], writer.node.op
    if op == "ReduceLogSum":
        return writer.add("Log", (reduced("ReduceSum", source),), left)
    if op == "ReduceLogSumExp":
        # From the largest element, so that no exponential overflows. Were that infinite itself,
        # differences would be none.
        most = writer.constant(float(DataType.from_numpy(writer.dtype).max))
        least = writer.constant(-float(DataType.from_numpy(writer.dtype).max))
        largest = writer.add("Max", (reduced("ReduceMax", source), least), left)
        largest = writer.add("Min", (largest, most), left)
        powers = writer.add("Exp", (writer.add("Sub", (source, largest), shape),), shape)
        logarithm = writer.add("Log", (reduced("ReduceSum", powers),), left)
        return writer.add("Add", (logarithm, largest), left)
    if is_whole(writer.dtype) and op == "ReduceSumSquare":
        return reduced("ReduceSum", writer.add("Mul", (source, source), shape))
    if is_whole(writer.dtype) and op == "ReduceL1":
        return reduced("ReduceSum", _magnitudes(writer, shape))
    return reduced(op, source)
