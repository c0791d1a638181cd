"""From a model as it was written to one of known sizes: types inferred, constants computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.framework.branches import is_branching, taken
from dnnl.framework.exact import exact_function, folded
from dnnl.framework.graph import (
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
from dnnl.framework.numbers import FOLDED, SIZES, is_folded, runs_between
from dnnl.framework.onnx_model import node_to_proto
from dnnl.framework.operators import OPERATORS, check_form, row_name
from dnnl.framework.quantization import DEQUANTIZE, QUANTIZE, converted
from dnnl.framework.shapes import Scope
from dnnl.framework.shapes_quantized import check_parameters
from dnnl.framework.sizes import array_of, computed, fixed, is_open, known_int, type_of
from dnnl.runtime.storage import check_capacity
from dnnl.types.layout_input import read_sequence
from dnnl.types.size import Size

_AS_FILES_HAVE_THEM = frozenset(
    {"Add", "Cast", "Div", "Equal", "Expand", "Gather", "Mul", "Not", "Or"}
)
"""Operators that passes write with the attributes and sources that files give them."""

_OPEN: Mapping[str, tuple[int, ...]] = {
    "Expand": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Slice": (1, 2),
    "Split": (1,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
}
"""The sources that may be sizes which only a run knows, where others are data."""

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
)
"""Operators whose results no source decides."""


def _product(sizes: Array) -> int:
    """The product of sizes in a constant, without overflow."""
    return prod(map(int, np.ravel(sizes)))


def _broadcast(source: Array, sizes: Array) -> int:
    """The elements of an array that is broadcast to sizes and that they are broadcast to."""
    wanted = [int(size) for size in np.ravel(sizes)]
    pairs = zip_longest(reversed(source.shape), reversed(wanted), fillvalue=1)
    return prod(max(pair) for pair in pairs)


_GROWING: Mapping[str, Callable[..., int]] = {
    "ConstantOfShape": _product,
    "Expand": _broadcast,
    "Tile": lambda source, repeats: source.size * _product(repeats),
}
"""How many elements come out of operators that make much of little."""


def _element_bytes(node: Node, feeds: Mapping[str, Array]) -> int:
    """The size of what an operator of `_GROWING` makes much of."""
    if node.op != "ConstantOfShape":
        return feeds[node.inputs[0]].itemsize
    value = node.attrs.get("value")
    return np.dtype(np.float32).itemsize if value is None else np.asarray(value).itemsize


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
    inputs = bound(graph.inputs, {} if input_shapes is None else input_shapes)
    known = replace(graph, inputs=inputs, constants=constants, types=types, defaults={})
    check_operators(graph)
    pending = list(reversed(graph.nodes))
    while pending:
        node = pending.pop()
        with blamed_on(node):
            if is_branching(node):
                inside, own = taken(node, known)
                pending += reversed(inside)
                constants.update(own)
                continue
            check_form(node)
            folded = constant_results(node, known)
            if folded is None:
                _check_plannable(node)
                _settle_sizes(node, known, constants)
                nodes.append(node)
                types.update(_infer(node, known))
            else:
                constants.update(folded)
                types.update(_types_of_sizes(node, known, folded))
    return replace(known, nodes=tuple(nodes)).pruned()


def _types_of_sizes(
    node: Node, graph: Graph, results: Mapping[str, Array]
) -> dict[str, TensorType]:
    """The types of results that are sizes which only a run knows."""
    return {
        value: type_of(node, graph, array) for value, array in results.items() if is_open(array)
    }


def _settle_sizes(node: Node, graph: Graph, constants: dict[str, Array]) -> None:
    """Take the typical numbers where sizes are data of a node."""
    for place, value in enumerate(node.inputs):
        if place not in _OPEN.get(node.op, ()) and is_open(graph.constants.get(value)):
            constants[value] = fixed(value, graph)


def fold_constants(graph: Graph) -> Graph:
    """The graph without nodes whose sources are constant, as what passes write may be."""
    constants, types = dict(graph.constants), dict(graph.types)
    known = replace(graph, constants=constants, types=types)
    nodes = []
    for node in graph.nodes:
        written = JOINT in node.name and node.op not in _AS_FILES_HAVE_THEM
        with blamed_on(node):
            folded = None if written else constant_results(node, known)
        if folded is None:
            nodes.append(node)
        else:
            constants.update(folded)
            types.update(_types_of_sizes(node, known, folded))
    return replace(known, nodes=tuple(nodes)).pruned()


def rebatched(graph: Graph, batch: int) -> Graph:
    """The graph with ``batch`` as the first size of every input, and wherever else the name of one
    is.

    Reshape targets that spell the old batch as their first size follow.

    Raises InvalidArguments where they cannot be found because other sizes are open.
    """
    if not _is_size(batch) or batch < 1:
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
            if _needs_shape(kind):  # sizes of 1 did not fit: they must be given
                check_shape(name, kind, kind.shape, graph.inputs)
        raise
    targets = {}
    for node in old.nodes:
        target = old.constants.get(node.input(1)) if node.op == "Reshape" else None
        if target is None or len(target) < 2 or old.shape_of(node.inputs[0])[:1] != (target[0],):
            continue
        targets[node.name] = np.array([batch, *target[1:]], np.int64)
    return targets


def ones_for_open(inputs: Mapping[str, TensorType]) -> dict[str, Shape]:
    """The declared shapes, with 1 for each size that the model leaves open."""
    return {
        name: tuple(1 if isinstance(n, str) else n for n in kind.shape)
        for name, kind in inputs.items()
    }


def bound(inputs: Mapping[str, TensorType], shapes: Mapping[str, Shape]) -> dict[str, TensorType]:
    """The inputs with every size known.

    Raises InvalidArguments for shapes that are open or contradict the declared ones.
    """
    if not isinstance(shapes, Mapping):
        rule = "expected a mapping from the names of inputs to their sizes"
        raise InvalidArguments("input_shapes", shapes, rule)
    for name in shapes.keys() - inputs.keys():
        rule = f"no such input; there are {', '.join(inputs)}"
        raise InvalidArguments("input", name, rule)
    sizes: dict[str, tuple[int | str, ...]] = {
        name: read_sequence(f"input {name!r}", given, "expected a sequence of sizes")
        for name, given in shapes.items()
    }
    for name, given in sizes.items():
        check_shape(name, inputs[name], given, inputs)
    named = _named_sizes(inputs, sizes)
    for name, kind in inputs.items():
        if name not in sizes:
            sizes[name] = tuple(named.get(n, n) if isinstance(n, str) else n for n in kind.shape)
            check_shape(name, kind, sizes[name], inputs)
    return {
        name: TensorType(kind.dtype, tuple(map(known_int, sizes[name])))
        for name, kind in inputs.items()
    }


def _named_sizes(
    inputs: Mapping[str, TensorType], sizes: Mapping[str, tuple[int | str, ...]]
) -> dict[str, int]:
    """The sizes of the names in the declared shapes.

    Raises InvalidArguments where one would have two sizes.
    """
    named: dict[str, tuple[int, str]] = {}
    for name, given in sizes.items():
        declared = inputs[name].shape
        for size, value in zip(declared, given, strict=declared != UNRANKED):
            if isinstance(size, int) or declared == UNRANKED:
                continue
            before, where = named.setdefault(size, (known_int(value), name))
            if before != value:
                found = f"it is {before} in input {where!r} and {value} here"
                rule = f"{size} of {inputs[name]} must be one size: {found}"
                raise InvalidArguments(f"input {name!r}", given, rule)
    return {size: value for size, (value, _) in named.items()}


def check_shape(
    name: str, kind: TensorType, sizes: tuple[int | str, ...], inputs: Mapping[str, TensorType]
) -> None:
    """Raise InvalidArguments where ``sizes`` do not fit what input ``name`` of ``inputs``
    declares."""
    argument = f"input {name!r}"
    unknown = [size for size in sizes if isinstance(size, str)]
    if unknown:
        rule = f"the model leaves {', '.join(dict.fromkeys(unknown))} of {kind} open"
        opened = {key: kind for key, kind in inputs.items() if _open(kind.shape)}
        hint = f"for example model.with_shapes({ones_for_open(opened)})"
        if not any(map(_needs_shape, opened.values())):
            hint += ", or compile(batch=1)"
        raise InvalidArguments(argument, sizes, rule, hint)
    if not all(_is_size(size) and known_int(size) >= 0 for size in sizes):
        raise InvalidArguments(argument, sizes, "sizes must be integers of at least 0")
    fits = len(sizes) == len(kind.shape) and all(
        isinstance(n, str) or n == size for n, size in zip(kind.shape, sizes, strict=True)
    )
    if not fits and kind.shape != UNRANKED:
        raise InvalidArguments(argument, sizes, f"wrong shape: the model expects {kind}")


def _open(shape: tuple[int | str, ...]) -> bool:
    return any(isinstance(size, str) for size in shape)


def _needs_shape(kind: TensorType) -> bool:
    """Whether a batch is not all that an input leaves open."""
    return kind.shape == UNRANKED or _open(kind.shape[1:])


def _is_size(value: object) -> bool:
    return isinstance(value, int | np.integer | Size) and not isinstance(value, bool)


def check_operators(graph: Graph) -> None:
    """Raise Unimplemented with every operator that is neither known nor computable beforehand."""
    constant = set(graph.constants)
    unknown: dict[str, list[str]] = {}
    for node in graph.nodes:
        foldable = constant.issuperset(node.reads) and node.op not in RANDOM
        if is_branching(node):
            continue  # whichever branch is taken has its own
        if runs_between(node):
            _check_bodies(node, graph)
            continue
        if not node.domain and (foldable or node.op in SIZES):
            constant.update(node.outputs)
        elif row_name(node) not in OPERATORS and row_name(node) not in FOLDED:
            unknown.setdefault(row_name(node), []).append(node.name)
    if unknown:
        reasons = [
            f"operator {operator} of {_summarized(names)}" for operator, names in unknown.items()
        ]
        raise Unimplemented("the model uses operators that this runner does not know", reasons)


def _check_plannable(node: Node) -> None:
    """Raise Unimplemented for what one plan cannot compute, where a model is run in parts."""
    if runs_between(node) or row_name(node) not in OPERATORS:
        raise Unimplemented(f"{node}: contents decide its result; no single plan computes it")


def _check_bodies(node: Node, graph: Graph) -> None:
    """The same of the graphs inside a node."""
    for body in node.attrs.values():
        if isinstance(body, Branch):
            constants = {**graph.constants, **body.constants}
            check_operators(replace(graph, nodes=body.nodes, constants=constants))


def _summarized(names: Sequence[str]) -> str:
    first = f"node {names[0]!r}"
    return first if len(names) == 1 else f"{len(names)} nodes, the first is {first}"


def constant_results(node: Node, graph: Graph) -> dict[str, Array] | None:
    """The results of a node that needs no input of the model; None for any other."""
    if node.op == "Shape" and node.inputs[0] not in graph.constants:
        rank = len(graph.shape_of(node.inputs[0]))
        part = slice(node.attrs.get("start", 0), node.attrs.get("end", rank))
        return {node.output: array_of(graph.shape_of(node.inputs[0])[part])}
    if node.op == "Size" and node.inputs[0] not in graph.constants:
        return {node.output: array_of([prod(graph.shape_of(node.inputs[0]))]).reshape(())}
    if node.op in RANDOM or any(value not in graph.constants for value in node.reads):
        return None
    if node.domain or not is_folded(node):
        return None
    if any(is_open(graph.constants[value]) for value in node.reads):
        moves = node.op in _OPEN and not is_open(graph.constants[node.inputs[0]])
        if moves or node.op == "Range":
            return None  # how many elements there are is not known
        found = computed(node, graph)
        if found is not None:
            return {node.output: found}
        known = {
            value: fixed(value, graph) if is_open(own := graph.constants[value]) else own
            for value in node.reads
        }
        graph = replace(graph, constants=known)
    if node.op in (QUANTIZE, DEQUANTIZE):
        check_parameters(Scope(node, graph))
        return converted(node, graph)
    function = exact_function(node, graph) if node.op in OPERATORS else None
    if function is not None:
        (kind,) = OPERATORS[node.op].infer(Scope(node, graph))
        whole = folded(function, [graph.constants[v] for v in node.inputs], kind.dtype)
        if whole is not None:
            return {node.output: whole}
    if node.op == "GatherElements":  # ONNX's own implementation fails for more than two dimensions
        data, indices = (graph.constants[value] for value in node.reads)
        axis = Scope(node, graph).axis(0)
        sizes = enumerate(indices.shape)
        data = data[tuple(slice(None if d == axis else size) for d, size in sizes)]
        return {node.output: np.take_along_axis(data, indices.astype(np.int64), axis)}
    return evaluate(node, {v: graph.constants[v] for v in node.reads}, graph.opset)


def evaluate(node: Node, feeds: Mapping[str, Array], opset: int) -> dict[str, Array]:
    """The results of one node on given sources, by ONNX's reference implementation."""
    proto = node_to_proto(node)
    sources = [onnx.ValueInfoProto(name=value) for value in feeds]
    results = [onnx.ValueInfoProto(name=value) for value in node.outputs if value]
    body = helper.make_graph([proto], "constant", sources, results)
    model = helper.make_model(body, opset_imports=[helper.make_operatorsetid("", opset)])
    if node.op in _GROWING:
        elements = _GROWING[node.op](*(feeds[value] for value in node.reads))
        check_capacity(elements * _element_bytes(node, feeds))
    try:
        with np.errstate(all="ignore"):
            arrays: Any = ReferenceEvaluator(model).run(None, dict(feeds))
    except MemoryError:
        raise
    except Exception as error:  # whatever NumPy code meets in a damaged or foreign node
        raise ModelError(f"{node} cannot be computed from constants: {error}") from error
    return {r.name: np.asarray(a) for r, a in zip(results, arrays, strict=True)}


def _infer(node: Node, graph: Graph) -> dict[str, TensorType]:
    kinds = OPERATORS[row_name(node)].infer(Scope(node, graph))
    for value in node.outputs[len(kinds) :]:
        if graph.uses()[value]:
            raise Unimplemented(f"{node}: its output {value!r} is not computed")
    return dict(zip(node.outputs, kinds, strict=False))
