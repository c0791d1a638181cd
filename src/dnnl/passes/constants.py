"""What a model computes from constants, and from sizes, without running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from dnnl.graph.graph import JOINT, Array, Graph, ModelError, Node, TensorType, blamed_on, is_whole
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import array_of, computed, fixed, is_open, rounded_quotient, type_of
from dnnl.graph.training import RESIZE, RESIZE_DATA
from dnnl.onnx.evaluate import evaluate
from dnnl.operators.exact import exact_function
from dnnl.operators.numbers import HAS_ELEMENT, SIZES, is_folded
from dnnl.operators.operator import not_computed
from dnnl.operators.parts import slices_of
from dnnl.operators.quantization import DEQUANTIZE, QUANTIZE, converted
from dnnl.operators.quantize_linear import WITH_ALL_TYPES, is_plain
from dnnl.operators.table import MADE, OPERATORS
from dnnl.reference.expression import exact
from dnnl.types.dtype import DataType

_AS_FILES_HAVE_THEM = frozenset(
    {"Add", "Cast", "Div", "Equal", "Expand", "Gather", "Mul", "Not", "Or"}
)
"""Operators that passes write with the attributes and sources that files give them."""

OPEN_SOURCES: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "CenterCropPad": (1,),
    "Expand": (1,),
    "GroupQueryAttention": (6,),
    "OneHot": (1,),
    "Pad": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (3,),
    "Slice": (1, 2),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    **dict.fromkeys((RESIZE, RESIZE_DATA), (1,)),
}
"""The sources that may be sizes which only a run knows, where others are data."""

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
)
"""Operators whose results no source decides."""


def fold_constants(graph: Graph) -> Graph:
    """The graph without nodes whose sources are constant, as what passes write may be."""
    constants, types = dict(graph.constants), dict(graph.types)
    known = replace(graph, constants=constants, types=types)
    nodes = []
    for node in graph.nodes:
        written = (JOINT in node.name and node.op not in _AS_FILES_HAVE_THEM) or node.op in MADE
        with blamed_on(node):
            folded = None if written else constant_results(node, known)
        if folded is None:
            nodes.append(node)
        else:
            constants.update(folded)
            types.update(types_of_sizes(node, known, folded))
    return replace(known, nodes=tuple(nodes)).pruned()


def constant_results(node: Node, graph: Graph) -> dict[str, Array] | None:
    """The results of a node that needs no input of the model; None for any other."""
    sizes = _sizes(node, graph)
    if sizes is not None:
        return {node.output: sizes}
    if node.op in RANDOM or any(value not in graph.constants for value in node.reads):
        return None
    if node.domain or not is_folded(node):
        return None
    if any(is_open(graph.constants[value]) for value in node.reads):
        if _is_left_to_runs(node, graph):
            return None
        found = computed(node, graph)
        if found is not None:
            return {node.output: found}
        known = {
            value: fixed(value, graph) if is_open(own := graph.constants[value]) else own
            for value in node.reads
        }
        graph = replace(graph, constants=known)
    if node.op in (QUANTIZE, DEQUANTIZE):
        (kind,) = OPERATORS[node.op].infer(Scope(node, graph))
        if is_plain(node, graph, kind.dtype):
            return converted(node, graph, kind.dtype)
        graph = replace(graph, opset=max(graph.opset, WITH_ALL_TYPES))
    function = exact_function(node, graph) if node.op in OPERATORS else None
    if function is not None:
        (kind,) = OPERATORS[node.op].infer(Scope(node, graph))
        whole = folded(function, [graph.constants[v] for v in node.inputs], kind.dtype)
        if whole is not None:
            return {node.output: whole}
    moved = _moved(node, graph)
    if moved is not None:
        return {node.output: moved}
    return _evaluated(node, graph)


def _is_rounded(node: Node, graph: Graph) -> bool:
    """Whether a node is a quotient of sizes as floats that others round to sizes, so that no run
    computes it."""
    if node.op != "Div" or node.output in graph.outputs.values():
        return False
    readers = [own for own in graph.nodes if node.output in own.reads]
    return bool(readers) and all(
        _rounds(own) and rounded_quotient(own, node, graph) is not None for own in readers
    )


def _rounds(node: Node) -> bool:
    return node.op in ("Ceil", "Floor") and not node.domain


def _rounded_quotient(node: Node, graph: Graph) -> Array | None:
    """The sizes that a node makes of such a quotient; None of other values."""
    if node.inputs[0] in graph.constants:
        return None
    division = next((own for own in graph.nodes if node.inputs[0] in own.outputs), None)
    if division is None or division.op != "Div":
        return None
    known = [graph.constants.get(value) for value in division.inputs]
    if any(own is None for own in known) or not any(map(is_open, known)):
        return None
    return rounded_quotient(node, division, graph)


def _is_left_to_runs(node: Node, graph: Graph) -> bool:
    """Whether a run does what open sizes decide: how many elements there are, or which row of a
    table is read, such as that of a position behind a cache."""
    data = graph.constants[node.inputs[0]]
    if node.op in ("ConstantOfShape", "Range") or _is_rounded(node, graph):
        return True
    if is_open(data):
        return False
    return node.op in OPEN_SOURCES or (node.op == "Gather" and not is_whole(data.dtype))


def _evaluated(node: Node, graph: Graph) -> dict[str, Array] | None:
    """What ONNX's own implementation gives; None where it fails at what steps may compute."""
    try:
        return evaluate(node, {v: graph.constants[v] for v in node.reads}, graph.opset)
    except ModelError:
        row = OPERATORS.get(node.op)
        if row is None or (row.lower is not_computed and row.expand is None):
            raise
        return None


def _sizes(node: Node, graph: Graph) -> Array | None:
    """The result of Shape, Size or OptionalHasElement of a value of known shape that is no number,
    or of a quotient of sizes that is rounded; None for others."""
    if _rounds(node):
        return _rounded_quotient(node, graph)
    if node.op not in SIZES:
        return None
    known = graph.constants.get(node.input(0))
    if known is not None and not is_open(known):
        return None
    if node.op == HAS_ELEMENT:
        return np.array(True) if node.input(0) else None
    shape = graph.shape_of(node.inputs[0])
    if node.op == "Size":
        return array_of([prod(shape)]).reshape(())
    return array_of(shape[node.attrs.get("start", 0) : node.attrs.get("end", len(shape))])


def _moved(node: Node, graph: Graph) -> Array | None:
    """The elements of constants in other places, where ONNX's own implementation is wrong."""
    scope = Scope(node, graph)
    if node.op == "BitCast":  # which older operator sets do not have
        (kind,) = OPERATORS[node.op].infer(scope)
        return graph.constants[node.inputs[0]].view(kind.dtype)
    if node.op == "Flatten":  # which it cannot do of nothing
        (kind,) = OPERATORS[node.op].infer(scope)
        return graph.constants[node.inputs[0]].reshape(kind.sizes)
    if node.op == "Slice":  # it begins as Python does, see first_of
        data = graph.constants[node.inputs[0]]
        for part in slices_of(scope):
            data = data.take(part.first + part.step * np.arange(part.count), part.axis)
        return data
    if node.op == "GatherElements":  # it fails for more than two dimensions
        data, indices = (graph.constants[value] for value in node.reads)
        axis = scope.axis(0)
        sizes = enumerate(indices.shape)
        data = data[tuple(slice(None if d == axis else size) for d, size in sizes)]
        return np.take_along_axis(data, indices.astype(np.int64), axis)
    return None


def types_of_sizes(node: Node, graph: Graph, results: Mapping[str, Array]) -> dict[str, TensorType]:
    """The types of results that are sizes which only a run knows."""
    return {
        value: type_of(node, graph, array) for value, array in results.items() if is_open(array)
    }


def folded(function: str, sources: Sequence[Array], result: np.dtype[Any]) -> Array | None:
    """The integers that a function makes of constants, None where it makes others.

    ONNX's own implementation refuses negative exponents, computes powers of some types as floats,
    and leaves to the processor what becomes of floats that no integer holds.
    """
    taken = _NUMBERS if function == "cast" else _WHOLE
    if result not in _WHOLE or any(source.dtype not in taken for source in sources):
        return None
    return exact(function, sources, DataType.from_numpy(result))


_NUMBERS = {kind.numpy for kind in DataType if kind.bits >= 16 or kind.is_integer}
_WHOLE = set(filter(is_whole, _NUMBERS))
