"""Transposed convolutions whose windows do not overlap, as products of each pixel.

A window of k x k pixels at stride k adds to no other one. So the result is a 1x1 convolution with
k x k channels for each one, whose elements then go to their places. Where only a run knows the size
of the image this needs no kernel for each, as a transposed convolution does.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from dnnl.graph.graph import Graph, Node
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.operators.convolution import deconvolution_window
from dnnl.types.size import is_known


def deconvolutions_by_products(graph: Graph) -> Graph:
    """The graph without those transposed convolutions of images of open sizes."""
    nodes: list[Node] = []
    types, constants = dict(graph.types), dict(graph.constants)
    for node in graph.nodes:
        if not _writes_each_once(node, graph):
            nodes.append(node)
            continue
        writer = Writer(node, graph)
        _write(writer)
        writer.finish()
        nodes.extend(writer.nodes)
        types.update(writer.types)
        constants.update(writer.constants)
    return replace(graph, nodes=tuple(nodes), types=types, constants=constants).pruned()


def _writes_each_once(node: Node, graph: Graph) -> bool:
    if node.op != "ConvTranspose" or node.attrs.get("group", 1) != 1:
        return False
    scope = Scope(node, graph)
    if all(map(is_known, scope.shape())) or node.inputs[1] not in graph.constants:
        return False
    window = deconvolution_window(scope)
    dense = window.kernel == window.strides and set(window.dilations) == {1}
    padded = any((*window.padding_l, *window.padding_r))
    known = not node.input(2) or node.input(2) in graph.constants
    return dense and not padded and known and not any(each.operands for each in node.post_ops)


def _write(writer: Writer) -> None:
    node, graph = writer.node, writer.graph
    shape, weights = graph.shape_of(node.inputs[0]), graph.constants[node.inputs[1]]
    channels, taps = weights.shape[1], weights.shape[2:]
    rank, each = len(taps), prod(taps)
    ones = (1,) * rank
    by_taps = weights.transpose(*range(1, rank + 2), 0).reshape(channels * each, -1, *ones)
    sources = [node.inputs[0], writer.constant(by_taps)]
    if node.input(2):
        sources.append(writer.constant(np.repeat(graph.constants[node.input(2)], each)))
    image = (shape[0], channels * each, *shape[2:])
    kind = graph.type_of(node.output).dtype
    value = writer.add("Conv", tuple(sources), image, {"kernel_shape": ones}, kind)
    writer.nodes[-1] = replace(writer.nodes[-1], post_ops=node.post_ops, fused=node.fused)
    apart = (shape[0], channels, *taps, *shape[2:])
    value = writer.reshape(value, apart, kind)
    pairs = [axis for d in range(rank) for axis in (2 + rank + d, 2 + d)]
    perm = (0, 1, *pairs)
    value = writer.add("Transpose", (value,), tuple(apart[d] for d in perm), {"perm": perm}, kind)
    writer.reshape(value, graph.shape_of(node.output), kind)
