"""Branches of a model, of which one is taken when sizes are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dnnl.errors import Unimplemented
from dnnl.graph.graph import AS_NUMBERS, JOINT, Array, Branch, Graph, ModelError, Node

IF = "If"


def graphs_in(graph: Graph | Branch) -> Iterator[Graph | Branch]:
    """The graph and all subgraphs of its nodes, recursively."""
    yield graph
    for node in graph.nodes:
        for value in node.attrs.values():
            if isinstance(value, Branch):
                yield from graphs_in(value)


def is_branching(node: Node) -> bool:
    """Whether a node is one of its branches."""
    return node.op == IF and not node.domain


def taken(node: Node, graph: Graph) -> tuple[list[Node], Mapping[str, Array]]:
    """The nodes and constants of the branch that an If takes, with its results as theirs.

    Raises Unimplemented where the condition is known only while the model runs.
    """
    condition = graph.constants.get(node.inputs[0])
    if condition is None:
        rule = "depends on the contents of inputs; a branch is taken when sizes are known"
        raise Unimplemented(f"{node}: condition {node.inputs[0]!r} {rule}")
    if condition.size != 1:
        name = node.inputs[0].removesuffix(AS_NUMBERS)
        raise ModelError(f"condition {name!r} has {condition.size} elements, not one")
    branch = node.attrs.get("then_branch" if condition.item() else "else_branch")
    if not isinstance(branch, Branch) or len(branch.outputs) != len(node.outputs):
        raise ModelError("a branch is missing, or has another number of results")
    return spliced(branch, node.name, {}, node.outputs)


def spliced(
    branch: Branch, prefix: str, given: Mapping[str, str], results: Sequence[str]
) -> tuple[list[Node], Mapping[str, Array]]:
    """The nodes and constants of a subgraph, inlined into the outer graph.

    ``given`` maps its inputs to values, ``results`` are the new names of its outputs, and all other
    names get ``prefix``.
    """
    names = {value: f"{prefix}{JOINT}{value}" for value in branch.own} | dict(given)
    copies = []
    for index, (value, result) in enumerate(zip(branch.outputs, results, strict=True)):
        if value in branch.produced and value not in branch.outputs[:index]:
            names[value] = result
        else:
            copies.append((value, result))
    nodes = [_renamed(inner, names, f"{prefix}{JOINT}{inner.name}") for inner in branch.nodes]
    nodes += [
        Node("Identity", f"{prefix}{JOINT}{result}", (names.get(value, value),), (result,))
        for value, result in copies
    ]
    return nodes, {names[name]: array for name, array in branch.constants.items()}


def _renamed(node: Node, names: Mapping[str, str], name: str) -> Node:
    attrs = {
        key: _with_names(value, names) if isinstance(value, Branch) else value
        for key, value in node.attrs.items()
    }
    inputs, outputs = (
        tuple(names.get(value, value) for value in values) for values in (node.inputs, node.outputs)
    )
    return replace(node, name=name, inputs=inputs, outputs=outputs, attrs=attrs)


def _with_names(branch: Branch, names: Mapping[str, str]) -> Branch:
    """A branch that reads values of the graph around it under other names."""
    outer = {value: name for value, name in names.items() if value not in branch.own}
    nodes = tuple(_renamed(node, outer, node.name) for node in branch.nodes)
    outputs = tuple(outer.get(value, value) for value in branch.outputs)
    return replace(branch, nodes=nodes, outputs=outputs)
