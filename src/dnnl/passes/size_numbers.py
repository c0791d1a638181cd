"""Sizes that only a run knows, as data of a node: numbers in a tensor, which a run writes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dnnl.graph.graph import JOINT, Array, Graph, Node, TensorType
from dnnl.graph.sizes import fixed, is_open
from dnnl.onnx.evaluate import evaluate
from dnnl.passes.constants import OPEN_SOURCES

_COMPUTED = frozenset(
    (
        *("Abs", "Add", "Cast", "Concat", "Div", "Equal", "Expand", "Gather", "Greater"),
        *("GreaterOrEqual", "GroupQueryAttention", "Less", "LessOrEqual", "Max", "Min", "Mod"),
        *("Mul", "Neg", "Pow", "Reshape", "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where"),
    )
)
"""Operators all of whose other sources are data: they take sizes as what a run has written."""


def with_numbers(
    node: Node,
    graph: Graph,
    constants: dict[str, Array],
    types: dict[str, TensorType],
    produced: set[str],
) -> list[Node]:
    """What stands for a node whose data are sizes that only a run knows: nodes that have these as
    numbers, and the node that reads them. Empty if there are no such sizes, or if an operator has
    to know them: then a guard makes the typical numbers the only ones."""
    if node.op == "ConstantOfShape":
        name = f"{node.output}{JOINT}number"
        one = evaluate(node, {node.inputs[0]: np.array([1])}, graph.opset)
        constants[name] = one[node.output].reshape(())
        return [replace(node, op="Expand", inputs=(name, node.inputs[0]), attrs={})]
    made, names = list[Node](), dict[str, str]()
    for place, value in enumerate(node.inputs):
        if place in OPEN_SOURCES.get(node.op, ()) or not is_open(graph.constants.get(value)):
            continue
        if node.op not in _COMPUTED:
            constants[value] = fixed(value, graph)
        elif value not in names:
            names[value] = f"{value}{JOINT}written"
            if names[value] not in produced:
                produced.add(names[value])
                made += _numbers(value, names[value], graph, constants, types)
    inputs = tuple(names.get(value, value) for value in node.inputs)
    return [*made, replace(node, inputs=inputs)] if names else []


def _numbers(
    value: str,
    name: str,
    graph: Graph,
    constants: dict[str, Array],
    types: dict[str, TensorType],
) -> list[Node]:
    """Nodes whose last one has the sizes of a constant as numbers: each is a Range of one."""
    kind, nodes = graph.type_of(value), list[Node]()
    one, shape = f"{name}{JOINT}step", f"{name}{JOINT}shape"
    constants[one] = np.array(1, kind.dtype)
    constants[shape] = np.array(kind.sizes, np.int64)
    for place, size in enumerate(graph.constants[value].ravel()):
        ends = [f"{name}{JOINT}{place}{which}" for which in ("from", "to")]
        for end, number in zip(ends, (size, size + 1), strict=True):
            constants[end] = np.array([number, None], object)[:1].reshape(())
            types[end] = TensorType(kind.dtype, ())
        result = f"{name}{JOINT}{place}"
        types[result] = TensorType(kind.dtype, (1,))
        nodes.append(Node("Range", result, (*ends, one), (result,)))
    if len(nodes) > 1:
        parts, whole = tuple(node.output for node in nodes), f"{name}{JOINT}all"
        types[whole] = TensorType(kind.dtype, (len(parts),))
        nodes.append(Node("Concat", whole, parts, (whole,), {"axis": 0}))
    types[name] = kind
    nodes.append(Node("Reshape", name, (nodes[-1].output, shape), (name,)))
    return nodes
