"""What writes one operator as nodes of others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dnnl.graph.graph import JOINT, Array, Attributes, Graph, Node, Shape, TensorType


class Writer:
    """Collects the nodes that replace one node, with their types and constants."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node, self.graph = node, graph
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Array] = {}
        self.dtype = graph.type_of(node.inputs[0]).dtype

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

    def constant(self, array: npt.ArrayLike, dtype: np.dtype | None = None) -> str:
        """The name of a new constant, of the node's data type if no other is asked for."""
        name = f"{self.node.name}{JOINT}constant{len(self.constants)}"
        self.constants[name] = np.asarray(array).astype(dtype or self.dtype)
        return name

    def reshape(self, value: str, shape: Shape, dtype: np.dtype | None = None) -> str:
        """``value`` in another shape."""
        return self.add("Reshape", (value,), shape, {"shape": shape}, dtype)

    def show(self, value: str, index: int) -> None:
        """The last result, ``value``, is result ``index`` of the node."""
        self.nodes[-1] = replace(self.nodes[-1], outputs=(self.node.outputs[index],))
        del self.types[value]

    def finish(self) -> None:
        """The last result is that of the node itself; a single node has its name."""
        last = replace(self.nodes[-1], outputs=self.node.outputs[:1])
        if len(self.nodes) == 1:
            last = replace(last, name=self.node.name)
        del self.types[self.nodes[-1].output]
        self.nodes[-1] = last
