"""ArgMax and ArgMin, and the operators of one-hot vectors: Hardmax and OneHot."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from dnnl.graph.graph import ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope, normal_axis
from dnnl.graph.sizes import known_int
from dnnl.graph.writer import Writer
from dnnl.lowering.facts import volume
from dnnl.lowering.graphs import Lowering
from dnnl.operators.inference import same
from dnnl.operators.operator import Operator, Role
from dnnl.operators.writing import counted, with_size
from dnnl.primitives.arg_reduction import ArgReductionDesc
from dnnl.types.arg import Arg

_INDEX = np.dtype(np.int64)
_TRUTH = np.dtype(np.bool_)


def _infer_arg_reduction(scope: Scope) -> list[TensorType]:
    """s64 indices; the axis has size 1, or is dropped without keepdims."""
    shape, axis = scope.shape(), scope.axis(0)
    if not shape or not shape[axis]:
        raise ModelError(f"there is nothing to compare along axis {axis} of {shape}")
    dims = with_size(shape, axis, 1)
    if not scope.attr("keepdims", 1):
        dims = (*dims[:axis], *dims[axis + 1 :])
    return [TensorType(_INDEX, dims)]


def _lower_arg_reduction(lowering: Lowering, node: Node) -> None:
    """An arg reduction; without keepdims its result is viewed without the axis."""
    axis = Scope(node, lowering.graph).axis(0)
    source = lowering.source(node.inputs[0])
    dst = lowering.result(node, with_size(source.desc.dims, axis, 1))
    function = "max" if node.op == "ArgMax" else "min"
    tie = "last" if node.attrs.get("select_last_index", 0) else "first"
    desc = ArgReductionDesc(function, source.desc, dst, axis, tie)
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


def _expand_hardmax(writer: Writer) -> bool:
    """1 at the first of the largest elements, 0 elsewhere. Before operator set 13 all axes from
    ``axis`` on count as one."""
    node, graph = writer.node, writer.graph
    shape = seen = graph.shape_of(node.output)
    axis = normal_axis(node.attrs.get("axis", 1 if graph.opset < 13 else -1), len(shape))
    value = node.inputs[0]
    if graph.opset < 13 and volume(shape[axis + 1 :]) != 1:
        seen, axis = (prod(shape[:axis]), prod(shape[axis:])), 1
        value = writer.reshape(value, seen)
    if 0 in shape:
        writer.reshape(value, shape)
        return True
    one = with_size(seen, axis, 1)
    best = writer.add("ArgMax", (value,), one, {"axis": axis}, _INDEX)
    marked = _marked(writer, best, seen, axis)
    result = writer.add("Cast", (marked,), seen, {"to": writer.dtype})
    if seen != shape:
        writer.reshape(result, shape)
    return True


def _marked(writer: Writer, places: str, shape: Shape, axis: int) -> str:
    """A boolean mask of ``shape``, true where the index along ``axis`` is in ``places``, which has
    size 1 along it."""
    column = (shape[axis], *(1 for _ in shape[axis + 1 :]))
    numbers = writer.reshape(counted(writer, shape[axis]), column, _INDEX)
    return writer.add("Equal", (places, numbers), shape, dtype=_TRUTH)


def _infer_one_hot(scope: Scope) -> list[TensorType]:
    """The shape of the indices with an axis of ``depth`` classes, in the type of the two values."""
    shape, depth = scope.shape(), scope.constant(1)
    if depth is None or depth.size != 1:
        raise ModelError("the depth must be one number")
    count = known_int(depth.item())
    if count < 1:
        raise ModelError(f"depth {count} must be at least 1")
    if scope.shape(2) != (2,):
        raise ModelError(f"values of shape {scope.shape(2)} are not two numbers")
    axis = normal_axis(scope.attr("axis", -1), len(shape) + 1)
    return [TensorType(scope.type(2).dtype, (*shape[:axis], count, *shape[axis:]))]


def _expand_one_hot(writer: Writer) -> bool:
    """The on-value where the class equals the index, else the off-value. A negative index counts
    from the end; one out of range gives off-values alone."""
    node, graph = writer.node, writer.graph
    shape, kind = graph.shape_of(node.output), graph.type_of(node.output).dtype
    indices = graph.shape_of(node.inputs[0])
    axis = normal_axis(node.attrs.get("axis", -1), len(shape))
    value, one = node.inputs[0], (*indices[:axis], 1, *indices[axis:])
    if writer.dtype != _INDEX:
        value = writer.add("Cast", (value,), indices, {"to": _INDEX}, _INDEX)
    value = writer.reshape(value, one, _INDEX)
    zero = writer.constant(0, _INDEX)
    negative = writer.add("Less", (value, zero), one, dtype=_TRUTH)
    from_end = writer.add("Add", (value, writer.sizes([shape[axis]], ())), one, dtype=_INDEX)
    value = writer.add("Where", (negative, from_end, value), one, dtype=_INDEX)
    marked = _marked(writer, value, shape, axis)
    off, on = (_one_of(writer, place, kind) for place in (0, 1))
    writer.add("Where", (marked, on, off), shape, dtype=kind)
    return True


def _one_of(writer: Writer, place: int, kind: np.dtype) -> str:
    """The off-value (``place`` 0) or the on-value (1)."""
    known = writer.graph.constants.get(writer.node.inputs[2])
    if known is not None:
        return writer.constant(known[place], kind)
    ends = {"starts": (place,), "ends": (place + 1,), "axes": (0,)}
    return writer.add("Slice", (writer.node.inputs[2],), (1,), ends, kind)


OPERATORS: Mapping[str, Operator] = {
    "ArgMax": Operator(_infer_arg_reduction, _lower_arg_reduction, role=Role.EXACT),
    "ArgMin": Operator(_infer_arg_reduction, _lower_arg_reduction, role=Role.EXACT),
    "Hardmax": Operator(same, expand=_expand_hardmax),
    "OneHot": Operator(_infer_one_hot, expand=_expand_one_hot, inputs=(3, 3)),
}
