"""FlexAttention: attention with subgraphs that modify its scores and probabilities.

The subgraphs need type inference as a model does. So the node is replaced, with the subgraphs
inlined, when its sizes are known and before types are inferred.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dnnl.graph.branches import spliced
from dnnl.graph.graph import JOINT, Branch, Graph, ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.operators.attention import FLOATS
from dnnl.operators.operator import Operator
from dnnl.types.dtype import DataType

_NAME, _DOMAIN = "FlexAttention", "ai.onnx.preview"
_F32 = np.dtype(np.float32)
_PRECISIONS = {
    1: _F32,
    10: DataType.f16.numpy,
    11: DataType.f64.numpy,
    16: DataType.bf16.numpy,
}
"""The types of ``softmax_precision``, by ONNX's codes."""


def _infer(scope: Scope) -> list[TensorType]:
    """[batch, heads, rows, size of values], in the type of the values."""
    query, key, value = (scope.shape(place) for place in range(3))
    if {len(query), len(key), len(value)} != {4}:
        raise ModelError(f"sources {query}, {key} and {value} must have 4 dimensions each")
    if query[0] != key[0] or key[:3] != value[:3] or query[3] != key[3]:
        raise ModelError(f"queries {query}, keys {key} and values {value} do not fit each other")
    if not key[1] or query[1] % key[1]:
        raise ModelError(f"{query[1]} heads of queries are no multiple of {key[1]} heads of keys")
    for place in range(3):
        if scope.type(place).dtype not in FLOATS:
            raise ModelError(f"input {place} has elements of {scope.type(place).dtype}, no floats")
    if scope.attr("softmax_precision", 1) not in _PRECISIONS:
        code = scope.attr("softmax_precision")
        raise ModelError(f"attribute 'softmax_precision' = {code} is no type of floats")
    return [TensorType(scope.type(2).dtype, (*query[:3], value[3]))]


def inlined(node: Node, graph: Graph) -> Writer | None:
    """The writer of the nodes and constants that replace a FlexAttention; None for other nodes."""
    if (node.op, node.domain) != (_NAME, _DOMAIN):
        return None
    scope = Scope(node, graph)
    (result,) = _infer(scope)
    writer = Writer(node, graph)
    given = scope.type().dtype
    computed = np.dtype(np.float64) if given == np.float64 else _F32
    if "softmax_precision" in node.attrs:
        computed = _PRECISIONS[scope.attr("softmax_precision")]
    query, key, value = (scope.shape(place) for place in range(3))
    batch, heads, rows, depth = query
    shared, columns, width = key[1], key[2], value[3]
    outer, single = (batch, shared, heads // shared), (batch, shared, 1)
    scores = (batch, heads, rows, columns)

    def converted(value: str, dtype: np.dtype, shape: Shape) -> str:
        if writer.type_of(value).dtype == dtype:
            return value
        return writer.add("Cast", (value,), shape, {"to": dtype}, dtype)

    def reshaped(value: str, shape: Shape) -> str:
        return writer.add("Reshape", (value, writer.sizes(shape)), shape, dtype=computed)

    def seen(place: int, shape: Shape) -> str:
        return reshaped(converted(node.inputs[place], computed, scope.shape(place)), shape)

    queries = seen(0, (*outer, rows, depth))
    perm = {"perm": (0, 1, 2, 4, 3)}
    keys = seen(1, (*single, columns, depth))
    keys = writer.add("Transpose", (keys,), (*single, depth, columns), perm, computed)
    products = writer.add("MatMul", (queries, keys), (*outer, rows, columns), dtype=computed)
    factor = writer.constant(scope.attr("scale", depth**-0.5), computed)
    products = writer.add("Mul", (products, factor), (*outer, rows, columns), dtype=computed)
    products = reshaped(products, scores)
    products = _changed(writer, "score_mod", products)
    chosen = writer.add("Softmax", (products,), scores, {"axis": 3}, computed)
    chosen = _changed(writer, "prob_mod", chosen)
    chosen = reshaped(chosen, (*outer, rows, columns))
    values = seen(2, (*single, columns, width))
    found = writer.add("MatMul", (chosen, values), (*outer, rows, width), dtype=computed)
    found = reshaped(found, result.sizes)
    converted(found, result.dtype, result.sizes)
    writer.finish()
    return writer


def _changed(writer: Writer, name: str, value: str) -> str:
    """The result of subgraph ``name`` for a value; the value itself if the node has none."""
    body, node = writer.node.attrs.get(name), writer.node
    if body is None:
        return value
    if not isinstance(body, Branch) or len(body.inputs) != 1 or len(body.outputs) != 1:
        raise ModelError(f"attribute {name!r} is no graph of one input and one output")
    prefix = f"{node.name}{JOINT}{name}"
    result = f"{prefix}{JOINT}result"
    nodes, constants = spliced(body, prefix, dict.fromkeys(body.inputs, value), (result,))
    writer.nodes += nodes
    writer.constants.update(constants)
    writer.types[result] = writer.types[value]
    return result


OPERATORS: Mapping[str, Operator] = {f"{_DOMAIN}.{_NAME}": Operator(_infer, inputs=(3, None))}
