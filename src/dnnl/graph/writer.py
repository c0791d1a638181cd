"""What writes one operator as nodes of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dnnl.graph.graph import JOINT, Array, Attributes, Graph, Node, Shape, TensorType
from dnnl.graph.sizes import INT64, array_of
from dnnl.types.size import is_known


class Writer:
    """Collects the nodes that replace one node, with their types and constants."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node, self.graph = node, graph
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.dtype = graph.type_of(node.inputs[0]).dtype

    def type_of(self, value: str) -> TensorType:
        """The type of a value of the graph or of this writer."""
        if value in self.types:
            return self.types[value]
        if value in self.constants:
            return TensorType(self.constants[value].dtype, self.constants[value].shape)
        return self.graph.type_of(value)

    def shape_of(self, value: str) -> Shape:
        """The shape of a value of the graph or of this writer."""
        return self.type_of(value).sizes

    def add(
        self,
        op: str,
        inputs: tuple[str, ...],
        shape: Shape,
        attrs: Attributes | None = None,
        dtype: np.dtype | None = None,
    ) -> str:
        """Append a node and return the name of its result, of the node's data type if no other is
        given."""
        name = f"{self.node.name}{JOINT}{len(self.nodes)}"
        self.nodes.append(Node(op, name, inputs, (name,), attrs or {}))
        self.types[name] = TensorType(dtype or self.dtype, shape)
        return name

    def add_several(
        self, op: str, inputs: tuple[str, ...], kinds: Sequence[TensorType]
    ) -> tuple[str, ...]:
        """Append a node with a result of each type, and return their names."""
        name = f"{self.node.name}{JOINT}{len(self.nodes)}"
        results = tuple(f"{name}{JOINT}result{place}" for place in range(len(kinds)))
        self.nodes.append(Node(op, name, inputs, results))
        self.types.update(zip(results, kinds, strict=True))
        return results

    def constant(self, array: npt.ArrayLike, dtype: np.dtype | None = None) -> str:
        """The name of a new constant, of the node's data type if no other is asked for."""
        name = f"{self.node.name}{JOINT}constant{len(self.constants)}"
        self.constants[name] = np.asarray(array).astype(dtype or self.dtype)
        return name

    def sizes(self, sizes: Sequence[int], shape: Shape | None = None) -> str:
        """The name of a new constant of integers of which only a run may know some."""
        name = f"{self.node.name}{JOINT}constant{len(self.constants)}"
        array = array_of(sizes)
        self.constants[name] = array if shape is None else array.reshape(shape)
        self.types[name] = TensorType(INT64, self.constants[name].shape)
        return name

    def numbers(self, first: int, count: int) -> str:
        """``count`` integers from ``first`` on."""
        ends = tuple(self.sizes([n], ()) for n in (first, first + count, 1))
        return self.add("Range", ends, (count,), dtype=INT64)

    def broadcast(self, value: str, shape: Shape, dtype: np.dtype | None = None) -> str:
        """``value`` copied to another shape."""
        return self.add("Expand", (value, self.sizes(shape)), shape, dtype=dtype)

    def filled(self, number: npt.ArrayLike, shape: Shape) -> str:
        """One number everywhere: a constant if the shape is known."""
        if all(map(is_known, shape)):
            return self.constant(np.full(shape, number, self.dtype))
        return self.broadcast(self.constant(np.reshape(number, ())), shape)

    def reshape(self, value: str, shape: Shape, dtype: np.dtype | None = None) -> str:
        """``value`` in another shape."""
        return self.add("Reshape", (value,), shape, {"shape": shape}, dtype)

    def show(self, value: str, index: int) -> str:
        """Rename ``value``, the result of the last node, to result ``index`` of the replaced node,
        and return that name."""
        self.nodes[-1] = replace(self.nodes[-1], outputs=(self.node.outputs[index],))
        del self.types[value]
        return self.node.outputs[index]

    def finish(self) -> None:
        """The last result is that of the node itself; a single node has its name."""
        last = replace(self.nodes[-1], outputs=self.node.outputs[:1])
        if len(self.nodes) == 1:
            last = replace(last, name=self.node.name)
        del self.types[self.nodes[-1].output]
        self.nodes[-1] = last
