"""Operators that take tensors apart or join them along an axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from dnnl.graph.graph import ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope, normal_axis
from dnnl.graph.sizes import broadcast, first_of
from dnnl.graph.writer import Writer
from dnnl.lowering.graphs import Lowering
from dnnl.operators.operator import Operator, moved
from dnnl.operators.writing import counted, ended, gathered, with_size
from dnnl.primitives.concat import ConcatDesc
from dnnl.runtime.storage import check_capacity
from dnnl.types.arg import Arg
from dnnl.types.size import is_known, surely_at_most, surely_equal

_INDEX = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class Range:
    """``count`` slices along an axis: the first, and how far apart they are."""

    axis: int
    first: int
    count: int
    step: int = 1


def infer_concat(scope: Scope) -> list[TensorType]:
    """Sources that agree outside ``axis``, one after the other along it."""
    shapes = [scope.shape(i) for i in range(len(scope.node.inputs))]
    axis = scope.axis(0)
    others = [(*shape[:axis], 1, *shape[axis + 1 :]) for shape in shapes]
    if any(len(own) != len(others[0]) or own != others[0] for own in others[1:]):
        raise ModelError(f"shapes {', '.join(map(str, shapes))} differ outside axis {axis}")
    joined = list(broadcast(others))
    joined[axis] = sum(shape[axis] for shape in shapes)
    return scope.result(joined)


def _infer_slice(scope: Scope) -> list[TensorType]:
    """Slices begin, end and go on as those of Python; see `dnnl.graph.sizes.first_of`."""
    sizes = list(scope.shape())
    for found in slices_of(scope):
        sizes[found.axis] = found.count
    return scope.result(sizes)


def slices_of(scope: Scope) -> list[Range]:
    """What Slice takes of each axis that it names."""
    shape = scope.shape()
    starts, ends = scope.listed("starts", 1), scope.listed("ends", 2)
    if starts is None or ends is None:
        raise ModelError("starts or ends are missing")
    axes, steps = scope.listed("axes", 3), scope.listed("steps", 4)
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if len({len(starts), len(ends), len(axes), len(steps)}) != 1 or 0 in steps:
        raise ModelError(f"starts {starts}, ends {ends}, axes {axes} and steps {steps} disagree")
    places = [normal_axis(axis, len(shape)) for axis in axes]
    if len(set(places)) != len(places):
        raise ModelError(f"axes {axes} name one twice")
    found = []
    for axis, start, end, step in zip(places, starts, ends, steps, strict=True):
        if is_known(shape[axis]) and is_known(start) and is_known(end):
            taken = range(shape[axis])[first_of(start, shape[axis], step) : end : step]
            found.append(Range(axis, taken.start if taken else 0, len(taken), step))
        else:
            found.append(_taken(axis, shape[axis], start, end, step))
    return found


def _taken(axis: int, extent: int, start: int, end: int, step: int) -> Range:
    """The same of numbers of which only a run knows some."""
    if step < 0:
        start, end = (place + extent if place < 0 else place for place in (start, end))
        # What begins before the first element begins there; what ends there has it, too.
        first, last = max(start, 0), max(end, -1)
        first, last = (extent - 1 if place >= extent else place for place in (first, last))
        return Range(axis, first, -(-(first - last) // -step) if last < first else 0, step)
    first, last = (_inside(place, extent) for place in (start, end))
    return Range(axis, first, -(-(last - first) // step) if first < last else 0, step)


def _inside(place: int, extent: int) -> int:
    place = place + extent if place < 0 else place
    if place < 0:
        return 0
    return place if surely_at_most(place, extent) or place < extent else extent


def _infer_split(scope: Scope) -> list[TensorType]:
    """The source in parts along an axis."""
    shape = scope.shape()
    parts = []
    for found in _parts_of(scope):
        parts.append((*shape[: found.axis], found.count, *shape[found.axis + 1 :]))
    return [TensorType(scope.type().dtype, part) for part in parts]


def _parts_of(scope: Scope) -> list[Range]:
    """The parts of Split: of given sizes, or as equal as they can be, the last one smaller."""
    shape, axis = scope.shape(), scope.axis(0)
    count = len(scope.node.outputs)
    sizes = scope.listed("split", 1)
    if sizes is None:
        number = scope.attr("num_outputs", count)
        if number != count:
            raise ModelError(f"num_outputs = {number} of {count} results, {shape[axis]} slices")
        each = -(-shape[axis] // count)
        sizes = tuple(max(0, min(each, shape[axis] - each * place)) for place in range(count))
    if len(sizes) != count or any(size < 0 for size in sizes) or sum(sizes) != shape[axis]:
        raise ModelError(f"split {sizes} does not make {count} parts of {shape[axis]} slices")
    starts = np.cumsum((0, *sizes[:-1]))
    return [Range(axis, int(first), size) for first, size in zip(starts, sizes, strict=True)]


def _expand_slice(writer: Writer) -> bool:
    """One axis after the other, those that go backwards as a Gather."""
    node, graph = writer.node, writer.graph
    found = slices_of(Scope(node, graph))
    if len(found) == 1 and found[0].step > 0:
        return False
    value, shape = node.inputs[0], graph.shape_of(node.inputs[0])
    for part in found:
        whole = surely_equal(part.count, shape[part.axis]) and part.step == 1
        shape = with_size(shape, part.axis, part.count)
        if part.step < 0:
            check_capacity(prod(shape) * writer.dtype.itemsize + part.count * _INDEX.itemsize)
            value = _backwards(writer, value, shape, part)
        elif not whole:
            end = part.first + part.count * part.step
            named = {"starts": (part.first,), "ends": (end,), "axes": (part.axis,)}
            value = writer.add("Slice", (value,), shape, {**named, "steps": (part.step,)})
    return ended(writer, value)


def _backwards(writer: Writer, value: str, shape: Shape, part: Range) -> str:
    """The result, of this shape, of a Slice whose step is negative."""
    if is_known(part.first) and is_known(part.count):
        places = part.first + part.step * np.arange(part.count)
        return gathered(writer, value, shape, part.axis, places)
    several = (part.count,)
    steps = writer.add(
        "Mul", (counted(writer, part.count), writer.sizes([-part.step])), several, dtype=_INDEX
    )
    first = writer.sizes([part.first])
    place = writer.add("Sub", (first, steps), several, dtype=_INDEX)
    return writer.add("Gather", (value, place), shape, {"axis": part.axis})


def _lower_concat(lowering: Lowering, node: Node) -> None:
    """Sources in their own layouts, one after the other along an axis."""
    scope = Scope(node, lowering.graph)
    sources = [lowering.source(value) for value in node.inputs]
    dst = lowering.result(node, lowering.graph.shape_of(node.output))
    desc = ConcatDesc(scope.axis(0), tuple(source.desc for source in sources), dst)
    args = {Arg.multiple_src(i): source for i, source in enumerate(sources)}
    lowering.define(node.output, lowering.emit(node, desc, args))


def _lower_split(lowering: Lowering, node: Node) -> None:
    """Each part is a view of the source."""
    found = _parts_of(Scope(node, lowering.graph))
    for value, part in zip(node.outputs, found, strict=True):
        if value:
            lowering.part(value, node.inputs[0], part.axis, part.first, part.count)


def _lower_slice(lowering: Lowering, node: Node) -> None:
    """A view of one axis; more axes are nodes of their own, and so is the inverse."""
    (found,) = slices_of(Scope(node, lowering.graph))
    lowering.part(node.output, node.inputs[0], found.axis, found.first, found.count, found.step)


OPERATORS: Mapping[str, Operator] = {
    "Concat": moved(infer_concat, _lower_concat, (1, None), "axis"),
    "Slice": moved(_infer_slice, _lower_slice, (1, 5), expand=_expand_slice),
    "Split": moved(_infer_split, _lower_split, (1, 2)),
}
