"""Nodes whose sources are constants, computed by ONNX's reference implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dnnl import lazy
from dnnl.graph.graph import Array, ModelError, Node
from dnnl.onnx.write import node_to_proto
from dnnl.runtime.storage import check_capacity

_reference = lazy.Module("onnx.reference")  # importing it takes 20 ms, and few models need it


def _product(sizes: Array) -> int:
    """The product of sizes in a constant, without overflow."""
    return prod(map(int, np.ravel(sizes)))


def _broadcast(source: Array, sizes: Array) -> int:
    """The elements of an array that is broadcast to sizes and that they are broadcast to."""
    wanted = [int(size) for size in np.ravel(sizes)]
    pairs = zip_longest(reversed(source.shape), reversed(wanted), fillvalue=1)
    return prod(max(pair) for pair in pairs)


_GROWING: Mapping[str, Callable[..., int]] = {
    "BlackmanWindow": _product,
    "ConstantOfShape": _product,
    "Expand": _broadcast,
    "HammingWindow": _product,
    "HannWindow": _product,
    "MelWeightMatrix": lambda bins, length, *_: int(bins) * (int(length) // 2 + 1),
    "Tile": lambda source, repeats: source.size * _product(repeats),
}
"""How many elements come out of operators that make much of little."""


def _element_bytes(node: Node, feeds: Mapping[str, Array]) -> int:
    """The size of what an operator of `_GROWING` makes much of."""
    if node.op != "ConstantOfShape":
        return feeds[node.inputs[0]].itemsize
    value = node.attrs.get("value")
    return np.dtype(np.float32).itemsize if value is None else np.asarray(value).itemsize


def evaluate(node: Node, feeds: Mapping[str, Array], opset: int) -> dict[str, Array]:
    """The results of one node on given sources, by ONNX's reference implementation."""
    if node.op == "Constant" and "value" in node.attrs:  # of which files may have hundreds
        return {node.output: np.asarray(node.attrs["value"])}
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
            arrays: Any = _reference.ReferenceEvaluator(model).run(None, dict(feeds))
    except MemoryError:
        raise
    except Exception as error:  # whatever NumPy code meets in a damaged or foreign node
        raise ModelError(f"{node} cannot be computed from constants: {error}") from error
    return {r.name: np.asarray(a) for r, a in zip(results, arrays, strict=True)}
