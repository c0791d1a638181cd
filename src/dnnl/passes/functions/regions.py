"""Elementwise nodes that are one function of one value, such as the parts of a GELU.

A region begins at a value and ends at a node; everything between them reads that value, constants
of one element and the region itself, and nobody else reads what is between. It becomes one node
that computes a traced expression, as does an operator for which there is no algorithm. `joined`
makes functions of several values likewise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dnnl.graph.graph import FUNCTION, REAL, Array, Graph, Node, blamed_on, is_whole
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import same_shape
from dnnl.operators.algorithms import ELTWISE, post_op_of
from dnnl.operators.exact import COMPARISONS
from dnnl.operators.quantization import DEQUANTIZE, QUANTIZE, dequantize, quantize
from dnnl.operators.traced import ALONE, Traced, algorithm, named_function
from dnnl.types.expression import Expression, Function
from dnnl.types.scalar import Scalar, replayed, trace
from dnnl.types.typed import FUNCTIONS

MOST_NODES = 64
"""Larger regions would make kernels that take long to compile."""


_ALIKE = ("Add", "And", "Div", "Max", "Min", "Mul", "Not", "Or", "Pow", "Sub", "Where")
_NAMES = {**{op: op.lower() for op in _ALIKE}, **COMPARISONS}
_TOGETHER: Mapping[str, Traced] = {
    **{op: named_function(FUNCTIONS[name]) for op, name in _NAMES.items()},
    DEQUANTIZE: dequantize,
    QUANTIZE: quantize,
}
"""Operators that are part of a function where their sources are."""


@dataclass(frozen=True)
class _Region:
    """The nodes between a value and another one that is computed from it alone, in order."""

    root: str
    nodes: tuple[Node, ...] = ()

    def joined(self, others: list[_Region], node: Node) -> _Region:
        """This region and others with the same root, and a node behind them."""
        known = {n.name: n for region in (self, *others) for n in region.nodes}
        return _Region(self.root, (*known.values(), node))


def fuse_functions(graph: Graph) -> Graph:
    """The graph with each such region as one node."""
    readers: dict[str, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for value in node.reads:
            readers[value].append(node)
    atoms = set(graph.outputs.values())
    while True:
        finder = _Finder(graph, readers, atoms)
        apart = finder.read_from_outside()
        if not apart:
            break
        atoms |= apart
    written: dict[str, Node] = {}
    gone: set[str] = set()
    for region in finder.wanted():
        gone.update(node.name for node in region.nodes)
        written[region.nodes[-1].name] = function_of((region.root,), region.nodes, graph)
    for node in graph.nodes:
        if node.name in gone:
            continue
        if node.op in ALONE:  # what reads it is no number, or too long
            written[node.name] = function_of(node.inputs[:1], (node,), graph)
        elif _is_power_of_values(node, graph):
            whole = graph.shape_of(node.output)
            first = sorted(
                node.inputs, key=lambda value: not same_shape(graph.shape_of(value), whole)
            )
            written[node.name] = function_of(tuple(first), (node,), graph)
    nodes = [
        written.get(node.name, node)
        for node in graph.nodes
        if node.name not in gone or node.name in written
    ]
    return replace(graph, nodes=tuple(nodes)).pruned()


@dataclass
class _Finder:
    """The regions of a graph. Nothing behind one of the ``atoms`` belongs to what is before it."""

    graph: Graph
    readers: Mapping[str, list[Node]]
    atoms: set[str]
    regions: dict[str, _Region] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.graph.nodes:
            with blamed_on(node):
                region = self._region(node)
            if region is not None:
                self.regions[node.output] = region

    def _region(self, node: Node) -> _Region | None:
        """What ends at a node."""
        if node.post_ops or node.domain or not is_traceable(node):
            return None
        sources = self._sources(node)
        if not sources or self.graph.type_of(node.output).dtype not in (*REAL, np.bool_):
            return None
        before = [self.regions[v] for v in sources if v in self.regions and v not in self.atoms]
        roots = {r.root for r in before} | {
            v for v in sources if v not in self.regions or v in self.atoms
        }
        if len(roots) != 1:
            return None
        (root,) = roots
        kind = self.graph.type_of(root)
        fits = kind.dtype in REAL and same_shape(self.graph.shape_of(node.output), kind.sizes)
        region = _Region(root).joined(before, node)
        if fits and len(region.nodes) > MOST_NODES:
            region = _Region(sources[0], (node,))
            fits = len(set(sources)) == 1
        return region if fits else None

    def _sources(self, node: Node) -> list[str]:
        """The values that a node reads besides single floats; none if it reads what no function
        can."""
        if node.op in ELTWISE:
            return list(node.inputs[:1])
        computed = []
        for value in node.inputs:
            constant = self.graph.constants.get(value)
            if constant is None:
                computed.append(value)
            elif constant.size != 1 or constant.dtype not in REAL:
                return []
        return computed

    def _ends(self) -> Iterator[_Region]:
        """The regions that are part of no larger one and compute numbers."""
        for value, region in self.regions.items():
            around = (self.regions.get(node.output) for node in self.readers[value])
            part = value not in self.atoms and all(
                r is not None and r.root == region.root for r in around
            )
            if not part and self.graph.type_of(value).dtype in REAL:
                yield region

    def read_from_outside(self) -> set[str]:
        """Values within regions that others read as well."""
        found = set()
        for region in self._ends():
            names = {node.name for node in region.nodes}
            for node in region.nodes[:-1]:
                if any(reader.name not in names for reader in self.readers[node.output]):
                    found.add(node.output)
        return found - self.atoms

    def wanted(self) -> Iterator[_Region]:
        """The regions that no chain of post-ops computes."""
        for region in self._ends():
            if any(self._is_apart(node) for node in region.nodes):
                yield region

    def _is_apart(self, node: Node) -> bool:
        """Whether a node of a region is no post-op of the one before it."""
        sources = self._sources(node)
        if node.op in ALONE or len(sources) > 1:
            return True
        with blamed_on(node):
            return post_op_of(node, sources[0], self.graph) is None


def is_traceable(node: Node) -> bool:
    """Whether a node computes each element of its result from one of each source."""
    return node.op in ELTWISE or node.op in ALONE or node.op in _TOGETHER or node.op == FUNCTION


def _is_power_of_values(node: Node, graph: Graph) -> bool:
    """Whether a power has exponents for which no primitive has an algorithm."""
    if node.op != "Pow" or is_whole(graph.type_of(node.output).dtype):
        return False
    return post_op_of(node, node.inputs[0], graph) is None


def function_of(sources: tuple[str, ...], nodes: tuple[Node, ...], graph: Graph) -> Node:
    """One node for several in order, of which the last one gives the result: a traced function of
    ``sources``, of which the first has the shape of the result."""
    with blamed_on(nodes[-1]):
        return replaced_by(FUNCTION, _expression(sources, nodes, graph), sources, nodes)


def replaced_by(
    op: str, expression: Expression, sources: Sequence[str], nodes: Sequence[Node]
) -> Node:
    """One node for several in order that computes an expression of ``sources``."""
    last = nodes[-1]
    before = (name for node in nodes[:-1] for name in (*node.fused, node.name))
    return replace(
        last,
        op=op,
        inputs=tuple(sources),
        domain=op,
        attrs={"function": Function(expression, last.name)},
        fused=(*before, *last.fused),
    )


def _expression(sources: tuple[str, ...], nodes: tuple[Node, ...], graph: Graph) -> Expression:
    def compute(*parameters: Scalar) -> Scalar:
        values: dict[str, Scalar] = dict(zip(sources, parameters, strict=True))
        for node in nodes:
            values[node.output] = computed(node, values, graph)
        return values[nodes[-1].output]

    return trace(compute, len(sources))


def computed(node: Node, values: Mapping[str, Scalar], graph: Graph) -> Scalar:
    """The result of a node, of the scalars that its sources are."""
    scope = Scope(node, graph)
    if node.op in ELTWISE:
        alg, alpha, beta = ELTWISE[node.op](scope)
        return algorithm(alg, values[node.inputs[0]], alpha, beta)
    sources = [_value(v, values, graph.constants) for v in node.inputs]
    if node.op == FUNCTION:
        return replayed(node.attrs["function"].expression, sources)
    rule = ALONE.get(node.op) or _TOGETHER[node.op]
    return rule(scope, *sources)


def _value(
    name: str, values: Mapping[str, Scalar], constants: Mapping[str, Array]
) -> Scalar | float:
    if name in values:
        return values[name]
    constant = constants[name].reshape(())
    return bool(constant) if constant.dtype == bool else float(constant)
