"""Operators that write elements or slices to indexed positions: ScatterElements, ScatterND and
TensorScatter."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from dnnl.graph.graph import ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope, normal_axis
from dnnl.graph.writer import Writer
from dnnl.lowering.facts import Source
from dnnl.lowering.graphs import Lowering
from dnnl.operators.gather import check_indices, flat_places
from dnnl.operators.operator import Operator, Role
from dnnl.operators.writing import counted
from dnnl.primitives.scatter import ScatterDesc
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

_INDEX = np.dtype(np.int64)
SLICES = "dnnl.ScatterSlices"
"""A scatter of slices along axis 0; an operator of expansions, which no file can hold."""
_FUNCTIONS = ("none", "add", "mul", "max", "min")


def _infer_elements(scope: Scope) -> list[TensorType]:
    """The type of the source. Updates have the shape of the indices, which is at most that of the
    source in all axes but ``axis``."""
    shape, indices, updates = (scope.shape(place) for place in range(3))
    axis = scope.axis(0)
    if not shape or len(indices) != len(shape) or updates != indices:
        raise ModelError(f"indices {indices}, updates {updates} and source {shape} disagree")
    if any(n > shape[d] for d, n in enumerate(indices) if d != axis):
        raise ModelError(f"indices {indices} exceed the source {shape} off axis {axis}")
    check_indices(scope, axis)
    return _of_source(scope)


def _of_source(scope: Scope) -> list[TensorType]:
    """The type of the source, which the updates must share."""
    if scope.type(2).dtype != scope.type().dtype:
        raise ModelError(f"updates of {scope.type(2).dtype} for a source of {scope.type().dtype}")
    _function(scope.node)
    return scope.result(scope.shape())


def _function(node: Node) -> str:
    name: str = node.attrs.get("reduction", b"none").decode()
    if name not in _FUNCTIONS:
        raise ModelError(f"attribute 'reduction' = {name!r} is none of {', '.join(_FUNCTIONS)}")
    return name


def _infer_nd(scope: Scope) -> list[TensorType]:
    """The type of the source. Rows of indices index the first axes; updates are slices of the
    rest."""
    shape, indices, updates = (scope.shape(place) for place in range(3))
    if not indices or not 1 <= indices[-1] <= len(shape):
        raise ModelError(f"indices {indices} do not name places of {shape}")
    depth = indices[-1]
    if updates != (*indices[:-1], *shape[depth:]):
        raise ModelError(f"updates {updates} are not {(*indices[:-1], *shape[depth:])}")
    if prod(indices) and not prod(shape[:depth]):
        raise ModelError(f"there is no place on axes of {shape[:depth]}")
    known = scope.graph.constants.get(scope.node.inputs[1])
    if known is not None:
        axes = shape[:depth]
        outside = known[((known < np.negative(axes)) | (known >= axes)).any(-1)].tolist()
        if outside:
            raise ModelError(f"index {outside[0]} is outside of axes of {axes}")
    return _of_source(scope)


def _expand_nd(writer: Writer) -> bool:
    """A scatter of slices: the indexed axes are merged to one, and the indices flattened."""
    node, graph = writer.node, writer.graph
    shape, rows = graph.shape_of(node.inputs[0]), graph.shape_of(node.inputs[1])
    axes, rest = shape[: rows[-1]], shape[rows[-1] :]
    count = prod(rows[:-1])
    places = writer.reshape(flat_places(writer, axes), (count,), _INDEX)
    seen = (prod(axes), prod(rest))
    source = writer.reshape(node.inputs[0], seen)
    updates = writer.reshape(node.inputs[2], (count, prod(rest)))
    attrs = {"reduction": _function(node).encode()}
    result = writer.add(SLICES, (source, places, updates), seen, attrs)
    writer.reshape(result, shape)
    return True


def _infer_tensor(scope: Scope) -> list[TensorType]:
    """The type of a cache [batch, ...]. Updates are a range of it along ``axis``, with a start
    index for each batch element."""
    shape, updates = scope.shape(), scope.shape(1)
    axis = scope.axis(-2)
    if not axis or len(updates) != len(shape):
        raise ModelError(f"updates {updates} are no part of {shape} along axis {axis}")
    if any(n != shape[d] for d, n in enumerate(updates) if d != axis):
        raise ModelError(f"updates {updates} and source {shape} differ off axis {axis}")
    if updates[axis] > shape[axis]:
        raise ModelError(f"updates {updates} exceed the source {shape} along axis {axis}")
    if scope.node.input(2) and scope.shape(2) != shape[:1]:
        raise ModelError(f"write indices {scope.shape(2)} are not one for each of {shape[0]}")
    if scope.attr("mode", b"linear") not in (b"linear", b"circular"):
        raise ModelError(f"attribute 'mode' = {scope.attr('mode')} is not linear or circular")
    return scope.result(shape)


def _expand_tensor(writer: Writer) -> bool:
    """A scatter of slices: all axes up to ``axis`` are merged to one, and start indices
    flattened."""
    node, graph = writer.node, writer.graph
    shape, updates = graph.shape_of(node.inputs[0]), graph.shape_of(node.inputs[1])
    axis = normal_axis(node.attrs.get("axis", -2), len(shape))
    count, extent, batch = updates[axis], shape[axis], shape[0]
    between, rest = prod(shape[1:axis]), prod(shape[axis + 1 :])

    def add(op: str, *inputs: str, shape: Shape) -> str:
        return writer.add(op, inputs, shape, dtype=_INDEX)

    places = writer.reshape(counted(writer, count), (1, 1, count), _INDEX)
    where = (batch, 1, count)
    if node.input(2):
        first = writer.reshape(node.inputs[2], (batch, 1, 1), graph.type_of(node.inputs[2]).dtype)
        if graph.type_of(node.inputs[2]).dtype != _INDEX:
            first = writer.add("Cast", (first,), (batch, 1, 1), {"to": _INDEX}, _INDEX)
        places = add("Add", first, places, shape=where)
        size = writer.sizes([extent], ())
        if node.attrs.get("mode", b"linear") == b"circular":
            places = add("Mod", places, size, shape=where)
        else:  # an index out of range must stay so on the merged axis
            far = writer.constant(_FAR, _INDEX)
            truth = np.dtype(np.bool_)
            inside = writer.add("Less", (places, size), where, dtype=truth)
            above = writer.add(
                "GreaterOrEqual", (places, writer.constant(0, _INDEX)), where, dtype=truth
            )
            inside = writer.add("And", (inside, above), where, dtype=truth)
            places = add("Where", inside, places, far, shape=where)
    blocks = writer.reshape(counted(writer, batch * between), (batch, between, 1), _INDEX)
    begin = add("Mul", blocks, writer.sizes([extent], ()), shape=(batch, between, 1))
    places = add("Add", begin, places, shape=(batch, between, count))
    every = batch * between * count
    flat = writer.reshape(places, (every,), _INDEX)
    seen = (batch * between * extent, rest)
    source = writer.reshape(node.inputs[0], seen)
    slices = writer.reshape(node.inputs[1], (every, rest))
    result = writer.add(SLICES, (source, flat, slices), seen)
    writer.reshape(result, shape)
    return True


_FAR = 2**56


def _lower_elements(lowering: Lowering, node: Node) -> None:
    """A scatter of single elements: indices have the shape of the updates."""
    _lower(lowering, node, Scope(node, lowering.graph).axis(0))


def _lower_slices(lowering: Lowering, node: Node) -> None:
    """A scatter of the rows of a matrix."""
    _lower(lowering, node, 0)


def _lower(lowering: Lowering, node: Node, axis: int) -> None:
    source, indices, updates = map(lowering.source, node.inputs)
    where = indices.desc
    if where.inner_blocks:  # the check of indices reads them as an array
        where = MemoryDesc(where.dims, where.data_type)
    dst = MemoryDesc(source.desc.dims, source.desc.data_type)
    desc = ScatterDesc(_function(node), source.desc, where, updates.desc, dst, axis)
    args: dict[int, Source] = {Arg.SRC: source, Arg.SRC_1: indices, Arg.SRC_2: updates}
    lowering.define(node.output, lowering.emit(node, desc, args))
    if node.inputs[1] not in lowering.graph.constants:
        lowering.check_indices(source.desc.dims[axis])


_ELEMENTS = Operator(_infer_elements, _lower_elements, inputs=(3, 3), role=Role.EXACT)
OPERATORS: Mapping[str, Operator] = {
    "Scatter": _ELEMENTS,
    "ScatterElements": _ELEMENTS,
    "ScatterND": Operator(_infer_nd, expand=_expand_nd, inputs=(3, 3)),
    "TensorScatter": Operator(_infer_tensor, expand=_expand_tensor, inputs=(2, 3)),
}
MADE: Mapping[str, Operator] = {
    SLICES: Operator(_infer_nd, _lower_slices, inputs=(3, 3), role=Role.EXACT),
}
