"""Replaces small types by the bytes that store them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.graph.graph import EXACT, JOINT, Array, Graph, Node, TensorType
from dnnl.operators.operator import Role
from dnnl.operators.small_types import SMALL
from dnnl.operators.table import operator_of

_BYTE = np.dtype(np.uint8)
_BITCAST = "BitCast"
_CARRY = frozenset({"Dropout", "Identity", _BITCAST, EXACT})
"""Further operators that take bytes of small types; functions (EXACT) were written for them."""


def as_bytes(graph: Graph) -> Graph:
    """The graph with u8 in place of small types, except for its inputs and outputs.

    Raises Unimplemented for a node with arithmetic in a small type.
    """
    values = {*graph.inputs, *graph.types, *graph.constants}
    small = {value for value in values if graph.type_of(value).dtype in SMALL}
    if not small:
        return graph
    for node in graph.nodes:
        _check_carried(node, graph, small.intersection((*node.reads, *node.outputs)))
    shown = {*graph.inputs, *graph.outputs.values()}.intersection(small)
    names = {value: f"{value}{JOINT}bytes" for value in shown}
    produced = {value for node in graph.nodes for value in node.outputs}
    before = [_view(value, names[value], value) for value in shown - produced]
    behind = [_view(names[value], value, value) for value in shown & produced]
    types, constants = dict(graph.types), dict[str, Array]()
    for value in small:
        name = names.get(value, value)
        types[name] = TensorType(_BYTE, graph.type_of(value).shape)
    for value, array in graph.constants.items():
        constants[value] = array.view(_BYTE) if value in small - shown else array
    nodes = [
        replace(
            node,
            inputs=tuple(names.get(v, v) for v in node.inputs),
            outputs=tuple(names.get(v, v) for v in node.outputs),
        )
        for node in graph.nodes
    ]
    return replace(
        graph, nodes=(*before, *nodes, *behind), types=types, constants=constants
    ).pruned()


def _view(source: str, result: str, value: str) -> Node:
    return Node(_BITCAST, f"{value}{JOINT}view", (source,), (result,))


def _check_carried(node: Node, graph: Graph, small: Iterable[str]) -> None:
    if node.op in _CARRY or operator_of(node).role is Role.MOVED:
        return
    for value in small:
        dtype = graph.type_of(value).dtype
        rule = f"{dtype} is moved and converted, not computed with: Cast makes float32 of it"
        raise Unimplemented(f"{node}: {rule}")
