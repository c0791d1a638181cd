"""Elementwise nodes that become post-ops of the node before them."""

from __future__ import annotations

from dataclasses import replace

from dnnl.framework.elementwise import post_op_of
from dnnl.framework.graph import FUNCTION, Graph, Node, PostOp, blamed_on
from dnnl.framework.operators import operator_of

MAX_POST_OPS = 32


def fuse_post_ops(graph: Graph) -> Graph:
    """Elementwise nodes moved into the producer of one of their sources.

    The producer must have no other reader and a primitive that takes such a post-op. Where both
    sources of a binary node qualify, the later one takes the other as operand. A producer moves to
    the place of what it absorbs, so that every operand is known there.
    """
    uses = graph.uses()
    pending: dict[str, Node] = {}
    order: dict[str, Node] = {}
    for node in graph.nodes:
        with blamed_on(node):
            found = _host(node, pending, graph)
        kept = node
        if found is not None:
            value, post_op = found
            host = pending.pop(value)
            del order[host.name]
            kept = replace(
                host,
                outputs=node.outputs[:1],
                post_ops=(*host.post_ops, post_op),
                fused=(*host.fused, *node.fused, node.name),
            )
        order[kept.name] = kept
        if uses[kept.output] == 1 and kept.output not in graph.outputs.values():
            pending[kept.output] = kept
    return replace(graph, nodes=tuple(order.values()))


def _host(node: Node, pending: dict[str, Node], graph: Graph) -> tuple[str, PostOp] | None:
    """The value whose producer takes ``node`` in, and as what; the latest one first."""
    for value in reversed(list(pending)):
        if value not in node.inputs:
            continue
        host = pending[value]
        post_op = post_op_of(node, value, graph)
        # A function of several values is a post-op itself.
        own = host.op == FUNCTION and len(host.inputs) > 1
        if post_op is None or len(host.post_ops) + own == MAX_POST_OPS:
            continue
        if operator_of(host).takes(post_op):
            return value, post_op
    return None
