"""Results of a graph that are views: they share memory with arguments or with other results."""

from __future__ import annotations

import operator
from collections import Counter

import torch
from torch import fx

from dnnl.torch.tensors import number_of, order_of


def apart(module: fx.GraphModule) -> set[fx.Node]:
    """Give results that have to be views operators of their own.

    A region writes its results to new memory, without gaps. So PyTorch makes the views of
    arguments, those that share memory with another result, and those that have gaps: out of what
    they are views of, by copies of the operators in between, as regions may compute with the views
    as well. Returns the copies.
    """
    graph = module.graph
    (output,) = graph.find_nodes(op="output")
    results = output.args[0] if isinstance(output.args[0], list | tuple) else [output.args[0]]
    bases = {own: _base(own) for own in results if isinstance(own, fx.Node)}
    shared = Counter(bases.values())
    made: dict[fx.Node, fx.Node] = {}
    for own, base in bases.items():
        is_computed = base.op == "call_function"
        if own is base or (is_computed and shared[base] == 1 and _is_dense(own)):
            continue
        chain = [own]
        while chain[-1] is not base:
            chain.append(_source(chain[-1]))
        with graph.inserting_before(output):
            for node in reversed(chain[:-1]):
                if node not in made:
                    made[node] = graph.node_copy(node, lambda one: made.get(one, one))
    if not made:
        return set()
    output.args = (fx.map_arg(output.args[0], lambda one: made.get(one, one)),)
    for node in reversed(list(made)):
        if not node.users:
            graph.erase_node(node)
    module.recompile()
    return set(made.values())


def _base(node: fx.Node) -> fx.Node:
    """What a node is a view of, itself if it is none."""
    while _is_view(node):
        node = _source(node)
    return node


def _source(node: fx.Node) -> fx.Node:
    (found, *_) = node.args
    assert isinstance(found, fx.Node)
    return found


def _is_view(node: fx.Node) -> bool:
    """Whether a node is a view of its first argument, or one of several such views."""
    if node.target is operator.getitem:
        return _is_view(_source(node))
    returns = getattr(getattr(node.target, "_schema", None), "returns", ())
    infos = [own.alias_info for own in returns]
    return bool(infos) and all(own is not None and not own.is_write for own in infos)


def _is_dense(node: fx.Node) -> bool:
    """Whether a tensor has elements, and no gaps between them."""
    found = node.meta.get("val")
    if not isinstance(found, torch.Tensor):
        return True
    return bool(number_of(found.numel())) and order_of(found) is not None
