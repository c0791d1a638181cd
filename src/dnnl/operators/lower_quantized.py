"""Scales and zero points as a primitive takes them; products and softmax of bytes."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.framework.lowering import FORWARD, Factors, Lowering, Source, amount, volume
from dnnl.graph.graph import Node
from dnnl.primitives.matmul import MatmulDesc
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.types.arg import Arg

_SCALES, _SRC_ZERO_POINTS, _WEIGHTS_ZERO_POINTS = 3, 4, 5


def quantization_of(
    lowering: Lowering, node: Node, sources: Sequence[Source], masks: Sequence[int]
) -> list[Factors]:
    """What the last inputs of a product of bytes say. ``masks`` are the dimensions of src along
    which its zero points may vary, and those of the weights that are the results'."""
    src, weights = sources
    places = (
        (Arg.SCALES, Arg.WEIGHTS, _SCALES, weights, masks[1]),
        (Arg.ZERO_POINTS, Arg.SRC, _SRC_ZERO_POINTS, src, masks[0]),
        (Arg.ZERO_POINTS, Arg.WEIGHTS, _WEIGHTS_ZERO_POINTS, weights, masks[1]),
    )
    found = []
    for flag, argument, place, owner, mask in places:
        name = node.input(place)
        if not name:
            continue
        varied = 0 if volume(lowering.graph.shape_of(name)) == 1 else mask
        dims = tuple(n if varied >> d & 1 else 1 for d, n in enumerate(owner.desc.dims))
        found.append(Factors(flag, argument, varied, lowering.source(name, dims)))
    return found


def matmul(lowering: Lowering, node: Node) -> None:
    """A' x B' + bias of matrices, or of batches of them that are not transposed, in bytes."""
    graph = lowering.graph
    transposes = [bool(node.attrs.get(name, 0)) for name in ("transA", "transB")]
    rank = len(graph.shape_of(node.output))
    sources = []
    for value, transposed in zip(node.inputs[:2], transposes, strict=True):
        shape = graph.shape_of(value)
        order = (*range(rank - 2), rank - 1, rank - 2) if transposed else None
        sources.append(lowering.source(value, (1,) * (rank - len(shape)) + shape, order))
    src, weights = sources
    args: dict[int, Source] = {Arg.SRC: src, Arg.WEIGHTS: weights}
    bias = None
    if node.input(2):
        args[Arg.BIAS] = lowering.source(node.input(2), (*(1,) * (rank - 1), weights.desc.dims[-1]))
        bias = args[Arg.BIAS].desc
    wanted = lowering.weights(weights) if weights.constant else weights.desc
    desc = MatmulDesc(src.desc, wanted, lowering.ordered(node.output), bias)
    masks = 1 << (rank - 2), 1 << (rank - 1)
    factors = quantization_of(lowering, node, sources, masks)
    flops = 2.0 * amount((*graph.shape_of(node.output), src.desc.dims[-1]))
    lowering.define(node.output, lowering.emit(node, desc, args, flops, factors))


def softmax(lowering: Lowering, node: Node) -> None:
    """Of bytes with a scale: their zero point changes nothing."""
    source = lowering.source(node.inputs[0])
    scale = lowering.source(node.inputs[1], (1,) * source.desc.ndims)
    desc = SoftmaxDesc.forward(
        FORWARD,
        "softmax_log" if node.attrs["log"] else "softmax_accurate",
        source.desc,
        lowering.result(node, source.desc.dims),
        node.attrs["axis"],
    )
    factors = [Factors(Arg.SCALES, Arg.SRC, 0, scale)]
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}, 0.0, factors))
