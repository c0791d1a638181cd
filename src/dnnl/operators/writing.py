"""Nodes that the expansions of several families write."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from dnnl.graph.graph import Shape
from dnnl.graph.writer import Writer
from dnnl.types.size import is_known, surely_equal

_INDEX = np.dtype(np.int64)


def gathered(
    writer: Writer, value: str, shape: Shape, axis: int, places: npt.NDArray[np.integer]
) -> str:
    """The slices of ``value`` along an axis at ``places``, which have the ``shape``."""
    if not prod(shape):
        return writer.add("Identity", (writer.constant(np.zeros(shape)),), shape)
    indices = writer.constant(places, _INDEX)
    return writer.add("Gather", (value, indices), shape, {"axis": axis})


def counted(writer: Writer, count: int) -> str:
    """The integers 0 to ``count - 1``, a constant if ``count`` is known."""
    if is_known(count):
        return writer.constant(np.arange(count), _INDEX)
    return writer.numbers(0, count)


def with_size(shape: Shape, axis: int, size: int) -> Shape:
    """The shape with another size along an axis."""
    return (*shape[:axis], size, *shape[axis + 1 :])


def ended(writer: Writer, value: str) -> bool:
    """Nothing left to do is a node as well."""
    if not writer.nodes:
        writer.add("Identity", (value,), writer.graph.shape_of(writer.node.output))
    return True


def transposed(writer: Writer, value: str, shape: Shape, order: Sequence[int]) -> str:
    """A Transpose of ``value``, which has ``shape``, to axes in ``order``."""
    if tuple(order) == tuple(range(len(shape))):
        return value
    attrs = {"perm": tuple(order)}
    return writer.add("Transpose", (value,), tuple(shape[dim] for dim in order), attrs)


def reduced(writer: Writer, op: str, value: str, shape: Shape, axes: Sequence[int]) -> str:
    """A reduction of ``value``, which has ``shape``, along ``axes``, which keep size 1."""
    left = tuple(1 if dim in axes else size for dim, size in enumerate(shape))
    if op == "ReduceSum" and any(surely_equal(shape[dim], 0) for dim in axes):
        return writer.add("Identity", (writer.filled(0, left),), left)
    open_axes = tuple(dim for dim in axes if not surely_equal(shape[dim], 1))
    return writer.add(op, (value,), left, {"axes": open_axes}) if open_axes else value


def summed(writer: Writer, value: str, shape: Shape, axes: Sequence[int]) -> str:
    """The sum of ``value``, which has ``shape``, along ``axes``, which are dropped."""
    value = reduced(writer, "ReduceSum", value, shape, axes)
    return writer.reshape(value, tuple(n for dim, n in enumerate(shape) if dim not in axes))


def powers(writer: Writer, value: str, shape: Shape, power: int) -> str:
    """``abs(value) ** power`` of a ``value`` that has ``shape``."""
    if power == 2:
        return writer.add("Mul", (value, value), shape)
    value = writer.add("Abs", (value,), shape)
    return value if power == 1 else writer.add("Pow", (value, writer.constant(power)), shape)


def root(writer: Writer, value: str, shape: Shape, power: int) -> str:
    """``value ** (1 / power)``, the inverse of `powers`."""
    if power == 1:
        return value
    if power == 2:
        return writer.add("Sqrt", (value,), shape)
    return writer.add("Pow", (value, writer.constant(1 / power)), shape)
