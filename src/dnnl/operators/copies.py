"""Operators that repeat or surround elements, blank some of them, or count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np
import numpy.typing as npt

from dnnl.graph.graph import ModelError, Node, TensorType
from dnnl.graph.scope import Scope, normal_axis
from dnnl.graph.sizes import broadcast, known_int
from dnnl.graph.writer import Writer
from dnnl.lowering.graphs import Lowering
from dnnl.operators.operator import Operator, Role, moved
from dnnl.operators.writing import ended, gathered, with_size
from dnnl.primitives.exact import ExactDesc
from dnnl.runtime.storage import check_capacity
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known, larger, surely_equal

_INDEX = np.dtype(np.int64)
_TRUTH = np.dtype(np.bool_)


def _infer_expand(scope: Scope) -> list[TensorType]:
    """The source broadcast with a constant shape."""
    target = scope.listed("shape", 1)
    if target is None or any(size < 0 for size in target):
        raise ModelError(f"shape {target} is no list of sizes")
    return scope.result(broadcast([scope.shape(), target]))


def _infer_tile(scope: Scope) -> list[TensorType]:
    """Each axis so many times behind itself."""
    shape, repeats = scope.shape(), scope.listed("repeats", 1)
    if repeats is None or len(repeats) != len(shape) or min(repeats, default=0) < 0:
        raise ModelError(f"repeats {repeats} has not one number for each axis of {shape}")
    return scope.result([n * times for n, times in zip(shape, repeats, strict=True)])


def _infer_pad(scope: Scope) -> list[TensorType]:
    """Positive pads add elements, negative ones remove them."""
    shape = list(scope.shape())
    for axis, before, behind in _padding(scope):
        shape[axis] += before + behind
    if any(size < 0 for size in shape):
        raise ModelError(f"the padding takes more away than {scope.shape()} has")
    return scope.result(shape)


def _padding(scope: Scope) -> Iterator[tuple[int, int, int]]:
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


def _infer_triangle(scope: Scope) -> list[TensorType]:
    """Matrices, of which one triangle stays."""
    if len(scope.shape()) < 2:
        raise ModelError(f"{scope.shape()} is no matrix")
    return scope.result(scope.shape())


def _infer_range(scope: Scope) -> list[TensorType]:
    """Numbers at equal distances, as many as are below a limit."""
    start, limit, step = _numbers_of_range(scope)
    return scope.result((larger(0, -((start - limit) // step)),))


def _numbers_of_range(scope: Scope) -> tuple[int, int, int]:
    """The first number of a Range, its limit and the distance of numbers, which are integers.

    Raises Unimplemented where the model computes one of them while it runs.
    """
    found = [scope.constant(place) for place in range(3)]
    start, limit, step = (known_int(array.item()) for array in found if array is not None)
    return start, limit, int(step)


def _expand_tile(writer: Writer) -> bool:
    """A broadcast along an axis of its own in front of each that is repeated."""
    node, graph = writer.node, writer.graph
    shape, out = graph.shape_of(node.inputs[0]), graph.shape_of(node.output)
    repeats = Scope(node, graph).listed("repeats", 1) or ()
    seen, wide = list[int](), list[int]()
    for size, times in zip(shape, repeats, strict=True):
        if not surely_equal(times, 1):
            seen.append(1)
            wide.append(times)
        seen.append(size)
        wide.append(size)
    if len(seen) == len(shape):
        return ended(writer, node.inputs[0])
    value = writer.broadcast(writer.reshape(node.inputs[0], tuple(seen)), tuple(wide))
    writer.reshape(value, out)
    return True


def _expand_pad(writer: Writer) -> bool:
    """Constants before and behind each axis, or a Gather where elements are repeated."""
    node, graph = writer.node, writer.graph
    scope = Scope(node, graph)
    mode = scope.attr("mode", b"constant").decode()
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise ModelError(f"attribute 'mode' = {mode!r} is none of constant, edge, reflect, wrap")
    filler = scope.constant(2) if node.input(2) else np.asarray(scope.attr("value", 0.0))
    value, shape = node.inputs[0], graph.shape_of(node.inputs[0])
    out = graph.shape_of(node.output)
    if all(map(is_known, out)):
        check_capacity(2 * prod(out) * writer.dtype.itemsize + sum(out) * _INDEX.itemsize)
    for axis, front, back in _padding(scope):
        first, rest = max(0, -front), shape[axis] + min(front, 0) + min(back, 0)
        before, behind = (max(0, size + min(rest, 0)) for size in (front, back))
        rest = max(0, rest)
        if rest < shape[axis]:
            shape = with_size(shape, axis, rest)
            named = {"starts": (first,), "ends": (first + rest,), "axes": (axis,)}
            value = writer.add("Slice", (value,), shape, named)
        whole = with_size(shape, axis, before + rest + behind)
        if mode != "constant":
            if not rest and 0 not in whole:
                raise ModelError(f"there is nothing to repeat along axis {axis}")
            value = gathered(writer, value, whole, axis, _around(mode, rest, before, behind))
        elif before or behind:
            parts = [
                writer.filled(0 if filler is None else filler, with_size(shape, axis, size))
                if size
                else ""
                for size in (before, behind)
            ]
            sources = tuple(filter(None, (parts[0], value, parts[1])))
            value = writer.add("Concat", sources, whole, {"axis": axis})
        shape = whole
    return ended(writer, value)


def _around(mode: str, extent: int, before: int, behind: int) -> npt.NDArray[np.int64]:
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


def _expand_triangle(writer: Writer) -> bool:
    """A mask chooses between the source and zeros: a constant, or a comparison of the places of
    rows and columns where only a run knows how many there are."""
    node, graph = writer.node, writer.graph
    scope, shape = Scope(node, graph), graph.shape_of(node.output)
    k = scope.constant(1)
    if k is not None and k.size != 1:
        raise ModelError("k must be one number")
    offset = 0 if k is None else known_int(k.item())
    rows, columns = shape[-2:]
    if all(map(is_known, (rows, columns, offset))):
        check_capacity(rows * columns)
        every = np.ones((rows, columns), np.bool_)
        mask = np.triu(every, offset) if scope.attr("upper", 1) else np.tril(every, offset)
        chosen = writer.constant(mask, _TRUTH)
    else:
        first = writer.reshape(writer.numbers(offset, rows), (rows, 1), _INDEX)
        relation = "GreaterOrEqual" if scope.attr("upper", 1) else "LessOrEqual"
        sources = (writer.numbers(0, columns), first)
        chosen = writer.add(relation, sources, (rows, columns), dtype=_TRUTH)
    writer.add("Where", (chosen, node.inputs[0], writer.constant(0)), shape)
    return True


def _infer_eye(scope: Scope) -> list[TensorType]:
    """A matrix of the sizes of the source, in its data type if ``dtype`` names no other."""
    if len(scope.shape()) != 2:
        raise ModelError(f"{scope.shape()} is no matrix")
    dtype = scope.data_type("dtype") if "dtype" in scope.node.attrs else scope.type().dtype
    return [TensorType(dtype, scope.shape())]


def _expand_eye(writer: Writer) -> bool:
    """Ones where column - row = k: a constant for known sizes, else a comparison of the indices of
    rows and columns."""
    node, graph = writer.node, writer.graph
    kind, offset = graph.type_of(node.output), node.attrs.get("k", 0)
    shape = rows, columns = kind.sizes
    if is_known(rows) and is_known(columns):
        check_capacity(rows * columns * kind.dtype.itemsize)
        ones = writer.constant(np.eye(rows, columns, offset), kind.dtype)
        writer.add("Identity", (ones,), shape, dtype=kind.dtype)
        return True
    first = writer.reshape(writer.numbers(offset, rows), (rows, 1), _INDEX)
    sources = (writer.numbers(0, columns), first)
    found = writer.add("Equal", sources, shape, dtype=_TRUTH)
    writer.add("Cast", (found,), shape, {"to": kind.dtype}, kind.dtype)
    return True


def _lower_expand(lowering: Lowering, node: Node) -> None:
    """A copy, broadcast."""
    shape, out = lowering.graph.shape_of(node.inputs[0]), lowering.graph.shape_of(node.output)
    source = lowering.source(node.inputs[0], (1,) * (len(out) - len(shape)) + shape)
    dst = MemoryDesc(out, source.desc.data_type)
    desc = ExactDesc("cast", [source.desc], dst)
    lowering.define(node.output, lowering.emit(node, desc, {Arg.multiple_src(0): source}))


def _lower_range(lowering: Lowering, node: Node) -> None:
    """Numbers of which only a run knows how many there are: written before the first step."""
    first, _, step = _numbers_of_range(Scope(node, lowering.graph))
    lowering.count(node.output, first, step)


OPERATORS: Mapping[str, Operator] = {
    "EyeLike": Operator(_infer_eye, expand=_expand_eye, role=Role.EXACT),
    "Expand": moved(_infer_expand, _lower_expand, (2, 2)),
    "Pad": Operator(_infer_pad, expand=_expand_pad, inputs=(1, 4)),
    "Range": Operator(_infer_range, _lower_range, inputs=(3, 3), role=Role.EXACT),
    "Tile": Operator(_infer_tile, expand=_expand_tile, inputs=(2, 2)),
    "Trilu": Operator(_infer_triangle, expand=_expand_triangle, inputs=(1, 2)),
}
