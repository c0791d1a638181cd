"""Conversions to and from bytes brought to where operators can take them in.

What only moves elements, or chooses among them, moves bytes instead: a DequantizeLinear goes behind
it and a QuantizeLinear before it. Where the two meet with the same parameters, both are gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from dnnl.graph.graph import JOINT, Array, Graph, Node, TensorType, blamed_on
from dnnl.graph.scope import Scope, normal_axis
from dnnl.operators.pooling import pooling_window
from dnnl.operators.quantization import (
    DEQUANTIZE,
    DYNAMIC,
    HALF_RANGE,
    INTEGER_PRODUCTS,
    QUANTIZE,
    Float64,
    Parameters,
    aligned_shape,
    parameters,
)

_CHOICES = frozenset({"GlobalMaxPool", "MaxPool"})
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_MOVES = _VIEWS | _CHOICES | {"Expand", "Gather", "GatherElements", "Slice", "Split"}
_AVERAGES = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean"})
_OF_BYTES = frozenset({DEQUANTIZE, QUANTIZE, DYNAMIC, *INTEGER_PRODUCTS})


def is_quantized(graph: Graph) -> bool:
    """Whether a model has quantized values."""
    return any(node.op in _OF_BYTES for node in graph.nodes)


def move_conversions(graph: Graph) -> Graph:
    """The graph with conversions behind and before what moves elements."""
    if not is_quantized(graph):
        return graph
    up = _quantize_early(graph)
    mover = _Mover(up, dict(up.types), dict(up.constants))
    for node in up.nodes:
        with blamed_on(node):
            mover.add(node)
    moved = replace(up, nodes=tuple(mover.nodes), types=mover.types, constants=mover.constants)
    return moved.renamed(mover.same).pruned()


def _quantize_early(graph: Graph) -> Graph:
    """QuantizeLinear of a view, of a maximum or of a concatenation, before it."""
    uses, types = graph.uses(), dict(graph.types)
    producers = {node.output: node for node in graph.nodes}

    def is_seen_early(value: str) -> bool:
        producer = producers.get(value)
        return producer is not None and uses[value] == 1 and _moved_sources(producer, graph) != ()

    deferred: dict[str, Node] = {}
    backwards: list[Node] = []
    for node in reversed(graph.nodes):
        behind = deferred.pop(node.output, None)
        if node.op == QUANTIZE and _is_single(node, graph) and is_seen_early(node.inputs[0]):
            deferred[node.inputs[0]] = node
        elif behind is None:
            backwards.append(node)
        else:
            sources = _moved_sources(node, graph)
            dtype = types[behind.output].dtype
            before = []
            for place, value in enumerate(sources):
                stored, name = (f"{n}{JOINT}{place}" for n in (behind.output, behind.name))
                types[stored] = TensorType(dtype, graph.shape_of(value))
                inputs = (value, *behind.inputs[1:])
                before.append(replace(behind, name=name, inputs=inputs, outputs=(stored,)))
            bytewise = (*(each.output for each in before), *node.inputs[len(sources) :])
            backwards.append(replace(node, inputs=bytewise, outputs=behind.outputs))
            for each in before:
                if is_seen_early(each.inputs[0]):
                    deferred[each.inputs[0]] = each
                else:
                    backwards.append(each)
    return replace(graph, nodes=tuple(reversed(backwards)), types=types)


def _moved_sources(node: Node, graph: Graph) -> tuple[str, ...]:
    """What a view, a maximum or a concatenation sees of computed values; nothing of any other."""
    if node.op not in (*_VIEWS, *_CHOICES, "Concat"):
        return ()
    sources = node.inputs if node.op == "Concat" else node.inputs[:1]
    return () if any(value in graph.constants for value in sources) else sources


def _is_single(node: Node, graph: Graph) -> bool:
    known = parameters(node, graph)
    return known is not None and known.is_single


@dataclass
class _Mover:
    """Nodes so far; ``quantized`` has the DequantizeLinear of a value with its parameters,
    ``dynamic`` that of a value whose only scale and zero point the model computes."""

    graph: Graph
    types: dict[str, TensorType]
    constants: dict[str, Array]
    nodes: list[Node] = field(default_factory=list)
    quantized: dict[str, tuple[Node, Parameters]] = field(default_factory=dict)
    dynamic: dict[str, Node] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        """Append a node, or its equivalent on bytes."""
        found = [self.quantized.get(value) for value in node.inputs]
        first = found[0] if found else None
        if node.op == DEQUANTIZE:
            self._dequantize(node)
        elif node.op in _VIEWS and node.inputs[0] in self.dynamic:
            before = self.dynamic[node.inputs[0]]
            self._behind(node, (before.inputs[0],), before, None)
        elif first is None:
            self.nodes.append(node)
        elif node.op == QUANTIZE:
            self._quantize(node, *first)
        elif node.op in _MOVES and first[1].is_single:
            self._behind(node, (first[0].inputs[0],), *first)
        elif node.op == "Transpose" and self._is_along_axis(first[0]):
            self._transpose(node, *first)
        elif node.op == "Concat" and self._alike(found):
            sources = tuple(f[0].inputs[0] for f in found if f is not None)
            self._behind(node, sources, *first)
        elif node.op in _AVERAGES and first[1].is_single and self._is_average(node, first[1]):
            self._average(node, *first)
        else:
            self.nodes.append(node)

    def _dequantize(self, node: Node) -> None:
        graph = replace(self.graph, types=self.types)
        self.nodes.append(node)
        self._remember(node, node.output, parameters(node, graph))

    def _remember(self, node: Node, value: str, known: Parameters | None) -> None:
        if known is not None:
            self.quantized[value] = node, known
        elif all(self.graph.type_of(v).sizes in ((), (1,)) for v in filter(None, node.inputs[1:])):
            self.dynamic[value] = node

    def _quantize(self, node: Node, before: Node, known: Parameters) -> None:
        own = parameters(node, self.graph)
        dtype = self._dtype(before.inputs[0])
        if own is not None and own.equals(known) and dtype == self.graph.type_of(node.output).dtype:
            self.same[node.output] = before.inputs[0]
        else:
            self.nodes.append(node)

    def _alike(self, found: list[tuple[Node, Parameters] | None]) -> bool:
        pairs = [f for f in found if f is not None]
        return len(pairs) == len(found) and all(
            known.is_single
            and known.equals(pairs[0][1])
            and self._dtype(node.inputs[0]) == self._dtype(pairs[0][0].inputs[0])
            for node, known in pairs
        )

    def _behind(
        self, node: Node, sources: tuple[str, ...], before: Node, known: Parameters | None
    ) -> None:
        """The node on bytes, and the conversion of each of its results."""
        results = []
        for value in node.outputs:
            stored = f"{value}{JOINT}bytes" if value else ""
            results.append(stored)
            if value:
                self.types[stored] = TensorType(
                    self._dtype(before.inputs[0]), self.graph.shape_of(value)
                )
        inputs = (*sources, *node.inputs[len(sources) :])
        weights = self.constants.get(sources[0])
        if node.op == "Transpose" and weights is not None:
            self.constants[results[0]] = weights.transpose(_order(node, weights.ndim))
        else:
            self.nodes.append(replace(node, inputs=inputs, outputs=tuple(results)))
        for stored, value in zip(results, node.outputs, strict=True):
            if value:
                self._convert(before, stored, value, known)

    def _transpose(self, node: Node, before: Node, known: Parameters) -> None:
        """A transpose of bytes whose parameters vary along an axis."""
        rank = len(self.graph.shape_of(node.inputs[0]))
        axis = _order(node, rank).index(normal_axis(before.attrs.get("axis", 1), rank))
        moved = Parameters(*(_along(own, rank, axis) for own in (known.scale, known.zero_point)))
        self._behind(node, (before.inputs[0],), replace(before, attrs={"axis": axis}), moved)

    def _average(self, node: Node, before: Node, known: Parameters) -> None:
        """An average of integers is converted as they are."""
        value = node.output
        mean = f"{value}{JOINT}mean"
        self.types[mean] = self.graph.type_of(value)
        inputs = (before.inputs[0], *node.inputs[1:])
        self.nodes.append(replace(node, inputs=inputs, outputs=(mean,)))
        self._convert(before, mean, value, known)

    def _convert(self, before: Node, stored: str, value: str, known: Parameters | None) -> None:
        name = f"{before.name}{JOINT}{value}"
        attrs = {} if known is None or known.is_single else before.attrs
        inputs = (stored, *before.inputs[1:])
        node = replace(before, name=name, inputs=inputs, outputs=(value,), attrs=attrs)
        self.nodes.append(node)
        self._remember(node, value, known)

    def _is_along_axis(self, node: Node) -> bool:
        """Whether constant parameters are single or numbers along one axis."""
        given = [self.constants[value] for value in filter(None, node.inputs[1:])]
        return all(own.ndim < 2 for own in given) and not node.attrs.get("block_size", 0)

    def _is_average(self, node: Node, known: Parameters) -> bool:
        """Whether each result is the average of elements, none of which is padding that counts."""
        if self.graph.shape_of(node.inputs[0])[2:] == () or node.op == "ReduceMean":
            return node.op == "ReduceMean"
        window = pooling_window(Scope(node, self.graph))
        padded = any(window.padding_l) or any(window.padding_r)
        includes = bool(node.attrs.get("count_include_pad", 0))
        return not (padded and includes and known.zero_point.any())

    def _dtype(self, value: str) -> np.dtype[np.generic]:
        return replace(self.graph, types=self.types).type_of(value).dtype


def _order(node: Node, rank: int) -> tuple[int, ...]:
    """The axes of the source of a Transpose in the order of its result."""
    return tuple(node.attrs.get("perm") or range(rank)[::-1])


def _along(numbers: Float64, rank: int, axis: int) -> Float64:
    """Numbers along an axis in the shape in which they are broadcast."""
    return numbers.reshape(aligned_shape((numbers.size,), rank, axis))


def prefer_unsigned(graph: Graph) -> Graph:
    """Signed bytes that the model computes as unsigned ones, where only conversions and what moves
    elements see them: processors multiply unsigned by signed bytes, and what a Relu leaves has the
    zero point 0 then, which costs nothing."""
    signed = _flexible(graph)
    if not signed:
        return graph
    types, constants = dict(graph.types), dict(graph.constants)
    unsigned = np.dtype(np.uint8)
    for value in signed:
        types[value] = replace(types[value], dtype=unsigned)
    nodes = []
    for node in graph.nodes:
        stored = {QUANTIZE: node.output, DEQUANTIZE: node.inputs[0]}.get(node.op, "")
        if stored in signed:
            zero = constants[node.inputs[2]] if node.input(2) else np.zeros((), np.int8)
            name = f"{node.name}{JOINT}zero"
            constants[name] = (zero.astype(np.int16) + HALF_RANGE).astype(unsigned)
            nodes.append(replace(node, inputs=(*node.inputs[:2], name)))
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), types=types, constants=constants).pruned()


def _flexible(graph: Graph) -> set[str]:
    """Signed bytes out of a QuantizeLinear that nothing but a DequantizeLinear sees as such."""
    readers: dict[str, list[Node]] = defaultdict(list)
    producers: dict[str, Node] = {}
    for node in graph.nodes:
        producers.update(dict.fromkeys(node.outputs, node))
        for value in node.reads:
            readers[value].append(node)
    moves = _MOVES | {"Concat"}
    found = {
        value
        for value, kind in graph.types.items()
        if kind.dtype == np.int8
        and value in producers
        and producers[value].op in moves | {QUANTIZE}
        and value not in graph.outputs.values()
    }

    def zero_is_known(node: Node) -> bool:
        return not node.input(2) or node.input(2) in graph.constants

    def stays(value: str) -> bool:
        producer = producers[value]
        data = producer.inputs if producer.op == "Concat" else producer.inputs[:1]
        if producer.op == QUANTIZE:
            fits = zero_is_known(producer)
        else:
            fits = found.issuperset(data)
        return fits and all(
            (node.op == DEQUANTIZE and zero_is_known(node))
            or (node.op in moves and found.issuperset(filter(None, node.outputs)))
            for node in readers[value]
        )

    return _largest(found, stays)


def _largest(found: set[str], stays: Callable[[str], bool]) -> set[str]:
    """What is left when everything is gone that does not stay."""
    while True:
        gone = {value for value in found if not stays(value)}
        if not gone:
            return found
        found -= gone
