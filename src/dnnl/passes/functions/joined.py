"""Elementwise nodes that are one function of several values, such as two gates that are multiplied.

A region ends at a node and holds what only it needs: elementwise nodes of floats, all with results
of one shape. It becomes one node where that leaves fewer steps than a chain of post-ops does; the
values that it begins at are operands then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dnnl.graph.graph import REAL, Graph, Node
from dnnl.graph.sizes import same_shape
from dnnl.operators.algorithms import ELTWISE
from dnnl.passes.functions.regions import MOST_NODES, function_of, is_traceable
from dnnl.passes.fusion import fuse_post_ops
from dnnl.types.post_ops import MAX_OPERANDS

_KINDS = (*REAL, np.bool_)


def join_functions(graph: Graph) -> Graph:
    """The graph with each such region as one node."""
    return join_regions(_Functions(graph))


def join_regions(finder: Regions) -> Graph:
    """The graph of a finder with its regions as one node each."""
    graph = finder.graph
    written: dict[str, Node] = {}
    gone: set[str] = set()
    for node in reversed(graph.nodes):
        if node.name in gone or node.name not in finder.parts:
            continue
        region = finder.region(node)
        joined = finder.joined(region)
        if joined is not None:
            gone.update(each.name for each in region)
            written[node.name] = joined
    nodes = [
        written.get(node.name, node)
        for node in graph.nodes
        if node.name not in gone or node.name in written
    ]
    return replace(graph, nodes=tuple(nodes)).pruned()


class Regions(ABC):
    """The regions of a graph, of nodes that are part of what is joined."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.place = {node.name: place for place, node in enumerate(graph.nodes)}
        self.producers = {value: node for node in graph.nodes for value in node.outputs}
        self.readers: Mapping[str, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for value in node.reads:
                self.readers[value].append(node)
        self.results = set(graph.outputs.values())
        self.parts: set[str] = set()
        for node in graph.nodes:
            if not node.post_ops and self.sources(node) and self.is_part(node):
                self.parts.add(node.name)

    @abstractmethod
    def is_part(self, node: Node) -> bool:
        """Whether a node may be joined with others; whether those before it may is known by now."""

    @abstractmethod
    def joined(self, region: Sequence[Node]) -> Node | None:
        """A region as one node; None where it cannot be one, or where no step is saved."""

    def region(self, last: Node) -> list[Node]:
        """What only ``last`` needs, and itself, in order."""
        shape = self.graph.shape_of(last.output)
        region = {last.name: last}
        unseen = [last]
        while unseen and len(region) < MOST_NODES:
            for value in self.sources(unseen.pop()):
                node = self.producers.get(value)
                if node is None or node.name in region or node.name not in self.parts:
                    continue
                inside = value not in self.results and self._is_within(value, region)
                if inside and same_shape(self.graph.shape_of(value), shape):
                    region[node.name] = node
                    unseen.append(node)
        return sorted(region.values(), key=self._place)

    def sources(self, node: Node) -> list[str]:
        """The values that a node reads besides single numbers."""
        inputs = node.inputs[:1] if node.op in ELTWISE else node.inputs
        known = self.graph.constants
        return [value for value in inputs if value not in known or known[value].size != 1]

    def read(self, region: Sequence[Node]) -> list[str]:
        """The values that a region reads: those with the shape of its result first, and constants
        last."""
        known, shape_of = self.graph.constants, self.graph.shape_of
        read = dict.fromkeys(value for node in region for value in self.sources(node))
        shape, results = shape_of(region[-1].output), {node.output for node in region}
        sources = [value for value in read if value not in results]
        return sorted(
            sources, key=lambda value: (not same_shape(shape_of(value), shape), value in known)
        )

    def _is_within(self, value: str, region: Container[str]) -> bool:
        return all(reader.name in region for reader in self.readers[value])

    def _place(self, node: Node) -> int:
        return self.place[node.name]


class _Functions(Regions):
    """Regions of floats."""

    def is_part(self, node: Node) -> bool:
        """Whether a function can compute a node."""
        if not is_traceable(node) or self.graph.type_of(node.output).dtype not in _KINDS:
            return False
        return all(self._is_known(value) for value in self.sources(node))

    def joined(self, region: Sequence[Node]) -> Node | None:
        """A region as one node; None where it cannot be one, or where no step is saved."""
        graph, sources = self.graph, self.read(region)
        shape = graph.shape_of(region[-1].output)
        kinds = {graph.type_of(value).dtype for value in (*sources, region[-1].output)}
        size = sum(1 + len(node.fused) for node in region)
        fits = kinds <= REAL and same_shape(graph.shape_of(sources[0]), shape)
        if not fits or len(sources) > 1 + MAX_OPERANDS or not 1 < size <= MOST_NODES:
            return None
        joined = function_of(tuple(sources), tuple(region), graph)
        names = {node.name for node in region}
        return joined if self._steps([joined], names) < self._steps(region, names) else None

    def _steps(self, nodes: Sequence[Node], region: Container[str]) -> int:
        """How many steps are left of nodes that stand for a region and of what computes their
        sources."""
        read = {value for node in nodes for value in node.reads} - {node.output for node in nodes}
        before = {p.name: p for value in read if (p := self.producers.get(value)) is not None}
        shown = {nodes[-1].output}
        for value in read:
            if value in self.results or not self._is_within(value, region):
                shown.add(value)
        inner = (*sorted(before.values(), key=self._place), *nodes)
        part = replace(self.graph, nodes=inner, outputs={value: value for value in shown})
        return len(fuse_post_ops(part).nodes)

    def _is_known(self, value: str) -> bool:
        """Whether a value is a number, or a truth value of which nothing else is needed."""
        if self.graph.type_of(value).dtype in REAL:
            return True
        producer = self.producers.get(value)
        one = len(self.readers[value]) == 1
        return one and producer is not None and producer.name in self.parts
