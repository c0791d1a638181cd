"""From a model as it was written to one of known sizes: types inferred, constants computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.graph.branches import is_branching, taken
from dnnl.graph.graph import (
    JOINT,
    UNRANKED,
    Array,
    Branch,
    Graph,
    ModelError,
    Node,
    Shape,
    TensorType,
    blamed_on,
)
from dnnl.graph.input_sizes import bound, check_shape, is_size, needs_shape, ones_for_open
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import is_open
from dnnl.operators.conversions import with_type
from dnnl.operators.flex_attention import inlined
from dnnl.operators.numbers import FOLDED, SIZES, runs_between
from dnnl.operators.table import OPERATORS, check_form, row_name
from dnnl.passes.constants import RANDOM, constant_results, types_of_sizes
from dnnl.passes.size_numbers import with_numbers


def specialize(graph: Graph, input_shapes: Mapping[str, Shape] | None = None) -> Graph:
    """The graph for inputs of ``input_shapes`` (declared sizes where an input is not named).

    Every value gets its type; nodes whose sources are constant become constants, so that nothing
    has a default any more.

    Raises InvalidArguments for shapes that are open or contradict the declared ones, Unimplemented
    with one reason for each operator that is not known, ModelError for sizes that disagree.
    """
    constants: dict[str, Array] = dict(graph.constants)
    types = {name: graph.types[name] for name, array in constants.items() if is_open(array)}
    nodes: list[Node] = []
    produced: set[str] = set()
    inputs = bound(graph.inputs, {} if input_shapes is None else input_shapes)
    known = replace(graph, inputs=inputs, constants=constants, types=types, defaults={})
    check_operators(graph)
    pending = list(reversed(graph.pruned().nodes))  # what nobody reads may need contents
    while pending:
        node = pending.pop()
        with blamed_on(node):
            if is_branching(node):
                inside, own = taken(node, known)
                pending += reversed(inside)
                constants.update(own)
                continue
            check_form(node)
            node = with_type(node, known)
            written = inlined(node, known)
            if written is not None:
                pending += reversed(written.nodes)
                constants.update(written.constants)
                types.update({n: written.types[n] for n in written.constants if n in written.types})
                continue
            folded = constant_results(node, known)
            if folded is None:
                instead = with_numbers(node, known, constants, types, produced)
                if instead:
                    pending += reversed(instead)
                    continue
                _check_plannable(node)
                nodes.append(node)
                types.update(_infer(node, known))
            else:
                constants.update(folded)
                types.update(types_of_sizes(node, known, folded))
    return replace(known, nodes=tuple(nodes)).pruned()


def rebatched(graph: Graph, batch: int) -> Graph:
    """The graph with ``batch`` as the first size of every input, and wherever else the name of one
    is.

    Reshape targets that spell the old batch as their first size follow.

    Raises InvalidArguments where they cannot be found because other sizes are open.
    """
    if not is_size(batch) or batch < 1:
        raise InvalidArguments("batch", batch, "expected an integer of at least 1")
    batch = int(batch)
    ranked = {name: t for name, t in graph.inputs.items() if t.shape and t.shape != UNRANKED}
    named = {t.shape[0] for t in ranked.values() if isinstance(t.shape[0], str)}
    inputs = {
        name: replace(t, shape=(batch, *(batch if n in named else n for n in t.shape[1:])))
        if name in ranked
        else t
        for name, t in graph.inputs.items()
    }
    targets = _targets(graph, batch)
    constants = {**graph.constants, **{_target_name(node): t for node, t in targets.items()}}
    nodes = tuple(
        replace(node, inputs=(node.inputs[0], _target_name(node.name)))
        if node.name in targets
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes, inputs=inputs, constants=constants)


def _target_name(node: str) -> str:
    return f"{node}{JOINT}shape"


def _targets(graph: Graph, batch: int) -> dict[str, Array]:
    """By the name of their Reshape: targets that spell the declared batch, with ``batch`` there."""
    declares = any(kind.shape and isinstance(kind.shape[0], int) for kind in graph.inputs.values())
    if not declares or not any(node.op == "Reshape" for node in graph.nodes):
        return {}
    try:
        old = specialize(graph, ones_for_open(graph.inputs))
    except Unimplemented:  # of the model as it is, or only of one plan for all of it
        return {}
    except ModelError:
        for name, kind in graph.inputs.items():
            if needs_shape(kind):  # the default of 1 does not fit
                check_shape(name, kind, kind.shape, graph.inputs)
        raise
    targets = {}
    for node in old.nodes:
        target = old.constants.get(node.input(1)) if node.op == "Reshape" else None
        if target is None or len(target) < 2 or old.shape_of(node.inputs[0])[:1] != (target[0],):
            continue
        targets[node.name] = np.array([batch, *target[1:]], np.int64)
    return targets


def check_operators(graph: Graph) -> None:
    """Raise Unimplemented that lists all operators that are neither known nor constant-folded."""
    unknown = unknown_operators(graph)
    if unknown:
        reasons = [
            f"operator {operator} of {_summarized(names)}" for operator, names in unknown.items()
        ]
        raise Unimplemented("the model uses operators that this runner does not know", reasons)


def unknown_operators(graph: Graph, *, branches: bool = False) -> dict[str, list[str]]:
    """The names of the nodes by operator, for operators that are neither known nor constant-folded.

    Bodies of loops are included. Branches of If are included with ``branches``: one that is never
    taken may have any operators.
    """
    constant = set(graph.constants)
    unknown: dict[str, list[str]] = {}
    for node in graph.nodes:
        foldable = constant.issuperset(node.reads) and node.op not in RANDOM
        branching = is_branching(node)
        if branching and not branches:
            continue  # whichever branch is taken has its own
        if branching or runs_between(node):
            for body in node.attrs.values():
                if isinstance(body, Branch):
                    constants = {**graph.constants, **body.constants}
                    inside = replace(graph, nodes=body.nodes, constants=constants)
                    for operator, names in unknown_operators(inside, branches=branches).items():
                        unknown.setdefault(operator, []).extend(names)
            continue
        if not node.domain and (foldable or node.op in SIZES):
            constant.update(node.outputs)
        elif row_name(node) not in OPERATORS and row_name(node) not in FOLDED:
            unknown.setdefault(row_name(node), []).append(node.name)
    return unknown


def _check_plannable(node: Node) -> None:
    """Raise Unimplemented for what no plan computes: operators that are not known, which `load` has
    not seen in branches, and what a model in parts computes between plans."""
    if runs_between(node) or row_name(node) in FOLDED:
        raise Unimplemented(f"{node}: contents decide its result; no single plan computes it")
    if row_name(node) not in OPERATORS:
        raise Unimplemented(f"{node}: this runner does not know the operator {row_name(node)}")


def _summarized(names: Sequence[str]) -> str:
    first = f"node {names[0]!r}"
    return first if len(names) == 1 else f"{len(names)} nodes, the first is {first}"


def _infer(node: Node, graph: Graph) -> dict[str, TensorType]:
    kinds = OPERATORS[row_name(node)].infer(Scope(node, graph))
    for value in node.outputs[len(kinds) :]:
        if graph.uses()[value]:
            raise Unimplemented(f"{node}: its output {value!r} is not computed")
    return dict(zip(node.outputs, kinds, strict=False))
