"""Random numbers of a graph, which PyTorch draws: in eager's order, and apart from what is computed
with them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

_aten = torch.ops.aten


def draw_apart(module: fx.GraphModule) -> None:
    """Let dropout of known sizes read a mask that follows from nothing computed, so that what is
    before it and what is behind it can be one region. The numbers are those of eager."""
    graph = module.graph
    for node in graph.find_nodes(op="call_function", target=_aten.native_dropout.default):
        x, share, trains = node.args
        found = x.meta["val"]
        is_known = all(isinstance(size, int) for size in found.shape)
        if not (trains and is_known and found.is_contiguous()):
            continue
        drawn = found.new_empty(found.shape, dtype=torch.bool)
        scale = 1.0 / (1.0 - share) if share < 1 else 0.0
        with graph.inserting_before(node):
            sizes = list(found.shape)
            if share < 1:
                empty = _called(graph, drawn, _aten.empty.memory_format, sizes, dtype=torch.bool)
                mask = _called(graph, drawn, _aten.bernoulli.p, empty, 1.0 - share)
            else:  # eager draws nothing
                mask = _called(graph, drawn, _aten.full.default, sizes, False, dtype=torch.bool)
            passed = _called(graph, found, _aten.mul.Tensor, x, mask)
            scaled = _called(graph, found, _aten.mul.Tensor, passed, scale)
        for user in list(node.users):
            user.replace_all_uses_with((scaled, mask)[user.args[1]])
            graph.erase_node(user)
        graph.erase_node(node)
    module.recompile()


def _called(
    graph: fx.Graph, result: torch.Tensor, target: Any, *args: Any, **options: Any
) -> fx.Node:
    node = graph.call_function(target, args, options)
    node.meta["val"] = result
    return node


def stages(module: fx.GraphModule, computed: Collection[fx.Node]) -> list[set[str]]:
    """The names of ``computed``, in parts in order: no region of one part can move random numbers
    that follow from another part behind later ones."""
    found: list[set[str]] = [set()]
    following: set[fx.Node] = set()
    for node in module.graph.nodes:
        follows = any(own in following for own in node.all_input_nodes)
        if node in computed:
            found[-1].add(node.name)
        elif follows and _is_drawn(node):
            found.append(set())
        if follows or node in computed:
            following.add(node)
    return [part for part in found if part]


def _is_drawn(node: fx.Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags
