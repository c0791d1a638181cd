"""Operators without a primitive of their own, written as nodes that have one.

What is written here as elementwise nodes becomes post-ops again when the graph is fused.
"""

from __future__ import annotations

from dataclasses import replace

from dnnl.graph.graph import Graph, Node, blamed_on
from dnnl.graph.writer import Writer
from dnnl.operators.table import OPERATORS, row_name


def expand(graph: Graph) -> Graph:
    """The graph with such operators replaced."""
    nodes: list[Node] = []
    types, constants = dict(graph.types), dict(graph.constants)
    for node in graph.nodes:
        row = OPERATORS.get(row_name(node))
        writer = Writer(node, graph)
        with blamed_on(node):
            written = row is not None and row.expand is not None and row.expand(writer)
        if not written:
            nodes.append(node)
            continue
        writer.finish()
        nodes.extend(writer.nodes)
        types.update(writer.types)
        constants.update(writer.constants)
    return replace(graph, nodes=tuple(nodes), types=types, constants=constants).pruned()
