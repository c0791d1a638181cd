"""Operators that choose elements or slices by indices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import prod

import numpy as np

from dnnl.graph.graph import ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.lowering.facts import Source, volume
from dnnl.lowering.graphs import Lowering
from dnnl.operators.operator import Operator, moved
from dnnl.operators.writing import counted
from dnnl.primitives.gather import GatherDesc
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known

_INDEX = np.dtype(np.int64)
_TRUTH = np.dtype(np.bool_)
_OUTSIDE = 2**56
"""Larger than any tensor, and so small that a sum of one for each axis is an int64."""


def _infer_gather(scope: Scope) -> list[TensorType]:
    """The dims of the indices in the place of the axis."""
    shape, indices, axis = scope.shape(), scope.shape(1), scope.axis(0)
    if not shape:
        raise ModelError("there is no axis to gather along")
    check_indices(scope, axis)
    return scope.result((*shape[:axis], *indices, *shape[axis + 1 :]))


def _infer_elements(scope: Scope) -> list[TensorType]:
    """The dims of the indices, which reach no further than the source except along the axis."""
    shape, indices, axis = scope.shape(), scope.shape(1), scope.axis(0)
    if not shape or len(indices) != len(shape):
        raise ModelError(f"indices {indices} have not as many dimensions as the source {shape}")
    if any(n > shape[d] for d, n in enumerate(indices) if d != axis):
        raise ModelError(f"indices {indices} exceed the source {shape} off axis {axis}")
    check_indices(scope, axis)
    return scope.result(indices)


def _infer_nd(scope: Scope) -> list[TensorType]:
    """A slice for each row of indices, which name its place on the axes behind ``batch_dims``."""
    shape, indices, batch = scope.shape(), scope.shape(1), scope.attr("batch_dims", 0)
    fits = 0 <= batch < min(len(shape), len(indices)) and shape[:batch] == indices[:batch]
    if not fits or not 1 <= indices[-1] <= len(shape) - batch:
        raise ModelError(f"indices {indices}, source {shape} and batch_dims = {batch} disagree")
    axes = shape[batch : batch + indices[-1]]
    if math.prod(indices) and not math.prod(axes):
        raise ModelError(f"there is nothing to gather along axes of {axes}")
    known = scope.graph.constants.get(scope.node.inputs[1])
    if known is not None:
        outside = known[((known < np.negative(axes)) | (known >= axes)).any(-1)].tolist()
        if outside:
            raise ModelError(f"index {outside[0]} is outside of axes of {axes}")
    return scope.result((*indices[:-1], *shape[batch + indices[-1] :]))


def check_indices(scope: Scope, axis: int) -> None:
    """Raise ModelError where constant indices are outside of an axis or it is empty."""
    known, extent = scope.graph.constants.get(scope.node.inputs[1]), scope.shape()[axis]
    outside = [] if known is None else known[(known < -extent) | (known >= extent)].tolist()
    if outside:
        raise ModelError(f"index {outside[0]} is outside of axis {axis}, which has {extent}")
    if math.prod(scope.shape(1)) and not extent:
        raise ModelError(f"there is nothing to gather along axis {axis} of {scope.shape()}")


def _expand_nd(writer: Writer) -> bool:
    """Slices of the source seen with one axis instead of those that are indexed, by the place on it
    that each row of indices means."""
    node, graph = writer.node, writer.graph
    shape, rows = graph.shape_of(node.inputs[0]), graph.shape_of(node.inputs[1])
    batch = Scope(node, graph).attr("batch_dims", 0)
    axes, rest = shape[batch : batch + rows[-1]], shape[batch + rows[-1] :]
    places = flat_places(writer, axes)
    if batch:
        before = prod(shape[:batch])
        first = writer.add(
            "Mul", (counted(writer, before), writer.sizes([prod(axes)])), (before,), dtype=_INDEX
        )
        column = (*shape[:batch], *[1] * (len(rows) - 1 - batch))
        first = writer.reshape(first, column, _INDEX)
        places = writer.add("Add", (places, first), rows[:-1], dtype=_INDEX)
    seen = writer.reshape(node.inputs[0], (prod(shape[:batch]) * prod(axes), *rest))
    writer.add("Gather", (seen, places), (*rows[:-1], *rest), {"axis": 0})
    return True


def flat_places(writer: Writer, axes: Shape) -> str:
    """Flattened indices into ``axes`` of the rows of indices, the second source. A row with an
    index out of range gives one far beyond the end, which a run refuses."""
    strides = [prod(axes[dim + 1 :]) for dim in range(len(axes))]
    known = writer.graph.constants.get(writer.node.inputs[1])
    if known is not None and all(map(is_known, axes)):
        from_front = np.where(known < 0, known + axes, known)
        return writer.constant((from_front * strides).sum(-1), _INDEX)
    indices, rows = writer.node.inputs[1], writer.graph.shape_of(writer.node.inputs[1])

    def add(op: str, *inputs: str, dtype: np.dtype = _INDEX) -> str:
        return writer.add(op, inputs, rows, dtype=dtype)

    if writer.graph.type_of(indices).dtype != _INDEX:
        indices = writer.add("Cast", (indices,), rows, {"to": _INDEX}, _INDEX)
    zero, extents = writer.constant(0, _INDEX), writer.sizes(axes)
    negative = add("Less", indices, zero, dtype=_TRUTH)
    wrapped = add("Where", negative, add("Add", indices, extents), indices)
    low = add("GreaterOrEqual", wrapped, zero, dtype=_TRUTH)
    inside = add("And", low, add("Less", wrapped, extents, dtype=_TRUTH), dtype=_TRUTH)
    parts = add("Mul", wrapped, writer.sizes(strides))
    parts = add("Where", inside, parts, writer.constant(_OUTSIDE, _INDEX))
    attrs = {"axes": (-1,), "keepdims": 0}
    return writer.add("ReduceSum", (parts,), rows[:-1], attrs, _INDEX)


def _lower_gather(lowering: Lowering, node: Node) -> None:
    """Constant indices that go up evenly are a view; others are gathered."""
    graph, value = lowering.graph, node.inputs[0]
    shape, axis = graph.shape_of(value), Scope(node, graph).axis(0)
    known = graph.constants.get(node.inputs[1])
    if known is not None and known.size:
        places = np.where(known < 0, known + shape[axis], known).ravel()
        steps = set(np.diff(places).tolist()) or {1}
        if len(steps) == 1 and min(steps) > 0:
            lowering.part(node.output, value, axis, int(places[0]), places.size, *steps)
            return
    indices = lowering.source(node.inputs[1], (volume(graph.shape_of(node.inputs[1])),))
    dims = (*shape[:axis], *indices.desc.dims, *shape[axis + 1 :])
    _gathered(lowering, node, indices, axis, dims)


def _lower_elements(lowering: Lowering, node: Node) -> None:
    """Single elements, whose indices have the shape of the result."""
    axis = Scope(node, lowering.graph).axis(0)
    indices = lowering.source(node.inputs[1])
    _gathered(lowering, node, indices, axis, lowering.graph.shape_of(node.output))


def _gathered(lowering: Lowering, node: Node, indices: Source, axis: int, dims: Shape) -> None:
    source, where = lowering.source(node.inputs[0]), indices.desc
    if where.inner_blocks:  # a run looks at them as an array
        where = MemoryDesc(where.dims, where.data_type)
    desc = GatherDesc(source.desc, where, MemoryDesc(dims, source.desc.data_type), axis)
    args: dict[int, Source] = {Arg.SRC: source, Arg.SRC_1: indices}
    lowering.define(node.output, lowering.emit(node, desc, args))
    if node.inputs[1] not in lowering.graph.constants:
        lowering.check_indices(source.desc.dims[axis])


OPERATORS: Mapping[str, Operator] = {
    "Gather": moved(_infer_gather, _lower_gather, (2, 2)),
    "GatherElements": moved(_infer_elements, _lower_elements, (2, 2)),
    "GatherND": Operator(_infer_nd, expand=_expand_nd, inputs=(2, 2)),
}
