"""Nodes that change nothing, and operators of many sources as several of two."""

from __future__ import annotations

from dataclasses import replace

from dnnl.graph.graph import JOINT, Graph, Node, is_whole
from dnnl.graph.scope import Scope, transposition
from dnnl.graph.sizes import broadcast, same_shape
from dnnl.operators.numbers import UNCHANGED

_NO_CHANGE = UNCHANGED | {"Dropout"}
_SAME_IF_SHAPE = frozenset({"Expand", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_VARIADIC = frozenset({"Sum", "Max", "Min"})


def drop_identities(graph: Graph) -> Graph:
    """Without the nodes whose result is their source."""
    uses = graph.uses()
    names = {}
    for node in graph.nodes:
        if _is_identity(node, graph) and not any(uses[value] for value in node.outputs[1:]):
            names[node.output] = node.inputs[0]
    return graph.renamed(names).pruned()


def _is_identity(node: Node, graph: Graph) -> bool:
    if node.op in _NO_CHANGE or (node.op in (*_VARIADIC, "Concat") and len(node.inputs) == 1):
        return True
    source, result = graph.type_of(node.inputs[0]), graph.type_of(node.output)
    if node.op == "Cast":
        return source == result
    if node.op == "Transpose":
        perm = tuple(node.attrs.get("perm", range(len(source.shape))[::-1]))
        return perm == tuple(range(len(perm)))
    same = source.dtype == result.dtype and same_shape(source.sizes, result.sizes)
    return node.op in _SAME_IF_SHAPE and same


def join_transpositions(graph: Graph) -> Graph:
    """A transposition of a transposition reads the source of that one."""
    made: dict[str, tuple[str, tuple[int, ...]]] = {}
    nodes = []
    for node in graph.nodes:
        if node.op != "Transpose":
            nodes.append(node)
            continue
        source, order = node.inputs[0], transposition(Scope(node, graph))
        if source in made:
            source, before = made[source]
            order = tuple(before[axis] for axis in order)
        made[node.output] = source, order
        nodes.append(replace(node, inputs=(source,), attrs={"perm": order}))
    return replace(graph, nodes=tuple(nodes)).pruned()


def split_variadic(graph: Graph) -> Graph:
    """Max, Min and Sum as operators of two sources each; a sum of two is an Add.

    Longer sums of floats of equal shapes stay, because a primitive computes them at once.
    """
    nodes: list[Node] = []
    types = dict(graph.types)
    for node in graph.nodes:
        if node.op not in _VARIADIC or _is_long_sum(node, graph):
            nodes.append(node)
            continue
        op = "Add" if node.op == "Sum" else node.op
        left = node.inputs[0]
        for index, right in enumerate(node.inputs[1:]):
            last = index == len(node.inputs) - 2
            result = node.output if last else f"{node.output}{JOINT}{index}"
            if not last:
                shape = broadcast(
                    [types[v].sizes if v in types else graph.shape_of(v) for v in (left, right)]
                )
                types[result] = replace(types[node.output], shape=shape)
            name = node.name if last else f"{node.name}{JOINT}{index}"
            step = replace(node, op=op, name=name, inputs=(left, right), outputs=(result,))
            nodes.append(step)
            left = result
    return replace(graph, nodes=tuple(nodes), types=types)


def _is_long_sum(node: Node, graph: Graph) -> bool:
    shapes = {graph.shape_of(value) for value in node.inputs}
    floats = not is_whole(graph.type_of(node.output).dtype)
    return node.op == "Sum" and floats and len(node.inputs) > 2 and len(shapes) == 1
