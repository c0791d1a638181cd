"""Inputs of a model that are places in its tables, such as the tokens of a text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from dnnl.graph.graph import Graph, Node, is_whole
from dnnl.graph.scope import Scope
from dnnl.operators.exact import COMPARISONS

_MOVING = frozenset(
    {"Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze"}
    | {"Tile", "Transpose", "Unsqueeze", "Where"}
)
"""Operators whose results are the numbers of their sources."""
_GATHERS = frozenset({"Gather", "GatherElements"})


def index_extents(graph: Graph) -> dict[str, int]:
    """How many slices those inputs of a specialized graph choose from that are indices of Gather.

    Comparisons may read them as well, as a model finds padding by a token; nothing else may.
    """
    readers: dict[str, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for value in node.reads:
            readers[value].append(node)
    extents = {
        name: _extents(name, graph, readers)
        for name, kind in graph.inputs.items()
        if is_whole(kind.dtype)
    }
    return {name: min(found) for name, found in extents.items() if found and min(found) > 0}


def _is_typed(value: str, graph: Graph) -> bool:
    """Whether a type is known, as it is not of results in a model that decides sizes later."""
    return any(value in known for known in (graph.types, graph.constants, graph.inputs))


def _extents(value: str, graph: Graph, readers: Mapping[str, list[Node]]) -> set[int]:
    """The sizes of all axes that a value indexes; 0 is among them where it is more than that."""
    found: set[int] = set()
    if value in graph.outputs.values():
        found.add(0)
    for node in readers[value]:
        if node.op in _MOVING:
            for result in filter(None, node.outputs):
                found |= _extents(result, graph, readers)
        elif node.op in _GATHERS and node.inputs[0] != value and _is_typed(node.inputs[0], graph):
            scope = Scope(node, graph)
            found.add(scope.shape()[scope.axis(0)])
        elif node.op not in COMPARISONS:
            found.add(0)
    return found
