"""Elementwise operators between conversions, as functions of bytes.

A QuantizeLinear becomes one function with the elementwise nodes before it and the DequantizeLinear
of their sources; so does an elementwise node of floats with the DequantizeLinear of its sources.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from dnnl.graph.graph import JOINT, Graph, Node, blamed_on
from dnnl.graph.sizes import same_shape
from dnnl.operators.algorithms import ELTWISE
from dnnl.operators.quantization import DEQUANTIZE, QUANTIZE, aligned_shape, dequantized
from dnnl.passes.functions.regions import MOST_NODES, function_of, is_traceable
from dnnl.passes.quantized.conversions import is_quantized
from dnnl.types.post_ops import MAX_OPERANDS

_CONVERSIONS = (DEQUANTIZE, QUANTIZE)
_FLOAT = np.dtype(np.float32)


def convert_by_functions(graph: Graph) -> Graph:
    """The graph without conversions."""
    if not is_quantized(graph):
        return graph
    graph = _with_constants(graph)
    finder = _Finder(graph)
    written: dict[str, Node] = {}
    gone: set[str] = set()
    for node in reversed(graph.nodes):
        if node.name in gone or not finder.begins(node):
            continue
        region = finder.region(node)
        with blamed_on(node):
            made = finder.joined(region)
        if made is not None:
            written[node.name] = made
            gone.update(n.name for n in region if n.op != DEQUANTIZE)
    nodes = [written.get(n.name, n) for n in graph.nodes if n.name not in gone or n.name in written]
    rest = [finder.alone(node) if node.op in _CONVERSIONS else node for node in nodes]
    return replace(graph, nodes=tuple(rest)).pruned()


def _with_constants(graph: Graph) -> Graph:
    """Constants dequantized that nobody wants as bytes, and parameters along an axis in the shape
    in which they are broadcast."""
    constants, types = dict(graph.constants), dict(graph.types)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op not in _CONVERSIONS:
            nodes.append(node)
            continue
        whole = dequantized(node, graph)
        if whole is not None:
            constants[node.output] = whole
            continue
        inputs, rank = [node.inputs[0]], len(graph.shape_of(node.inputs[0]))
        for value in filter(None, node.inputs[1:]):
            kind = graph.type_of(value)
            shape = aligned_shape(kind.sizes, rank, node.attrs.get("axis", 1))
            if prod(shape) == 1 or shape == kind.shape:
                inputs.append(value)
                continue
            inputs.append(f"{node.name}{JOINT}{value}")
            if value in constants:
                constants[inputs[-1]] = constants[value].reshape(shape)
                continue
            types[inputs[-1]] = replace(kind, shape=shape)
            view = {"shape": shape}
            nodes.append(Node("Reshape", inputs[-1], (value,), (inputs[-1],), view))
        nodes.append(replace(node, inputs=tuple(inputs), attrs={}))
    return replace(graph, nodes=tuple(nodes), types=types, constants=constants)


@dataclass
class _Finder:
    """A region of a graph that is computed at once."""

    graph: Graph

    def __post_init__(self) -> None:
        self.place = {node.name: place for place, node in enumerate(self.graph.nodes)}
        self.producers = {node.output: node for node in self.graph.nodes}
        self.readers: dict[str, list[Node]] = defaultdict(list)
        for node in self.graph.nodes:
            for value in node.reads:
                self.readers[value].append(node)
        self.results = set(self.graph.outputs.values())

    def begins(self, node: Node) -> bool:
        """Whether a region ends at a node: it quantizes, or reads what is dequantized."""
        if node.op == QUANTIZE:
            return True
        read = [self.producers.get(value) for value in node.inputs]
        return self._is_elementwise(node) and any(
            p is not None and p.op == DEQUANTIZE for p in read
        )

    def region(self, last: Node) -> list[Node]:
        """What only ``last`` needs, conversions of its sources, and itself, in order."""
        shape = self.graph.shape_of(last.output)
        region = {last.name: last}
        stack = [last]
        while stack and len(region) < MOST_NODES:
            for value in self._sources(stack.pop()):
                node = self.producers.get(value)
                if node is None or node.name in region:
                    continue
                if node.op == DEQUANTIZE:
                    region[node.name] = node
                elif self._is_part(node, value, region) and same_shape(
                    self.graph.shape_of(value), shape
                ):
                    region[node.name] = node
                    stack.append(node)
        return sorted(region.values(), key=lambda n: self.place[n.name])

    def joined(self, region: Sequence[Node]) -> Node | None:
        """A region as one function; None where none of its sources has the shape of the result."""
        last, graph = region[-1], self.graph
        results = {node.output for node in region}
        read = dict.fromkeys(value for node in region for value in self._sources(node))
        sources = [value for value in read if value not in results]
        shape = graph.shape_of(last.output)
        sources.sort(
            key=lambda value: (
                not same_shape(graph.shape_of(value), shape),
                value in graph.constants,
            )
        )
        if (
            not sources
            or not same_shape(graph.shape_of(sources[0]), shape)
            or len(sources) > 1 + MAX_OPERANDS
        ):
            return None
        return function_of(tuple(sources), tuple(region), graph)

    def alone(self, node: Node) -> Node:
        """A conversion that no region has taken in."""
        with blamed_on(node):
            return function_of(tuple(self._sources(node)), (node,), self.graph)

    def _sources(self, node: Node) -> list[str]:
        """The values that a node reads besides single numbers."""
        inputs = node.inputs[:1] if node.op in ELTWISE else tuple(filter(None, node.inputs))
        known = self.graph.constants
        return [value for value in inputs if value not in known or known[value].size != 1]

    def _is_elementwise(self, node: Node) -> bool:
        """Whether a node computes f32 of f32, element by element."""
        if not is_traceable(node) or node.op in _CONVERSIONS:
            return False
        values = (*self._sources(node), node.output)
        return all(self.graph.type_of(value).dtype == _FLOAT for value in values)

    def _is_part(self, node: Node, value: str, region: dict[str, Node]) -> bool:
        """Whether a node computes a value that only the region reads."""
        within = all(reader.name in region for reader in self.readers[value])
        return within and value not in self.results and self._is_elementwise(node)
