"""Weights of recurrent layers that are bytes, as floats where a layer would only convert them.

A layer multiplies bytes as they are where the processor has instructions for it and its states have
a bound. Others convert them to f32 in each step, for every few rows. That is faster where floats
would not stay in the caches: bytes take a fourth of the time that memory takes to deliver them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dnnl.graph.graph import JOINT, Array, Graph, Node, TensorType
from dnnl.operators.recurrent import RECURRENT, STORED_WEIGHTS
from dnnl.types.cell_functions import are_bounded
from dnnl.types.kinds import Alg

CACHED = 2**20
"""The bytes of the floats of a direction that stay in the caches of a core. With more of them an
LSTM of one row was 1.2 (320 units) to 3.5 times (512 units) as fast with bytes that it converts;
with fewer, at most as fast."""
_F32, _S8 = np.dtype(np.float32), np.dtype(np.int8)


def weights_as_floats(graph: Graph, *, in_pairs: bool) -> Graph:
    """The graph without weights of bytes that are slower to read than floats. ``in_pairs`` says
    that layers with bounded states, whose weights are all bytes, multiply them as they are."""
    types, constants = dict(graph.types), dict(graph.constants)
    nodes = list[Node]()
    for node in graph.nodes:
        if node.op != RECURRENT or (in_pairs and _is_paired(node, graph)):
            nodes.append(node)
            continue
        sources = list(node.inputs)
        for weights, *parameters in STORED_WEIGHTS:
            value = sources[weights]
            floats = _small_floats(graph, value, [sources[place] for place in parameters])
            if floats is None:
                continue
            kind = graph.type_of(sources[0]).dtype
            sources[weights] = name = f"{node.name}{JOINT}floats{weights}"
            constants[name] = floats.astype(kind)
            types[name] = TensorType(kind, floats.shape)
            for place in parameters:
                sources[place] = ""
        nodes.append(replace(node, inputs=tuple(sources)))
    return replace(graph, nodes=tuple(nodes), types=types, constants=constants).pruned()


def _is_paired(node: Node, graph: Graph) -> bool:
    """Whether a layer multiplies pairs of bytes, if any does."""
    kinds = {graph.type_of(node.inputs[weights]).dtype for weights, *_ in STORED_WEIGHTS}
    activation = node.attrs["activation"]
    own = None if activation is None else Alg[activation]
    return kinds == {_S8} and are_bounded(node.attrs["functions"], own)


def _small_floats(graph: Graph, value: str, parameters: list[str]) -> Array | None:
    """The floats [D, inputs, gates, H] that bytes stand for, unless these are none or many."""
    integers = graph.constants.get(value)
    if integers is None or integers.dtype != _S8:
        return None
    if _F32.itemsize * integers.size // max(1, integers.shape[0]) > CACHED:
        return None
    scale, zero = (
        graph.constants[name][0].astype(np.float64) if name else float(usual)
        for name, usual in zip(parameters, (1, 0), strict=True)
    )
    return np.asarray(((integers - zero) * scale).astype(_F32))
