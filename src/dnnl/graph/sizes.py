"""Arrays of sizes: what a model computes of shapes, where only a run knows some of them.

They are constants of type object, whose elements are integers and `dnnl.types.size.Size`; a graph
has their type, int64 or int32, among those of its values. What is computed of them stays an
expression, and any other use takes the typical number, under the condition that a run has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from dnnl.graph.graph import Array, Graph, ModelError, Node, Shape, TensorType
from dnnl.types.size import bounds, is_known, larger, smaller, surely_equal

INT64 = np.dtype(np.int64)
_NUMBERS = frozenset({np.dtype(np.int32), INT64, np.dtype(np.float32), np.dtype(np.float64)})
_EXACT = 2**24
"""Integers up to this one are floats."""


def array_of(shape: Sequence[int]) -> Array:
    """Sizes as a constant."""
    return _array(np.array([*shape, None], object)[:-1], INT64)


def is_open(array: Array | None) -> bool:
    """Whether only a run knows what a constant contains."""
    return array is not None and array.dtype == object


def fixed(value: str, graph: Graph) -> Array:
    """The typical numbers of a constant, which a guard makes the only ones."""
    return graph.constants[value].astype(graph.type_of(value).dtype)


def type_of(node: Node, graph: Graph, result: Array) -> TensorType:
    """The type of sizes that a node computes: that of its first source, or of the first that Where
    chooses from, unless it is a Cast."""
    if node.op == "Cast":
        return TensorType(node.attrs["to"], result.shape)
    first = node.inputs[node.op == "Where"]
    source = INT64 if node.op in ("Shape", "Size") else graph.type_of(first).dtype
    return TensorType(source, result.shape)


def known_int(value: Any) -> int:
    """An integer of any kind as one of Python, unless it is a size."""
    return value if not is_known(value) else int(value)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape that NumPy's broadcasting gives; raises ModelError where it does not exist."""
    axes = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return tuple(_joined(sizes, shapes) for sizes in axes)[::-1]


def same_shape(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes are one, whatever the sizes that only a run knows."""
    return len(a) == len(b) and all(map(surely_equal, a, b))


def _joined(sizes: Sequence[int], shapes: Sequence[Shape]) -> int:
    found = 1
    for size in sizes:
        if surely_equal(size, 1) or surely_equal(size, found):
            continue
        if surely_equal(found, 1):
            found = size
        elif size != found:
            raise ModelError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        else:  # one of them is known, if any is
            found = found if is_known(found) else size
    return found


def _array(values: Array, dtype: np.dtype) -> Array:
    """An array of objects as one of numbers if it has no sizes."""
    return values if any(not is_known(v) for v in values.ravel()) else values.astype(dtype)


def computes(node: Node) -> bool:
    """Whether a node may compute with sizes, without knowing numbers."""
    if node.op == "Cast":
        return node.attrs.get("to") in _NUMBERS
    if node.op == "CastLike":  # to a type that is not known yet
        return not node.domain
    return not node.domain and node.op in _RULES


def computed(node: Node, graph: Graph) -> Array | None:
    """The result of a node that computes with sizes; None where it has to know numbers."""
    rule = _RULES.get(node.op) if not node.domain else None
    if rule is None:
        return None
    try:
        sources = [_whole_numbers(graph.constants[v]) if v else None for v in node.inputs]
        found = np.asarray(rule(node, *sources))
        if node.op == "Div" and graph.type_of(node.inputs[0]).dtype.kind == "f":
            _check_exact(sources[0], found * sources[1])
        if found.dtype == np.bool_:
            return found
        dtype = type_of(node, graph, found).dtype
        if dtype.kind == "f" and any(n > _EXACT or n < -_EXACT for n in found.ravel()):
            return None
    except _Numbers:
        return None
    return _array(found.astype(object), dtype)


def rounded_quotient(node: Node, division: Node, graph: Graph) -> Array | None:
    """The result of a Ceil or Floor of a quotient of sizes as floats, which is none itself; None
    where it has to know numbers. Floats have no integer between two that round to it."""
    try:
        a, b = (_whole_numbers(graph.constants[value]) for value in division.inputs)
        if any(n < 0 or n > _EXACT for n in a.ravel()) or any(n < 1 for n in b.ravel()):
            return None
    except _Numbers:
        return None
    dtype = graph.type_of(division.inputs[0]).dtype
    return _array(np.asarray(-(-a // b) if node.op == "Ceil" else a // b, object), dtype)


def _whole_numbers(array: Array) -> Array:
    """Integers as objects, of an array of floats too; raises _Numbers if they are none."""
    if array.dtype.kind != "f":
        return array.astype(object)
    if not (np.isfinite(array) & (array == np.rint(array)) & (np.abs(array) < _EXACT)).all():
        raise _Numbers
    return array.astype(np.int64).astype(object)


def _check_exact(numerators: Any, products: Array) -> None:
    """Raise _Numbers unless quotients of floats are whole, whatever the sizes."""
    pairs = zip(*map(np.ravel, np.broadcast_arrays(numerators, products)), strict=True)
    if not all(surely_equal(a, b) for a, b in pairs):
        raise _Numbers


def _axes(node: Node, axes: Array | None) -> tuple[int, ...]:
    listed = node.attrs.get("axes", axes)
    return () if listed is None else tuple(int(axis) for axis in np.ravel(listed))


def _gather(node: Node, data: Array, indices: Array) -> Any:
    return np.take(data, indices.astype(np.int64), axis=node.attrs.get("axis", 0))


def first_of(start: int, extent: int, step: int) -> int:
    """Where Slice begins in Python's terms: backward from the first element, where ``start`` is
    before it; Python takes nothing then."""
    return max(start, -extent) if step < 0 else start


def _concat(node: Node, *parts: Array) -> Array:
    return np.concatenate(parts, axis=node.attrs["axis"])


def _squeeze(node: Node, data: Array, axes: Array | None = None) -> Array:
    return data.reshape([n for d, n in enumerate(data.shape) if d not in _normal(node, axes, data)])


def _normal(node: Node, axes: Array | None, data: Array) -> set[int]:
    listed = _axes(node, axes) or tuple(d for d, n in enumerate(data.shape) if n == 1)
    return {axis % data.ndim for axis in listed}


def _unsqueeze(node: Node, data: Array, axes: Array | None = None) -> Array:
    for axis in sorted(a % (data.ndim + len(_axes(node, axes))) for a in _axes(node, axes)):
        data = np.expand_dims(data, axis)
    return data


def _slice(
    node: Node,
    data: Array,
    starts: Array | None = None,
    ends: Array | None = None,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    starts = np.ravel(node.attrs.get("starts", starts))
    ends = np.ravel(node.attrs.get("ends", ends))
    places = _axes(node, axes) or tuple(range(len(starts)))
    strides = [1] * len(starts) if steps is None else np.ravel(steps).tolist()
    where = [slice(None)] * data.ndim
    for axis, start, end, step in zip(places, starts, ends, strides, strict=True):
        first = first_of(int(start), data.shape[axis], int(step))
        where[axis] = slice(first, int(end), int(step))
    return data[tuple(where)]


def _reshape(node: Node, data: Array, shape: Array) -> Array:
    return data.reshape([int(n) for n in shape])


def _cast(node: Node, data: Array) -> Array:
    kind = node.attrs["to"]
    if kind not in _NUMBERS:
        raise _Numbers
    return data


def _whole(node: Node, data: Array) -> Array:
    """Floor, Ceil and Round of floats that are whole."""
    return data


def _remainder(node: Node, a: Array, b: Array) -> Any:
    if node.attrs.get("fmod", 0) and any(bounds(n)[0] < 0 for n in (*a.ravel(), *b.ravel())):
        raise _Numbers  # it has the sign of the dividend then, not of the divisor
    return a % b


def _quotient(node: Node, a: Array, b: Array) -> Any:
    if any(value < 0 for value in (*a.ravel(), *b.ravel())):
        raise _Numbers  # Div rounds towards zero
    return a // b


class _Numbers(Exception):
    """A rule has to know numbers."""


def _product(node: Node, data: Array, axes: Array | None = None) -> Array:
    whole = data.ndim == 1 and not set(_axes(node, axes)) - {0, -1}
    if not whole:
        raise _Numbers
    return np.array([prod(data)] if node.attrs.get("keepdims", 1) else prod(data), object)


def _where(node: Node, condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition.astype(bool), a, b)


_RULES: Mapping[str, Callable[..., Any]] = {
    "Add": lambda node, a, b: a + b,
    "Cast": _cast,
    "Ceil": _whole,
    "Concat": _concat,
    "Div": _quotient,
    "Equal": lambda node, a, b: a == b,
    "Floor": _whole,
    "Gather": _gather,
    "Greater": lambda node, a, b: a > b,
    "GreaterOrEqual": lambda node, a, b: a >= b,
    "Identity": lambda node, data: data,
    "Less": lambda node, a, b: a < b,
    "LessOrEqual": lambda node, a, b: a <= b,
    "Max": lambda node, *sources: reduce(np.frompyfunc(larger, 2, 1), sources),
    "Min": lambda node, *sources: reduce(np.frompyfunc(smaller, 2, 1), sources),
    "Mod": _remainder,
    "Mul": lambda node, a, b: a * b,
    "Neg": lambda node, data: -data,
    "ReduceProd": _product,
    "Reshape": _reshape,
    "Round": _whole,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": lambda node, a, b: a - b,
    "Transpose": lambda node, data: data.transpose(node.attrs.get("perm")),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
