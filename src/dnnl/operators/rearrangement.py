"""Operators that rearrange elements: DepthToSpace, SpaceToDepth, CenterCropPad and
ReverseSequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from dnnl.graph.graph import ModelError, TensorType
from dnnl.graph.scope import Scope, normal_axis
from dnnl.graph.writer import Writer
from dnnl.operators.inference import same
from dnnl.operators.operator import Operator
from dnnl.operators.writing import counted, ended, transposed, with_size
from dnnl.types.size import surely_equal

_INDEX = np.dtype(np.int64)
_TRUTH = np.dtype(np.bool_)


def _block(scope: Scope) -> int:
    size: int = scope.attr("blocksize")
    if size < 1 or len(scope.shape()) != 4:
        raise ModelError(f"blocksize {size} of {scope.shape()}, which must be [N, C, H, W]")
    if scope.attr("mode", b"DCR") not in (b"DCR", b"CRD"):
        raise ModelError(f"attribute 'mode' = {scope.attr('mode')!r} is neither DCR nor CRD")
    return size


def _infer_to_space(scope: Scope) -> list[TensorType]:
    """[N, C, H, W] gives [N, C / b^2, H * b, W * b]."""
    (batch, channels, height, width), size = scope.shape(), _block(scope)
    if channels % (size * size):
        raise ModelError(f"{channels} channels are no blocks of {size} x {size}")
    return scope.result((batch, channels // (size * size), height * size, width * size))


def _infer_to_depth(scope: Scope) -> list[TensorType]:
    """[N, C, H, W] gives [N, C * b^2, H / b, W / b]."""
    (batch, channels, height, width), size = scope.shape(), _block(scope)
    if height % size or width % size:
        raise ModelError(f"an image of {height} x {width} has no whole blocks of {size} x {size}")
    return scope.result((batch, channels * size * size, height // size, width // size))


def _expand_to_space(writer: Writer) -> bool:
    """The index within a block is the outer part of the channel (DCR), or the inner part (CRD)."""
    node, graph = writer.node, writer.graph
    size, out = node.attrs["blocksize"], graph.shape_of(node.output)
    batch, _, height, width = graph.shape_of(node.inputs[0])
    channels = out[1]
    if node.attrs.get("mode", b"DCR") == b"DCR":
        seen, order = (batch, size, size, channels, height, width), (0, 3, 4, 1, 5, 2)
    else:
        seen, order = (batch, channels, size, size, height, width), (0, 1, 4, 2, 5, 3)
    value = writer.reshape(node.inputs[0], seen)
    writer.reshape(transposed(writer, value, seen, order), out)
    return True


def _expand_to_depth(writer: Writer) -> bool:
    """The inverse of DepthToSpace in the same mode."""
    node, graph = writer.node, writer.graph
    size, out = node.attrs["blocksize"], graph.shape_of(node.output)
    batch, channels = graph.shape_of(node.inputs[0])[:2]
    seen = (batch, channels, out[2], size, out[3], size)
    dcr = node.attrs.get("mode", b"DCR") == b"DCR"
    order = (0, 3, 5, 1, 2, 4) if dcr else (0, 1, 3, 5, 2, 4)
    value = writer.reshape(node.inputs[0], seen)
    writer.reshape(transposed(writer, value, seen, order), out)
    return True


def _infer_center(scope: Scope) -> list[TensorType]:
    """The shape of the source with the requested sizes."""
    shape = list(scope.shape())
    for axis, size in _centers(scope):
        shape[axis] = size
    return scope.result(shape)


def _centers(scope: Scope) -> Iterator[tuple[int, int]]:
    """Pairs of axis and requested size; raises ModelError if their numbers differ."""
    rank, sizes = len(scope.shape()), scope.listed("shape", 1)
    axes = [normal_axis(axis, rank) for axis in scope.attr("axes", range(rank))]
    if sizes is None or len(sizes) != len(axes) or len(set(axes)) != len(axes):
        raise ModelError(f"shape {sizes} has not one size for each of axes {axes}")
    if any(size < 0 for size in sizes):
        raise ModelError(f"shape {sizes} has sizes below 0")
    yield from zip(axes, sizes, strict=True)


def _expand_center(writer: Writer) -> bool:
    """Crop the center of each axis that is too long, and pad each that is too short with zeros. The
    smaller half of an odd difference is in front."""
    node = writer.node
    value, shape = node.inputs[0], writer.graph.shape_of(node.inputs[0])
    for axis, size in _centers(Scope(node, writer.graph)):
        extent = shape[axis]
        if surely_equal(size, extent):
            continue
        shape = with_size(shape, axis, size)
        if size < extent:
            first = (extent - size) // 2
            named = {"starts": (first,), "ends": (first + size,), "axes": (axis,)}
            value = writer.add("Slice", (value,), shape, named)
        else:
            before = (size - extent) // 2
            sizes = (before, size - extent - before)
            front, behind = (
                "" if surely_equal(n, 0) else writer.filled(0, with_size(shape, axis, n))
                for n in sizes
            )
            parts = tuple(filter(None, (front, value, behind)))
            value = writer.add("Concat", parts, shape, {"axis": axis})
    return ended(writer, value)


def _infer_reversed(scope: Scope) -> list[TensorType]:
    """The type of the source. Batch and time must be its first two axes, with a length for each
    batch element."""
    shape = scope.shape()
    axes = scope.attr("batch_axis", 1), scope.attr("time_axis", 0)
    if sorted(axes) != [0, 1] or len(shape) < 2:
        raise ModelError(f"batch_axis, time_axis = {axes} must be the two first of {shape}")
    if scope.shape(1) != (shape[axes[0]],):
        rule = f"sequence_lens {scope.shape(1)} are not one for each of {shape[axes[0]]}"
        raise ModelError(rule)
    return same(scope)


def _expand_reversed(writer: Writer) -> bool:
    """A Gather of slices, with batch and time as one axis: slice t of a sequence is length - 1 - t
    while t < length. A length beyond the axis gives an index out of range, which a run refuses."""
    node, graph = writer.node, writer.graph
    shape = graph.shape_of(node.output)
    batch_first = node.attrs.get("batch_axis", 1) == 0
    times = shape[1] if batch_first else shape[0]
    row, column = ((1, times), (shape[0], 1)) if batch_first else ((times, 1), (1, shape[1]))
    seen = shape[:2]

    def numbers(count: int, dims: tuple[int, int]) -> str:
        return writer.reshape(counted(writer, count), dims, _INDEX)

    def add(op: str, *inputs: str, dtype: np.dtype = _INDEX) -> str:
        return writer.add(op, inputs, seen, dtype=dtype)

    lengths = node.inputs[1]
    if graph.type_of(lengths).dtype != _INDEX:
        lengths = writer.add("Cast", (lengths,), graph.shape_of(lengths), {"to": _INDEX}, _INDEX)
    lengths = writer.reshape(lengths, column, _INDEX)
    time, one = numbers(times, row), writer.constant(1, _INDEX)
    mirrored = add("Sub", add("Sub", lengths, time), one)
    place = add("Where", add("Less", time, lengths, dtype=_TRUTH), mirrored, time)
    size = writer.sizes([times if batch_first else shape[1]], ())
    far = writer.constant(_FAR, _INDEX)
    inside = add("Less", place, writer.sizes([times], ()), dtype=_TRUTH)
    if batch_first:
        begin = writer.add("Mul", (numbers(shape[0], column), size), column, dtype=_INDEX)
        place = add("Add", begin, place)
    else:
        place = add("Add", add("Mul", place, size), numbers(shape[1], column))
    place = add("Where", inside, place, far)
    every = shape[0] * shape[1]
    value = writer.reshape(node.inputs[0], (every, prod(shape[2:])))
    places = writer.reshape(place, (every,), _INDEX)
    value = writer.add("Gather", (value, places), (every, prod(shape[2:])), {"axis": 0})
    writer.reshape(value, shape)
    return True


_FAR = 2**56

OPERATORS: Mapping[str, Operator] = {
    "CenterCropPad": Operator(_infer_center, expand=_expand_center, inputs=(2, 2)),
    "DepthToSpace": Operator(_infer_to_space, expand=_expand_to_space, required=("blocksize",)),
    "ReverseSequence": Operator(_infer_reversed, expand=_expand_reversed, inputs=(2, 2)),
    "SpaceToDepth": Operator(_infer_to_depth, expand=_expand_to_depth, required=("blocksize",)),
}
