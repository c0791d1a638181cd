"""From a model as it was written to one of known sizes: types inferred, constants computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.framework.graph import Array, Graph, ModelError, Node, Shape, TensorType, blamed_on
from dnnl.framework.onnx_model import node_to_proto
from dnnl.framework.operators import OPERATORS, check_form
from dnnl.framework.shapes import Scope

_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
)


def specialize(graph: Graph, input_shapes: Mapping[str, Shape] | None = None) -> Graph:
    """The graph for inputs of ``input_shapes`` (declared sizes where an input is not named).

    Every value gets its type; nodes whose sources are constant become constants.

    Raises InvalidArguments for shapes that contradict the declared ones, Unimplemented with one
    reason for each operator that is not known, ModelError for sizes that do not fit together.
    """
    constants: dict[str, Array] = dict(graph.constants)
    types: dict[str, TensorType] = {}
    kept: list[Node] = []
    inputs = _bound(graph.inputs, input_shapes or {})
    known = replace(graph, inputs=inputs, constants=constants, types=types)
    _check_operators(graph)
    for node in graph.nodes:
        with blamed_on(node):
            check_form(node)
            folded = _constant_results(node, known)
            if folded is None:
                kept.append(node)
                types.update(_infer(node, known))
            else:
                constants.update(folded)
    return replace(known, nodes=tuple(kept)).pruned()


def rebatched(graph: Graph, batch: int) -> Graph:
    """The graph with ``batch`` as the first size of every input.

    Reshape targets that spell the old batch as their first size follow.
    """
    if batch < 1:
        raise InvalidArguments("batch", batch, "must be at least 1")
    old = specialize(graph, {n: _declared(t) for n, t in graph.inputs.items()})
    inputs = {
        name: TensorType(t.dtype, (batch, *t.shape[1:])) if t.shape else t
        for name, t in graph.inputs.items()
    }
    constants = dict(graph.constants)
    nodes = []
    for node in old.nodes:
        target = old.constants.get(node.input(1)) if node.op == "Reshape" else None
        if target is None or len(target) < 2 or target[0] != old.shape_of(node.inputs[0])[0]:
            continue
        name = f"{node.name}:shape"
        constants[name] = np.array([batch, *target[1:]], np.int64)
        nodes.append(replace(node, inputs=(node.inputs[0], name)))
    changed = {node.name: node for node in nodes}
    reshaped = tuple(changed.get(node.name, node) for node in graph.nodes)
    return replace(graph, nodes=reshaped, inputs=inputs, constants=constants)


def _declared(kind: TensorType) -> Shape:
    """The declared shape, with 1 where a size is open."""
    return tuple(1 if isinstance(n, str) else n for n in kind.shape)


def _bound(inputs: Mapping[str, TensorType], shapes: Mapping[str, Shape]) -> dict[str, TensorType]:
    """The inputs with every size known; an open first size is 1 unless ``shapes`` says more."""
    for name in shapes.keys() - inputs.keys():
        rule = f"no such input; there are {', '.join(inputs)}"
        raise InvalidArguments("input", name, rule)
    bound = {}
    for name, kind in inputs.items():
        first = tuple(1 if isinstance(n, str) else n for n in kind.shape[:1])
        sizes = shapes.get(name, (*first, *kind.shape[1:]))
        check_shape(name, kind, sizes)
        bound[name] = TensorType(kind.dtype, sizes)
    return bound


def check_shape(name: str, kind: TensorType, sizes: tuple[int | str, ...]) -> None:
    """Raise InvalidArguments where ``sizes`` do not fit what input ``name`` declares."""
    for size in sizes:
        if isinstance(size, str):
            rule = f"the model leaves {size!r} of {kind} open: give an array for this input"
            raise InvalidArguments(f"input {name!r}", sizes, rule)
    fits = len(sizes) == len(kind.shape) and all(
        isinstance(n, str) or n == size for n, size in zip(kind.shape, sizes, strict=True)
    )
    if not fits:
        rule = f"wrong shape: the model expects {kind}"
        raise InvalidArguments(f"input {name!r}", tuple(sizes), rule)


def _check_operators(graph: Graph) -> None:
    """Raise Unimplemented with every node that is neither known nor computable beforehand."""
    constant = set(graph.constants)
    unknown = []
    for node in graph.nodes:
        foldable = constant.issuperset(node.reads) and node.op not in _RANDOM
        if not node.domain and (foldable or node.op == "Shape"):
            constant.update(node.outputs)
        elif node.domain or node.op not in OPERATORS:
            domain = f"{node.domain}." if node.domain else ""
            unknown.append(f"operator {domain}{node.op} of node {node.name!r}")
    if unknown:
        raise Unimplemented("the model uses operators that this runner does not know", unknown)


def _constant_results(node: Node, graph: Graph) -> dict[str, Array] | None:
    """The results of a node that needs no input of the model; None for any other."""
    if node.op == "Shape" and node.inputs[0] not in graph.constants:
        rank = len(graph.shape_of(node.inputs[0]))
        part = slice(node.attrs.get("start", 0), node.attrs.get("end", rank))
        return {node.output: np.array(graph.shape_of(node.inputs[0])[part], np.int64)}
    if node.op in _RANDOM or any(value not in graph.constants for value in node.reads):
        return None
    return evaluate(node, {v: graph.constants[v] for v in node.reads}, graph.opset)


def evaluate(node: Node, feeds: Mapping[str, Array], opset: int) -> dict[str, Array]:
    """The results of one node on given sources, by ONNX's reference implementation."""
    proto = node_to_proto(node)
    sources = [onnx.ValueInfoProto(name=value) for value in feeds]
    results = [onnx.ValueInfoProto(name=value) for value in node.outputs if value]
    body = helper.make_graph([proto], "constant", sources, results)
    model = helper.make_model(body, opset_imports=[helper.make_operatorsetid("", opset)])
    try:
        arrays: Any = ReferenceEvaluator(model).run(None, dict(feeds))
    except Exception as error:  # whatever NumPy code meets in a damaged or foreign node
        raise ModelError(f"{node} cannot be computed from constants: {error}") from error
    return {r.name: np.asarray(a) for r, a in zip(results, arrays, strict=True)}


def _infer(node: Node, graph: Graph) -> dict[str, TensorType]:
    kinds = OPERATORS[node.op].infer(Scope(node, graph))
    for value in node.outputs[len(kinds) :]:
        if graph.uses()[value]:
            raise Unimplemented(f"{node}: its output {value!r} is not computed")
    return dict(zip(node.outputs, kinds, strict=False))
