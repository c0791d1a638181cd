"""Which operators of a graph of PyTorch the library computes, in which regions."""

from __future__ import annotations

import logging
import operator
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from dnnl.errors import Error
from dnnl.framework.compiler import lower, optimize
from dnnl.passes.specialize import specialize
from dnnl.runtime.engine import first_cpu
from dnnl.torch import private
from dnnl.torch.functions.operators import WITHOUT_GRADIENTS
from dnnl.torch.graphs import alone, is_size, reasons_against
from dnnl.torch.randomness import stages
from dnnl.torch.regions import Region

_log = logging.getLogger("dnnl.torch")

_MOVES = frozenset(
    (
        *("alias", "clone", "detach", "expand", "lift_fresh_copy", "permute", "reshape", "select"),
        *("slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind"),
        *("unsqueeze", "view", "_unsafe_view", "full", "full_like", "zeros", "ones", "arange"),
        *("scalar_tensor", "iota", "zeros_like", "ones_like"),
    )
)
"""Operators that compute nothing: a region of these alone is PyTorch's."""
ONLY_MOVES = "nothing around it is computed by dnnl"
"""The reason for those."""
SHARED = "a result on the memory of an argument or of another result"
"""The reason for views."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Who computes an operator of a graph: "dnnl", or "torch" with the reason."""

    name: str
    operator: str
    where: str
    reason: str = ""


Report = Callable[[Sequence[Decision]], object]


def partitioned(
    module: fx.GraphModule,
    weights: Collection[int],
    report: Report | None = None,
    refused: Mapping[str, str] | None = None,
    views: Collection[fx.Node] = (),
) -> Callable[..., Any]:
    """A graph as a function: its regions are the library's, everything else is PyTorch's.

    Random numbers are drawn in the order of the graph. ``weights`` are the arguments that are
    constants while they stay as they are, ``refused`` nodes by name that the library does not
    compute, with reasons. ``views`` are PyTorch's, as their memory is that of others. ``report``
    gets the decisions.
    """
    _drop_detaches(module)
    reasons = reasons_against(module, refused or {})
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    reasons |= {node: SHARED for node in nodes if node in views}
    computed = [node for node in nodes if not _is_free(node)]
    left = [node for node in computed if node in reasons]
    if not left and not _is_idle(computed):
        _tell(report, computed, {})
        return Region(module, sorted(weights), _Again(report))
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    constant = {node.name for place, node in enumerate(places) if place in weights}
    parts = stages(module, {node for node in nodes if node not in reasons})
    regions = private.fused(module, parts)
    by_name = {node.name: node for node in computed}
    for node in module.graph.nodes:
        if node.target not in regions:
            continue
        inside = regions[node.target]
        own = [own for own in inside.graph.nodes if own.op == "call_function"]
        if _is_idle(own):  # the submodule is PyTorch's
            reasons |= {by_name[one.name]: ONLY_MOVES for one in own if one.name in by_name}
            continue
        frozen = [place for place, given in enumerate(node.args) if given.name in constant]
        # As an attribute that is no module, whose calls take 2 us less.
        delattr(module, str(node.target))
        setattr(module, str(node.target), Region(inside, frozen, _Again(report)))
    _tell(report, computed, reasons)
    for node in module.graph.nodes:
        node.target = WITHOUT_GRADIENTS.get(node.target, node.target)
    module.recompile()
    return module.forward


def _drop_detaches(module: fx.GraphModule) -> None:
    """Read detached values as they are: no graph has gradients, and a region would copy them."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        node.replace_all_uses_with(node.args[0])
        module.graph.erase_node(node)
    module.recompile()


def _is_free(node: fx.Node) -> bool:
    """Whether a node is no operator: a size, or one of several results."""
    return is_size(node) or node.target is operator.getitem


def _is_idle(nodes: Sequence[fx.Node]) -> bool:
    """Whether nodes compute nothing."""
    schemas = (getattr(node.target, "_schema", None) for node in nodes if not _is_free(node))
    return all(own is not None and own.name.partition("::")[2] in _MOVES for own in schemas)


def _tell(report: Report | None, nodes: Sequence[fx.Node], reasons: Mapping[fx.Node, str]) -> None:
    """Log a line for each operator that is PyTorch's, and report all."""
    decisions = [
        Decision(node.name, str(node.target), "torch" if node in reasons else "dnnl", reason)
        for node in nodes
        for reason in (reasons.get(node, ""),)
    ]
    left = Counter((own.operator, own.reason) for own in decisions if own.where == "torch")
    for (name, reason), count in left.items():
        if reason not in (ONLY_MOVES, SHARED):
            _log.info("%s x %d: computed by PyTorch: %s", name, count, reason)
    if report is not None:
        report(decisions)


class _Again:
    """Divides a region that the library refuses, with those of its operators left out that are
    refused alone."""

    def __init__(self, report: Report | None) -> None:
        self._report = report

    def __call__(
        self, module: fx.GraphModule, weights: Sequence[int], error: Error
    ) -> Callable[..., Any]:
        refused = {
            node.name: reason
            for node in module.graph.nodes
            if node.op == "call_function" and not _is_free(node)
            for reason in (_refusal(node),)
            if reason is not None
        }
        if not refused:
            nodes = [node for node in module.graph.nodes if node.op == "call_function"]
            operators = [node for node in nodes if not _is_free(node)]
            _tell(self._report, operators, dict.fromkeys(operators, str(error)))
            return module
        return partitioned(module, weights, self._report, refused)


def _refusal(node: fx.Node) -> str | None:
    """Why the library does not compute an operator alone; None where it does."""
    try:
        graph = alone(node)
        lower(optimize(specialize(graph)), first_cpu())
    except Error as error:
        return str(error)
    return None
