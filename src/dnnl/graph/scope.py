"""A node among the values that are known before it: what the inference of its types reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import Array, Graph, ModelError, Node, Shape, TensorType
from dnnl.graph.sizes import known_int

Infer = Callable[["Scope"], list[TensorType]]


@dataclass(frozen=True, slots=True)
class Scope:
    """A node among the values that are known before it."""

    node: Node
    graph: Graph

    def type(self, index: int = 0) -> TensorType:
        """Type of input ``index``."""
        value = self.node.input(index)
        if not value:
            raise ModelError(f"{self.node} lacks its input {index}")
        return self.graph.type_of(value)

    def shape(self, index: int = 0) -> Shape:
        """Shape of input ``index``."""
        return self.type(index).sizes

    def constant(self, index: int) -> Array | None:
        """Contents of input ``index``: None where absent.

        Raises Unimplemented where the model computes it while running.
        """
        value = self.node.input(index)
        if not value:
            return None
        array = self.graph.constants.get(value)
        if array is None:
            raise Unimplemented(f"{self.node}: input {value!r} must be constant")
        return array

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute of the node, or its default."""
        return self.node.attrs.get(name, default)

    def data_type(self, name: str) -> np.dtype:
        """The data type that an attribute is; raises ModelError for a code that is none."""
        given = self.attr(name)
        if not isinstance(given, np.dtype):
            raise ModelError(f"attribute {name!r} = {given} is no data type")
        return given

    def axis(self, default: int, rank: int | None = None) -> int:
        """The attribute ``axis``, nonnegative."""
        return normal_axis(self.attr("axis", default), len(self.shape()) if rank is None else rank)

    def listed(self, name: str, index: int) -> tuple[int, ...] | None:
        """Integers that older models give as an attribute and newer ones as input ``index``."""
        if name in self.node.attrs:
            return tuple(self.node.attrs[name])
        values = self.constant(index)
        return None if values is None else tuple(known_int(v) for v in np.ravel(values))

    def result(self, shape: Sequence[int]) -> list[TensorType]:
        """One result of the first input's data type."""
        return [TensorType(self.type().dtype, tuple(shape))]


def normal_axis(axis: int, rank: int) -> int:
    """``axis`` as a nonnegative number; raises ModelError outside ``rank`` dimensions."""
    if not -rank <= axis < max(rank, 1):
        raise ModelError(f"axis {axis} is outside of {rank} dimensions")
    return axis + rank if axis < 0 else axis


def transposition(scope: Scope) -> tuple[int, ...]:
    """The attribute ``perm``: reversal by default."""
    return tuple(scope.attr("perm", tuple(reversed(range(len(scope.shape()))))))
