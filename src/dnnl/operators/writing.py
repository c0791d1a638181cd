"""Nodes that the expansions of several families write."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from dnnl.graph.graph import Shape
from dnnl.graph.writer import Writer
from dnnl.types.size import is_known

_INDEX = np.dtype(np.int64)
Places = npt.NDArray[np.integer]


def gathered(writer: Writer, value: str, shape: Shape, axis: int, places: Places) -> str:
    """The slices of ``value`` along an axis at ``places``, which have the ``shape``."""
    if not prod(shape):
        return writer.add("Identity", (writer.constant(np.zeros(shape)),), shape)
    indices = writer.constant(places, _INDEX)
    return writer.add("Gather", (value, indices), shape, {"axis": axis})


def counted(writer: Writer, count: int) -> str:
    """The integers below ``count``: a constant if that is known."""
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
