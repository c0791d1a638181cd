"""What runs where: a table of the operators of a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from dnnl.torch import private
from dnnl.torch.backend import compiled
from dnnl.torch.partition import Decision


@dataclass(frozen=True)
class Explanation:
    """What computes a network: ``decisions`` has one entry for each operator of its graphs, in
    order; ``graphs`` is their number, ``breaks`` why PyTorch has made more than one of them."""

    decisions: tuple[Decision, ...]
    graphs: int
    breaks: tuple[str, ...]

    @property
    def left(self) -> Mapping[tuple[str, str], int]:
        """How many operators are PyTorch's, by name and reason."""
        pairs = [(own.operator, own.reason) for own in self.decisions if own.where == "torch"]
        return Counter(pairs)

    def __str__(self) -> str:
        own = sum(decision.where == "dnnl" for decision in self.decisions)
        lines = [f"{own} of {len(self.decisions)} operators by dnnl, graphs: {self.graphs}"]
        lines += [f"graph break: {reason}" for reason in self.breaks]
        lines += [
            f"by PyTorch: {operator} x {count}: {reason}"
            for (operator, reason), count in self.left.items()
        ]
        return "\n".join(lines)


def explained(
    net: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> Explanation:
    """What computes ``net``; see `dnnl.explain_graph`."""
    found: list[dict[str, Decision]] = []

    def report(graph: dict[str, Decision], decisions: Sequence[Decision]) -> None:
        graph.update({own.name: own for own in decisions})

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        found.append({})
        return compiled(module, inputs, partial(report, found[-1]))

    with private.explaining() as breaks:
        torch.compile(net, backend=backend)(*arguments, **keywords)
    decisions = tuple(own for graph in found for own in graph.values())
    return Explanation(decisions, len(found), tuple(breaks))
