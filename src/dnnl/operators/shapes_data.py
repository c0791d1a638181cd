"""Types of the results of operators that choose, repeat or surround elements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError, TensorType
from dnnl.graph.scope import Scope, normal_axis
from dnnl.graph.sizes import broadcast, known_int
from dnnl.types.size import is_known, larger


@dataclass(frozen=True, slots=True)
class Range:
    """``count`` slices along an axis: the first, and how far apart they are."""

    axis: int
    first: int
    count: int
    step: int = 1


def gather(scope: Scope) -> list[TensorType]:
    """The dims of the indices in the place of the axis."""
    shape, indices, axis = scope.shape(), scope.shape(1), scope.axis(0)
    if not shape:
        raise ModelError("there is no axis to gather along")
    _check_indices(scope, axis)
    return scope.result((*shape[:axis], *indices, *shape[axis + 1 :]))


def gather_elements(scope: Scope) -> list[TensorType]:
    """The dims of the indices, which reach no further than the source except along the axis."""
    shape, indices, axis = scope.shape(), scope.shape(1), scope.axis(0)
    if not shape or len(indices) != len(shape):
        raise ModelError(f"indices {indices} have not as many dimensions as the source {shape}")
    if any(n > shape[d] for d, n in enumerate(indices) if d != axis):
        raise ModelError(f"indices {indices} exceed the source {shape} off axis {axis}")
    _check_indices(scope, axis)
    return scope.result(indices)


def gather_nd(scope: Scope) -> list[TensorType]:
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


def _check_indices(scope: Scope, axis: int) -> None:
    """Raise ModelError where constant indices are outside of an axis or it is empty."""
    known, extent = scope.graph.constants.get(scope.node.inputs[1]), scope.shape()[axis]
    outside = [] if known is None else known[(known < -extent) | (known >= extent)].tolist()
    if outside:
        raise ModelError(f"index {outside[0]} is outside of axis {axis}, which has {extent}")
    if math.prod(scope.shape(1)) and not extent:
        raise ModelError(f"there is nothing to gather along axis {axis} of {scope.shape()}")


def sliced(scope: Scope) -> list[TensorType]:
    """Slices begin, end and go on as those of Python."""
    sizes = list(scope.shape())
    for found in slices(scope):
        sizes[found.axis] = found.count
    return scope.result(sizes)


def slices(scope: Scope) -> list[Range]:
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
            taken = range(shape[axis])[start:end:step]
            found.append(Range(axis, taken.start if taken else 0, len(taken), step))
        else:
            found.append(_taken(axis, shape[axis], start, end, step))
    return found


def _taken(axis: int, extent: int, start: int, end: int, step: int) -> Range:
    """The same of numbers of which only a run knows some."""
    if step < 0:
        start, extent, end = int(start), int(extent), int(end)
        taken = range(extent)[start:end:step]
        return Range(axis, taken.start if taken else 0, len(taken), step)
    first, last = (_inside(place, extent) for place in (start, end))
    return Range(axis, first, -(-(last - first) // step) if first < last else 0, step)


def _inside(place: int, extent: int) -> int:
    place = place + extent if place < 0 else place
    if place < 0:
        return 0
    return place if place < extent else extent


def counted(scope: Scope) -> list[TensorType]:
    """Numbers at equal distances, as many as are below a limit."""
    start, limit, step = numbers_of_range(scope)
    return scope.result((larger(0, -((start - limit) // step)),))


def numbers_of_range(scope: Scope) -> tuple[int, int, int]:
    """The first number of a Range, its limit and the distance of numbers, which are integers.

    Raises Unimplemented where the model computes one of them while it runs.
    """
    found = [scope.constant(place) for place in range(3)]
    start, limit, step = (known_int(array.item()) for array in found if array is not None)
    return start, limit, int(step)


def split(scope: Scope) -> list[TensorType]:
    """The source in parts along an axis."""
    shape = scope.shape()
    parts = []
    for found in parts_of(scope):
        parts.append((*shape[: found.axis], found.count, *shape[found.axis + 1 :]))
    return [TensorType(scope.type().dtype, part) for part in parts]


def parts_of(scope: Scope) -> list[Range]:
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


def expanded(scope: Scope) -> list[TensorType]:
    """The source broadcast with a constant shape."""
    target = scope.listed("shape", 1)
    if target is None or any(size < 0 for size in target):
        raise ModelError(f"shape {target} is no list of sizes")
    return scope.result(broadcast([scope.shape(), target]))


def tiled(scope: Scope) -> list[TensorType]:
    """Each axis so many times behind itself."""
    shape, repeats = scope.shape(), scope.listed("repeats", 1)
    if repeats is None or len(repeats) != len(shape) or min(repeats, default=0) < 0:
        raise ModelError(f"repeats {repeats} has not one number for each axis of {shape}")
    return scope.result([n * times for n, times in zip(shape, repeats, strict=True)])


def padded(scope: Scope) -> list[TensorType]:
    """Positive pads add elements, negative ones remove them."""
    shape = list(scope.shape())
    for axis, before, behind in padding(scope):
        shape[axis] += before + behind
    if any(size < 0 for size in shape):
        raise ModelError(f"the padding takes more away than {scope.shape()} has")
    return scope.result(shape)


def padding(scope: Scope) -> Iterator[tuple[int, int, int]]:
    """Axis, elements before it and elements behind it, where there are any."""
    rank = len(scope.shape())
    pads = scope.listed("paddings" if "paddings" in scope.node.attrs else "pads", 1)
    axes = scope.listed("axes", 3)
    axes = tuple(range(rank)) if axes is None else tuple(normal_axis(a, rank) for a in axes)
    if pads is None or len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
        raise ModelError(f"pads {pads} has not two numbers for each of axes {axes}")
    for place, axis in enumerate(axes):
        before, behind = pads[place], pads[place + len(axes)]
        if before or behind:
            yield axis, before, behind


def triangle(scope: Scope) -> list[TensorType]:
    """Matrices, of which one triangle stays."""
    if len(scope.shape()) < 2:
        raise ModelError(f"{scope.shape()} is no matrix")
    return scope.result(scope.shape())


def truth(scope: Scope) -> list[TensorType]:
    """The truth about each element of a float."""
    if scope.type().dtype.kind in "biu":
        raise Unimplemented(f"{scope.node}: {scope.type().dtype} is always a number")
    return [TensorType(np.dtype(np.bool_), scope.shape())]


def around(mode: str, extent: int, before: int, behind: int) -> npt.NDArray[np.int64]:
    """Which slice of an axis each place of the padded one has, where padding repeats elements."""
    places = np.arange(-before, extent + behind, dtype=np.int64)
    if mode == "edge":
        places = places.clip(0, extent - 1)
    elif mode == "wrap":
        places %= max(1, extent)
    else:
        period = max(1, 2 * (extent - 1))
        folded = np.abs(places) % period
        places = np.minimum(folded, period - folded)
    return places
