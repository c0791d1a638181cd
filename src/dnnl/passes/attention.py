"""Attention as one node: a product, a softmax of it, and the product of that with values.

    MatMul(queries, transposed keys), times a factor, plus a mask -> Softmax -> MatMul(.., values)

It is faster than three steps, since scores stay in caches, and those that a causal mask excludes
are not computed. A single query row is left as it is: a step computes with whole vectors of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dnnl.graph.graph import EXACT, REAL, Array, Graph, Node, PostOp, Shape
from dnnl.graph.scope import normal_axis
from dnnl.graph.sizes import same_shape
from dnnl.operators.fused_attention import ATTENTION, fits, heads_of
from dnnl.operators.softmax import MASKED_SOFTMAX
from dnnl.types.dtype import DataType
from dnnl.types.expression import Expression, Step
from dnnl.types.size import is_known, surely_equal

_FEW = 4
_EXCLUDED = -1e30
"""What is added to scores that no row takes, at most: nothing is left of their exponentials."""
_WITHOUT_NAN = Expression(
    1,
    (
        Step("parameter", detail="0"),
        Step("eq", (0, 0)),
        Step("not", (1,)),
        Step("constant", detail=(0.0).hex()),
        Step("where", (2, 3, 0)),
    ),
)
"""Zeros for NaN: what exporters write behind a softmax whose rows may have no key."""
_UP_TO = Expression(
    2,
    (
        Step("parameter", detail="0", data_type=DataType.s64),
        Step("parameter", detail="1", data_type=DataType.s64),
        Step("le", (0, 1), data_type=DataType.boolean),
        Step("constant", detail=(0.0).hex(), data_type=DataType.f32),
        Step("constant", detail=(-np.inf).hex(), data_type=DataType.f32),
        Step("where", (2, 3, 4), data_type=DataType.f32),
    ),
)
"""The mask that expansions of causal operators compute of the numbers of keys and of rows."""


def attention_in_one(graph: Graph, types: Collection[DataType]) -> Graph:
    """The graph with each attention of some types of floats as one node."""
    uses, kinds = graph.uses(), {kind.numpy for kind in types}
    made = {node.output: node for node in graph.nodes if uses[node.output] == 1}
    nodes = tuple(_fused(node, graph, made, kinds) or node for node in graph.nodes)
    return replace(graph, nodes=nodes).pruned()


@dataclass(frozen=True)
class _Scores:
    """What is done with the product of queries and keys; ``mask`` is the shape of ``added`` in four
    dimensions."""

    scale: float = 1.0
    masking: str = "none"
    added: str = ""
    mask: Shape = ()


def _fused(
    node: Node, graph: Graph, made: Mapping[str, Node], kinds: Collection[np.dtype[Any]]
) -> Node | None:
    """The node that computes what this product of an attention does, None for others."""
    if node.op != "MatMul" or node.domain or node.post_ops:
        return None
    softmax = made.get(node.inputs[0])
    if softmax is None or not _is_along_keys(softmax, graph):
        return None
    product = made.get(softmax.inputs[0])
    if product is None or product.op != "MatMul" or product.domain:
        return None
    sources = (*product.inputs, node.inputs[1])
    found = {graph.type_of(value).dtype for value in sources}
    if len(found) > 1 or not found <= set(kinds) or graph.type_of(node.output).dtype not in REAL:
        return None
    query, key, value = (graph.shape_of(source) for source in sources)
    leads = heads_of(query, key)
    if leads is None or len(value) < 2 or not same_shape(value[:-2], key[:-2]):
        return None
    few = is_known(query[-2]) and query[-2] < _FEW
    if few or not fits(query, value):
        return None
    scores = _scores(product, graph, (*query[:-1], key[-1]), leads[0])
    if scores is None:
        return None
    is_zero = softmax.op == MASKED_SOFTMAX or bool(softmax.post_ops)
    attrs = {
        "scale": scores.scale, "masking": scores.masking, "mask": scores.mask,
        "masked_rows": "zero" if is_zero else "nan",
    }  # fmt: skip
    inputs = (*sources, scores.added) if scores.added else sources
    fused = (product.name, *product.fused, softmax.name, *softmax.fused, *node.fused)
    return Node(ATTENTION, node.name, inputs, node.outputs, attrs, fused=fused)


def _is_along_keys(node: Node, graph: Graph) -> bool:
    """Whether a node is a softmax along the last axis, perhaps with zeros for NaN."""
    rank = len(graph.shape_of(node.output))
    if node.op not in ("Softmax", MASKED_SOFTMAX) or node.domain:
        return False
    axis = normal_axis(node.attrs.get("axis", 1 if graph.opset < 13 else -1), rank)
    functions = [post_op.function for post_op in node.post_ops]
    plain = all(own is not None and own.expression == _WITHOUT_NAN for own in functions)
    return axis == rank - 1 and plain and len(functions) <= 1


def _scores(product: Node, graph: Graph, shape: Shape, lead: Shape) -> _Scores | None:
    """What the post-ops of a product of queries and keys do, None where they do more than that."""
    found = _Scores()
    first, *others = (*product.post_ops, PostOp(""))
    if first.alg == "eltwise_linear" and not first.beta:
        found = replace(found, scale=first.alpha)
    else:
        others.insert(0, first)
    for post_op in others[:-1]:
        if post_op.alg != "binary_add":
            return None
        (value,) = post_op.operands
        if graph.type_of(value).dtype not in REAL:
            return None
        own = graph.shape_of(value)
        own = (1,) * (len(shape) - len(own)) + own
        masking = _masking(graph.constants.get(value), own) or _computed(value, graph, own)
        mask = _of_four(own, shape, lead)
        if masking is not None:
            if len({masking, found.masking} - {"none"}) > 1:
                return None
            found = replace(found, masking=masking if found.masking == "none" else found.masking)
        elif found.added or mask is None:
            return None
        else:
            found = replace(found, added=value, mask=mask)
    return found


def _masking(constant: Array | None, shape: Shape) -> str | None:
    """What a mask of constants does: nothing, or exclude the keys behind a row."""
    if constant is None:
        return None
    if not constant.any():
        return "none"
    rows, keys = shape[-2:]
    if constant.size != rows * keys or keys < rows:
        return None
    matrix = constant.reshape(rows, keys)
    taken = matrix == 0
    if not (taken | (matrix <= _EXCLUDED)).all():
        return None
    return next(_matching(taken), None)


def _computed(value: str, graph: Graph, shape: Shape) -> str | None:
    """What a mask does that is computed of the numbers of keys and rows."""
    made = {node.output: node for node in graph.nodes}
    node = made.get(value)
    if node is None or node.op != EXACT or node.attrs["function"].expression != _UP_TO:
        return None
    rows, keys = shape[-2:]
    column = made.get(node.inputs[1])
    first = _first(made.get(node.inputs[0]), graph)
    second = None if column is None else _first(made.get(column.inputs[0]), graph)
    if first is None or second is None or not surely_equal(first, 0):
        return None
    if surely_equal(second, 0):
        return "causal"
    return "causal_last" if surely_equal(second, keys - rows) else None


def _first(node: Node | None, graph: Graph) -> int | None:
    """The first of the integers that a node counts by one."""
    if node is None or node.op != "Range":
        return None
    first, _, step = (graph.constants.get(value) for value in node.inputs)
    if first is None or step is None or step.item() != 1:
        return None
    found: int = first.item()
    return found


def _matching(taken: Array) -> Iterator[str]:
    rows, keys = taken.shape
    for name, more in (("causal", 0), ("causal_last", keys - rows)):
        if np.array_equal(taken, np.tri(rows, keys, more, dtype=np.bool_)):
            yield name


def _of_four(mask: Shape, shape: Shape, lead: Shape) -> Shape | None:
    """The dimensions of a mask beside those of scores of [batch, heads, rows, keys]."""
    *outer, rows, keys = mask
    if len(shape) <= len(lead) + 2:
        return (*(1,) * (2 - len(outer)), *outer, rows, keys)
    batch, *heads = outer
    if same_shape(heads, (1,) * len(heads)):
        return (batch, 1, rows, keys)
    return (batch, lead[1], rows, keys) if same_shape(heads, shape[1:-2]) else None
