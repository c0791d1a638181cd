"""Operators without a primitive of their own, written as nodes that have one.

What is written here as elementwise nodes becomes post-ops again when the graph is fused.
"""

from __future__ import annotations

from dataclasses import replace

from dnnl.graph.graph import Array, Graph, Node, TensorType, blamed_on
from dnnl.graph.writer import Writer
from dnnl.operators.table import OPERATORS, row_name
from dnnl.passes.size_numbers import with_numbers


def expand(graph: Graph) -> Graph:
    """The graph with operators decomposed that have no primitive, recursively.

    A node of the same operator in its own decomposition is final: its primitive takes that form.
    Sizes that only a run knows become numbers where a node reads them as data.
    """
    types, constants = dict(graph.types), dict(graph.constants)
    known = replace(graph, types=types, constants=constants)
    nodes: list[Node] = []
    pending = list(reversed(graph.nodes))
    final: set[str] = set()
    produced = {value for node in graph.nodes for value in node.outputs}
    while pending:
        node = pending.pop()
        written = [] if node.name in final else written_out(node, known, types, constants)
        if not written:
            written = with_numbers(node, known, constants, types, produced)
        if not written:
            nodes.append(node)
            continue
        final.update(made.name for made in written if row_name(made) == row_name(node))
        pending += reversed(written)
    return replace(known, nodes=tuple(nodes)).pruned()


def written_out(
    node: Node, graph: Graph, types: dict[str, TensorType], constants: dict[str, Array]
) -> list[Node]:
    """The nodes that replace a node, empty if it stays. Adds their types and constants to ``types``
    and ``constants``, which are those of the graph."""
    row = OPERATORS.get(row_name(node))
    if row is None or row.expand is None:
        return []
    writer = Writer(node, graph)
    with blamed_on(node):
        if not row.expand(writer):
            return []
    writer.finish()
    types.update(writer.types)
    constants.update(writer.constants)
    return writer.nodes
