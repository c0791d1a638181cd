"""Products of values whose scales the model computes: products of integers, scaled behind them.

Dynamic quantization between DequantizeLinear nodes becomes what ConvInteger and MatMulInteger,
a Cast and a Mul say of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dnnl.graph.graph import JOINT, Array, Graph, Node, Shape, TensorType, blamed_on
from dnnl.operators.quantization import (
    BYTES,
    DEQUANTIZE,
    INTEGER_PRODUCTS,
    Parameters,
    parameters,
)
from dnnl.passes.quantized.conversions import is_quantized

_FLOAT, _SUM = np.dtype(np.float32), np.dtype(np.int32)
_INTEGERS = {op: name for name, op in INTEGER_PRODUCTS.items()} | {"Gemm": "MatMulInteger"}
_OF_MATRICES = ("alpha", "beta", "transA", "transB")


def scale_behind_products(graph: Graph) -> Graph:
    """The graph with such products."""
    if not is_quantized(graph):
        return graph
    rewriter = _Rewriter(graph, dict(graph.types), dict(graph.constants))
    for node in graph.nodes:
        with blamed_on(node):
            if not rewriter.rewrites(node):
                rewriter.nodes.append(node)
    return replace(
        graph,
        nodes=tuple(rewriter.nodes),
        types=rewriter.types,
        constants=rewriter.constants,
    ).pruned()


@dataclass
class _Rewriter:
    """Nodes so far."""

    graph: Graph
    types: dict[str, TensorType]
    constants: dict[str, Array]
    nodes: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sources = {node.output: node for node in self.graph.nodes if node.op == DEQUANTIZE}

    def rewrites(self, node: Node) -> bool:
        """Append what a product with a computed scale of src is; False for any other node."""
        src, weights = (self.sources.get(node.input(place)) for place in (0, 1))
        if node.op not in _INTEGERS or src is None or weights is None:
            return False
        known, channels = parameters(weights, self.graph), self._channels(node)
        bias = self.graph.constants.get(node.input(2)) if node.input(2) else None
        fits = (
            self._is_single(src)
            and known is not None
            and channels != ()
            and self.graph.type_of(node.output).dtype == _FLOAT
            and self._is_along_columns(node, known, channels)
            and all(self.graph.type_of(own.inputs[0]).dtype in BYTES for own in (src, weights))
            and (bias is not None or not node.input(2))
            and not any(node.attrs.get(name, 0) for name in ("transA", "transB"))
        )
        if fits and known is not None:
            self._write(node, src, weights, known, bias)
        return fits

    def _is_single(self, src: Node) -> bool:
        """Whether a conversion has one scale that the model computes."""
        given = [self.graph.type_of(value).sizes for value in filter(None, src.inputs[1:])]
        computed = src.inputs[1] not in self.graph.constants
        return computed and all(shape in ((), (1,)) for shape in given)

    def _channels(self, node: Node) -> Shape:
        """The shape of one number for each channel of a result, as it is broadcast."""
        shape = self.graph.shape_of(node.output)
        return (shape[1], *(1,) * (len(shape) - 2)) if node.op == "Conv" else shape[-1:]

    def _is_along_columns(self, node: Node, known: Parameters, channels: Shape) -> bool:
        """Whether the parameters of weights are single, or one for each channel."""
        rank = len(self.graph.shape_of(node.inputs[1]))
        axis = 0 if node.op == "Conv" else rank - 1
        return all(
            own.size == 1 or (own.ndim == rank > 1 and own.size == own.shape[axis] == channels[0])
            for own in (known.scale, known.zero_point)
        )

    def _write(
        self, node: Node, src: Node, weights: Node, known: Parameters, bias: Array | None
    ) -> None:
        shape, channels = self.graph.shape_of(node.output), self._channels(node)
        zeros = [own.input(2) for own in (src, weights)]
        attrs = {name: own for name, own in node.attrs.items() if name not in _OF_MATRICES}
        integers = (src.inputs[0], weights.inputs[0], *zeros)
        product = replace(node, op=_INTEGERS[node.op], inputs=integers, outputs=("",), attrs=attrs)
        sums = self._add(product, "sums", shape, _SUM)
        real = self._add(self._node(node, "Cast", (sums,), to=_FLOAT), "real", shape, _FLOAT)
        unit = known.scale.ravel() * node.attrs.get("alpha", 1.0)
        row = self._constant(node, "unit", unit if unit.size == 1 else unit.reshape(channels))
        factors = (row, src.inputs[1])
        size = (1,) if unit.size == 1 else channels
        scale = self._add(self._node(node, "Mul", factors), "scale", size, _FLOAT)
        last = self._node(node, "Mul", (real, scale))
        if bias is not None:
            scaled = self._add(last, "scaled", shape, _FLOAT)
            term = bias.astype(np.float64) * node.attrs.get("beta", 1.0)
            shaped = term.reshape(channels) if node.op == "Conv" else term
            last = self._node(node, "Add", (scaled, self._constant(node, "bias", shaped)))
        self.nodes.append(replace(last, outputs=node.outputs))

    @staticmethod
    def _node(node: Node, op: str, inputs: tuple[str, ...], **attrs: np.dtype) -> Node:
        return Node(op, node.name, inputs, ("",), attrs)

    def _add(self, node: Node, what: str, shape: Shape, dtype: np.dtype) -> str:
        """Append a node and return its result."""
        value = f"{node.name}{JOINT}{what}"
        self.types[value] = TensorType(dtype, shape)
        self.nodes.append(replace(node, name=value, outputs=(value,)))
        return value

    def _constant(self, node: Node, what: str, values: Array) -> str:
        name = f"{node.name}{JOINT}{what}"
        self.constants[name] = values.astype(np.float32)
        return name
