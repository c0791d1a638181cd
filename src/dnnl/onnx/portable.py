"""Graphs in the operators that ONNX has, and the operator set that has them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import onnx

from dnnl.errors import Unimplemented
from dnnl.graph.graph import EXACT, FUNCTION, JOINT, Array, Graph, Node
from dnnl.graph.training import DOMAIN, RESIZE

_PRIVATE = frozenset((DOMAIN, FUNCTION, EXACT))
"""The domains of operators that no file can hold."""

_STABLE = 21
"""From this operator set on, a later one changes no operator but in the types that it takes."""

_COORDINATES = {"half_pixel_for_nearest": "half_pixel"}
_NEAREST_MODES = {"asymmetric": b"floor", "half_pixel_for_nearest": b"round_prefer_ceil"}
"""How ONNX rounds to the nearest element where coordinates are these."""


def portable(graph: Graph) -> Graph:
    """The graph in operators of ONNX, without what no output needs.

    Raises Unimplemented that names all nodes which ONNX does not have.
    """
    constants = dict[str, Array]()
    nodes: list[Node] = []
    refused: list[Node] = []
    for node in graph.pruned().nodes:
        write = _WRITTEN.get((node.domain, node.op))
        written = None if write is None else write(node, graph, constants)
        if written is None and node.domain in _PRIVATE:
            refused.append(node)
        nodes += [node] if written is None else written
    if refused:
        raise Unimplemented("the model has nodes that ONNX cannot hold", refused)
    opset, first = graph.opset, _first_operator_sets()
    if opset >= _STABLE:
        opset = max([opset, *(first.get(node.op, 0) for node in nodes if not node.domain)])
    every = {**graph.constants, **constants}
    needed = replace(graph, nodes=tuple(nodes), constants=every, opset=opset).pruned()
    defaults = {name: graph.constants[name] for name in graph.defaults}
    return replace(needed, constants={**defaults, **needed.constants})


@cache
def _first_operator_sets() -> Mapping[str, int]:
    """The first version of ONNX's operators that has each."""
    schemas = (own for own in onnx.defs.get_all_schemas_with_history() if not own.domain)
    newest_first = sorted(schemas, key=lambda own: -own.since_version)
    return {own.name: own.since_version for own in newest_first}


def _gated(node: Node, graph: Graph, _: dict[str, Array]) -> list[Node] | None:
    """A product with a sigmoid, where the operator set of the graph is older than Swish."""
    if node.attrs or graph.opset >= _first_operator_sets()["Swish"]:
        return None
    gate = f"{node.output}{JOINT}gate"
    return [
        Node("Sigmoid", gate, node.inputs, (gate,)),
        Node("Mul", node.name, (*node.inputs, gate), node.outputs),
    ]


def _resized(node: Node, graph: Graph, constants: dict[str, Array]) -> list[Node] | None:
    """Resize by sizes, or by the scales of all axes."""
    function, coordinates = (node.attrs[name].decode() for name in ("function", "coordinates"))
    attrs = {
        "mode": function.encode(),
        "coordinate_transformation_mode": _COORDINATES.get(coordinates, coordinates).encode(),
    }
    if function == "nearest":
        attrs["nearest_mode"] = _NEAREST_MODES[coordinates]
    (source, sizes), scales = node.inputs, node.attrs.get("scales")
    inputs: tuple[str, ...] = (source, "", "", sizes)
    if scales is not None:
        if None in scales or not _rounds_alike(graph.constants.get(sizes), scales):
            return None
        name = f"{node.output}{JOINT}scales"
        constants[name] = np.array([1, 1, *scales], np.float32)
        inputs = source, "", name
    return [replace(node, op="Resize", domain="", inputs=inputs, attrs=attrs)]


def _rounds_alike(sizes: Array | None, scales: Sequence[float]) -> bool:
    """Whether sizes, if they are known, are products with scales in f32, too, as ONNX has them."""
    for size, scale in () if sizes is None else zip(sizes[2:], scales, strict=True):
        around = range(int(size / scale), int((size + 1) / scale) + 2)
        for before in around:
            if int(before * scale) == size != int(np.float32(before) * np.float32(scale)):
                return False
    return True


_Write = Callable[[Node, Graph, dict[str, Array]], list[Node] | None]
_WRITTEN: Mapping[tuple[str, str], _Write] = {
    ("", "Swish"): _gated,
    (DOMAIN, RESIZE): _resized,
}
"""What writes a node of a graph as others, with new constants; None where it stays."""
