"""Attention as one primitive: what a pass makes of two products and a softmax."""

from __future__ import annotations

from collections.abc import Mapping

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import Node, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import broadcast
from dnnl.lowering.facts import Source, amount
from dnnl.lowering.graphs import FORWARD, Lowering
from dnnl.operators.operator import Operator, Role
from dnnl.primitives.attention import MOST_ELEMENTS, AttentionDesc
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known

ATTENTION = "dnnl.Attention"
"""softmax(scale * query key + mask) value, of queries [.., L, E], transposed keys [.., E, S] and
values [.., S, V]; an operator of passes, which no file can hold."""
_ARGUMENTS = Arg.SRC_0, Arg.SRC_1, Arg.SRC_2, Arg.SRC_3
_RANK = 4
_GROUPED = 5


def heads_of(query: Shape, served: Shape) -> tuple[Shape, Shape] | None:
    """The leading dimensions of queries, and of keys and values, as batch and heads: with a third
    one that only queries have, it is that of the heads that one serves. None for others."""
    if len(query) < 2 or len(query) != len(served):
        return None
    *outer, _, _ = query
    *others, _, _ = served
    if len(query) == _GROUPED and others[2] == 1 and outer[:2] == others[:2]:
        return (outer[0], outer[1] * outer[2]), (outer[0], outer[1])
    if len(query) > _RANK or outer != others:
        return None
    lead = (1,) * (2 - len(outer)) + tuple(outer)
    return lead, lead


def fits(query: Shape, value: Shape) -> bool:
    """Whether the primitive takes rows of so many elements."""
    return all(is_known(size) and size <= MOST_ELEMENTS for size in (query[-1], value[-1]))


def _infer(scope: Scope) -> list[TensorType]:
    """[.., rows of queries, elements of values]."""
    query, key, value = (scope.shape(place) for place in range(3))
    return scope.result((*broadcast([query[:-2], key[:-2], value[:-2]]), query[-2], value[-1]))


def _lower(lowering: Lowering, node: Node) -> None:
    """One primitive of four dimensions; it reads rows whose elements are neighbours."""
    graph = lowering.graph
    query, key, value = (graph.shape_of(name) for name in node.inputs[:3])
    leads = heads_of(query, key)
    assert leads is not None, "the pass has seen them"
    rows, served = leads
    sources = [
        lowering.source(node.inputs[0], (*rows, *query[-2:])),
        lowering.source(node.inputs[1], (*served, *key[-2:]), (0, 1, 3, 2)),
        lowering.source(node.inputs[2], (*served, *value[-2:])),
    ]
    if node.input(3):
        sources.append(lowering.source(node.inputs[3], node.attrs["mask"]))
    descs = [_with_rows(source) for source in sources]
    result = (*rows, query[-2], value[-1])
    dst = _seen(lowering.ordered(node.output), result)
    desc = AttentionDesc.forward(
        FORWARD, descs[0], descs[1], descs[2], dst,
        mask_desc=descs[3] if node.input(3) else None, masking=node.attrs["masking"],
        scale=node.attrs["scale"], masked_rows=node.attrs["masked_rows"],
    )  # fmt: skip
    flops = 2.0 * amount((*result[:3], key[-1])) * (query[-1] + value[-1])
    arguments = {int(argument): own for argument, own in zip(_ARGUMENTS, sources, strict=False)}
    lowering.define(node.output, lowering.emit(node, desc, arguments, flops))


def _seen(desc: MemoryDesc, dims: Shape) -> MemoryDesc:
    """A result with other ``dims``, row-major where heads that become one are apart."""
    try:
        return desc.reshape(dims)
    except InvalidArguments:
        return MemoryDesc(dims, desc.data_type)


def _with_rows(source: Source) -> MemoryDesc:
    """How the primitive is asked for a source, which is moved where it is stored in another way."""
    desc = source.desc
    if desc.inner_blocks or (desc.dims[-1] != 1 and desc.strides[-1] != 1):
        return MemoryDesc(desc.dims, desc.data_type)
    return desc


MADE: Mapping[str, Operator] = {
    ATTENTION: Operator(_infer, _lower, inputs=(3, 4), role=Role.PRODUCT),
}
