"""Reshapes and transpositions moved behind elementwise nodes, and factors behind products.

A node that follows its producer directly can become a post-op of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dnnl.graph.graph import JOINT, Graph, Node, Shape, TensorType, is_whole
from dnnl.graph.scope import Scope, transposition
from dnnl.graph.sizes import same_shape
from dnnl.operators.algorithms import post_op_of, scalar_of
from dnnl.operators.table import operator_of
from dnnl.types.size import is_one

_MOST_FACTOR = 2.0**8
"""Products without larger or smaller factors than this leave the range of f32 where only numbers
next to its ends would come of them."""
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def sink_views(graph: Graph) -> Graph:
    """Elementwise nodes brought before the views that they read, next to what computes these."""
    mover = _Mover(graph)
    for node in graph.nodes:
        mover.add(node)
    return replace(graph, nodes=tuple(mover.nodes), types=mover.types, constants=mover.constants)


class _Mover:
    """The nodes so far, elementwise ones as early as possible."""

    def __init__(self, graph: Graph) -> None:
        self.types, self.constants = dict(graph.types), dict(graph.constants)
        self.graph = replace(graph, types=self.types, constants=self.constants)
        self.uses = graph.uses()
        self.nodes: list[Node] = []
        self.producers: dict[str, Node] = {}
        self.fixed: set[str] = set()  # values of views that were made for other sources

    def add(self, node: Node) -> None:
        """Append a node, or put it before the view that one of its sources is."""
        for value in node.inputs:
            moved = self._moved(node, value)
            if moved is not None:
                view = self.producers.pop(value)
                self.nodes.remove(view)
                self.uses[view.inputs[0]] -= 1
                for each in moved[:-2]:
                    self._append(each)
                self.add(moved[-2])
                self._append(moved[-1])
                return
        self._append(node)

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        self.producers[node.output] = node

    def _moved(self, node: Node, value: str) -> list[Node] | None:
        """The views of other sources, the node before the view that ``value`` is, and that view
        behind it; None where it cannot be moved."""
        view = self.producers.get(value)
        if view is None or view.op not in _VIEWS or value in self.fixed or self.uses[value] != 1:
            return None
        source = view.inputs[0]
        post_op = post_op_of(node, value, self.graph)
        host = self._host(source)
        if post_op is None or host is None or not operator_of(host).takes(post_op):
            return None
        shape = self.graph.shape_of(source)
        before: list[Node] = []
        inputs = []
        for name in node.inputs:
            if name == value or not name or scalar_of(self.graph.constants.get(name)) is not None:
                inputs.append(source if name == value else name)
                continue
            seen = self._seen(name, node, view, shape)
            if seen is None:
                return None
            before += seen
            inputs.append(seen[0].output if seen else name)
        early = f"{node.output}{JOINT}{view.name}"
        self.types[early] = TensorType(self.graph.type_of(node.output).dtype, shape)
        self.uses[source] += 1
        self.uses[early] += 1
        for each in before:
            self.uses[each.output] += 1
            self.fixed.add(each.output)
        return [
            *before,
            replace(node, inputs=tuple(inputs), outputs=(early,)),
            replace(view, inputs=(early, *view.inputs[1:]), outputs=node.outputs[:1]),
        ]

    def _host(self, value: str) -> Node | None:
        """What computes a value that nobody else reads, views aside."""
        host = self.producers.get(value)
        while host is not None and self.uses[value] == 1 and host.op in _VIEWS:
            value = host.inputs[0]
            host = self.producers.get(value)
        return host if self.uses[value] == 1 else None

    def _seen(self, name: str, node: Node, view: Node, shape: Shape) -> list[Node] | None:
        """How another source of a node is seen before the view: as it is, by a view, or not."""
        own, full = self.graph.shape_of(name), self.graph.shape_of(node.output)
        if view.op != "Transpose":
            trimmed = own[next((d for d, n in enumerate(own) if not is_one(n)), len(own)) :]
            if len(trimmed) == 1 and full[-1:] == shape[-1:] == trimmed and len(own) <= len(shape):
                return []
        if not same_shape(own, full) or (
            name not in self.producers and name not in self.graph.inputs
        ):
            return None
        seen = f"{name}{JOINT}{node.name}"
        self.types[seen] = TensorType(self.graph.type_of(name).dtype, shape)
        if view.op == "Transpose":
            perm = transposition(Scope(view, self.graph))
            back = tuple(int(axis) for axis in np.argsort(perm))
            return [Node("Transpose", seen, (name,), (seen,), {"perm": back})]
        return [Node("Reshape", seen, (name,), (seen,), {"shape": shape})]


def factors_behind_products(graph: Graph) -> Graph:
    """A source of MatMul that is multiplied by a number: the product is, which is a post-op."""
    uses, types, constants = graph.uses(), dict(graph.types), dict(graph.constants)
    producers = {node.output: node for node in graph.nodes}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op != "MatMul" or is_whole(graph.type_of(node.output).dtype):
            nodes.append(node)
            continue
        inputs, factor, fused = [], 1.0, []
        for value in node.inputs:
            found = _factor(producers.get(value), graph) if uses[value] == 1 else None
            inputs.append(value if found is None else found[0])
            if found is not None:
                factor *= found[1]
                fused.append(producers[value].name)
        if not fused:
            nodes.append(node)
            continue
        early, number = f"{node.output}{JOINT}product", f"{node.output}{JOINT}factor"
        types[early] = graph.type_of(node.output)
        constants[number] = np.array(factor, np.float32)
        nodes.append(replace(node, inputs=tuple(inputs), outputs=(early,)))
        name = f"{node.name}{JOINT}factor"
        nodes.append(Node("Mul", name, (early, number), node.outputs, fused=tuple(fused)))
    return replace(graph, nodes=tuple(nodes), types=types, constants=constants).pruned()


def _factor(node: Node | None, graph: Graph) -> tuple[str, float] | None:
    """The value that a node multiplies by a number, and the number."""
    if node is None or node.op not in ("Mul", "Div") or len(node.inputs) != 2:
        return None
    scalars = [scalar_of(graph.constants.get(value)) for value in node.inputs]
    place = next((p for p, s in enumerate(scalars) if s is not None), None)
    if place is None or not same_shape(
        graph.shape_of(node.inputs[1 - place]), graph.shape_of(node.output)
    ):
        return None
    number = scalars[place]
    if number is None or not 1 / _MOST_FACTOR <= abs(number) <= _MOST_FACTOR:
        return None
    if node.op == "Div" and place == 0:
        return None
    return node.inputs[1 - place], 1 / number if node.op == "Div" else number
