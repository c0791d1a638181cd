"""Elementwise nodes that become post-ops of the node before them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dnnl.graph.graph import FUNCTION, Graph, Node, PostOp, blamed_on, is_whole
from dnnl.operators.algorithms import post_op_of
from dnnl.operators.quantization import QUANTIZED
from dnnl.operators.table import operator_of

MAX_POST_OPS = 32


def fuse_post_ops(graph: Graph) -> Graph:
    """Elementwise nodes moved into the producer of one of their sources.

    The producer must have no other reader and a primitive that takes such a post-op. Where both
    sources of a binary node qualify, the later one takes the other as operand. A producer moves to
    the place of what it absorbs, so that every operand is known there.
    """
    uses = graph.uses()
    open_hosts: dict[str, Node] = {}
    order: dict[str, Node] = {}
    for node in graph.nodes:
        with blamed_on(node):
            found = _host(node, open_hosts, graph)
        fused = node
        if found is not None:
            value, post_op = found
            host = open_hosts.pop(value)
            del order[host.name]
            fused = replace(
                host,
                outputs=node.outputs[:1],
                post_ops=(*host.post_ops, *_as_stored(value, graph), post_op),
                fused=(*host.fused, *node.fused, node.name),
            )
        order[fused.name] = fused
        if uses[fused.output] == 1 and fused.output not in graph.outputs.values():
            open_hosts[fused.output] = fused
    return replace(graph, nodes=tuple(order.values()))


def _host(node: Node, open_hosts: dict[str, Node], graph: Graph) -> tuple[str, PostOp] | None:
    """The value whose producer takes ``node`` in, and as what; the latest one first."""
    for value in reversed(list(open_hosts)):
        if value not in node.inputs:
            continue
        host = open_hosts[value]
        post_op = post_op_of(node, value, graph)
        # A function of several values is a post-op itself.
        own = host.op == FUNCTION and len(host.inputs) > 1
        count = len(host.post_ops) + own + len(_as_stored(value, graph))
        if post_op is None or count >= MAX_POST_OPS or not _is_float(host, value, graph):
            continue
        operator = operator_of(host)
        whole = is_whole(graph.type_of(node.output).dtype)
        if operator.takes(post_op) and (operator.stores_bytes or not whole):
            return value, post_op
    return None


def _is_float(host: Node, value: str, graph: Graph) -> bool:
    """Whether what a node computes is a float until it is stored."""
    computed = host.op == FUNCTION or host.op in QUANTIZED or bool(host.post_ops)
    return computed or not is_whole(graph.type_of(value).dtype)


def _as_stored(value: str, graph: Graph) -> tuple[PostOp, ...]:
    """What would become of a float by storing it as ``value`` and loading it again. What computes
    truth values makes nothing but 0 and 1."""
    dtype = graph.type_of(value).dtype
    if not is_whole(dtype) or dtype.kind == "b":
        return ()
    limits = np.iinfo(dtype)
    bounds = float(limits.min), float(limits.max)
    return PostOp("eltwise", "eltwise_round"), PostOp("eltwise", "eltwise_clip", *bounds)
