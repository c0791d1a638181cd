"""Whether a quantized model agrees with a peer, layer by layer.

A sum between two steps of a quantization may be rounded to either, as the last digit of a
float decides; a network of many layers makes a large difference of one such rounding, and no two
implementations agree at its end. So each layer is given the peer's own bytes, and what it makes of
them is compared with the peer's next ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from dnnl.framework import Model
from dnnl.graph.graph import JOINT, Array, Graph, Node, TensorType
from dnnl.operators.quantization import BYTES
from dnnl.operators.quantized import FORMS
from dnnl.operators.table import row_name
from dnnl.runtime.engine import Engine
from dnnl.tools.difference import Difference, compare
from dnnl.tools.peer_onnxruntime import OnnxRuntime

SHARE = 1e-3
"""The part of a model's bytes that may be one step off: as many are so near to the middle between
two steps that the order of three roundings of f32 decides."""


_PRODUCTS = ("Conv", "Gemm", "MatMul")
_WEIGHTS = {
    **{name: (3, 5) for name, form in FORMS.items() if form.op in _PRODUCTS},
    **dict.fromkeys(("ConvInteger", "MatMulInteger"), (1, 3)),
}
"""The places of weights and of their zero points, by operators."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How many bytes of all layers differ, by how much at most, and in which value most."""

    values: int
    elements: int
    off: int
    most: int
    worst: str

    @property
    def is_equal(self) -> bool:
        """Whether differences are single roundings."""
        return self.most <= 1 and self.off <= SHARE * self.elements

    def __str__(self) -> str:
        text = f"{self.values} quantized values, each from the peer's own"
        text += f": {self.off} of {self.elements} elements differ"
        return f"{text}, by {self.most} at most ({self.worst!r})" if self.off else text


def quantized_values(graph: Graph) -> dict[str, TensorType]:
    """The bytes that a graph of known sizes computes, by name; none of a model in parts, whose
    types show when it runs."""
    results = (value for node in graph.nodes for value in node.outputs if value in graph.types)
    types = ((value, graph.types[value]) for value in results)
    return {value: kind for value, kind in types if kind.dtype in BYTES and prod(kind.sizes) > 1}


def compare_layers(
    model: Model,
    feeds: Mapping[str, Array],
    num_threads: int,
    layout: str,
    engine: Engine | None = None,
) -> tuple[Steps, list[Difference]]:
    """A model whose sizes are known against ONNX Runtime: its bytes, and its results.

    ONNX Runtime fuses nothing here: its softmax of bytes is off by a step in a tenth of the
    elements where the scale of the result is 1 / 255. It reads weights of u8, whose products it
    adds up exactly on every processor.
    """
    graph = model.graph
    values = quantized_values(graph)
    shown = unsigned(replace(graph, outputs={**graph.outputs, **{v: v for v in values}}))
    theirs = OnnxRuntime(Model(shown).to_onnx(), num_threads, fused=False).run(feeds)
    session = Model(cut(graph)).compile(engine, num_threads=num_threads, layout=layout)
    given = {**feeds, **{_given(value): theirs[value] for value in values}}
    ours = session.run({name: given[name] for name in session.inputs})
    outputs = [compare(name, ours[name], theirs[name]) for name in graph.outputs]
    return _steps({value: (ours[value], theirs[value]) for value in values}), outputs


def cut(graph: Graph) -> Graph:
    """The graph whose bytes are results, and inputs for those who read them."""
    values = quantized_values(graph)

    def reading(node: Node) -> Node:
        return replace(node, inputs=tuple(_given(v) if v in values else v for v in node.inputs))

    inputs = {_given(value): kind for value, kind in values.items()}
    outputs = {name: _given(v) if v in values else v for name, v in graph.outputs.items()}
    return replace(
        graph,
        nodes=tuple(map(reading, graph.nodes)),
        inputs={**graph.inputs, **inputs},
        outputs={**outputs, **{value: value for value in values}},
    )


def unsigned(graph: Graph) -> Graph:
    """The graph whose products of u8 have no constant weights of s8: they and their zero points are
    128 more in u8. Without VNNI, ONNX Runtime adds products of u8 and s8 up in 16 bits, which
    saturate."""
    constants = dict(graph.constants)

    def shifted(name: str) -> str:
        made = f"{name}{JOINT}u8"
        stored = graph.constants[name] if name else np.int8(0)
        constants[made] = (np.asarray(stored, np.int16) + 128).astype(np.uint8)
        return made

    def of(node: Node) -> Node:
        if row_name(node) not in _WEIGHTS:
            return node
        weights, zeros = _WEIGHTS[row_name(node)]
        given = [node.input(place) for place in (weights, zeros)]
        src, stored = (graph.type_of(name).dtype for name in (node.input(0), given[0]))
        constant = all(name in graph.constants for name in filter(None, given))
        if src != np.uint8 or stored != np.int8 or not constant:
            return node
        inputs = [*node.inputs, *[""] * (zeros + 1 - len(node.inputs))]
        inputs[weights], inputs[zeros] = map(shifted, given)
        return replace(node, inputs=tuple(inputs))

    return replace(graph, nodes=tuple(map(of, graph.nodes)), constants=constants)


def _given(value: str) -> str:
    return f"{value}{JOINT}given"


def _steps(pairs: Mapping[str, tuple[Array, Array]]) -> Steps:
    off, most, worst = 0, 0, ""
    for value, (ours, theirs) in pairs.items():
        difference = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
        off += int(np.count_nonzero(difference))
        if difference.max() > most:
            most, worst = int(difference.max()), value
    return Steps(len(pairs), sum(theirs.size for _, theirs in pairs.values()), off, most, worst)
