"""Softmax, of floats and of bytes."""

from __future__ import annotations

from collections.abc import Mapping

from dnnl.errors import Unimplemented
from dnnl.graph.graph import Node, is_whole
from dnnl.graph.scope import normal_axis
from dnnl.lowering.facts import Factors, volume
from dnnl.lowering.graphs import FORWARD, Lowering
from dnnl.operators.inference import same
from dnnl.operators.operator import ELTWISE_POST_OPS, Operator
from dnnl.operators.quantization import SOFTMAX
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.types.arg import Arg

MASKED_SOFTMAX = "dnnl.MaskedSoftmax"
"""A softmax that gives 0 for a row of -inf; an operator of expansions, which no file can hold."""


def _lower_softmax(lowering: Lowering, node: Node) -> None:
    """Before operator set 13 all dimensions from ``axis`` on are one. A row of -inf is NaN."""
    dtype = lowering.graph.type_of(node.inputs[0]).dtype
    if is_whole(dtype):
        raise Unimplemented(f"{node}: {node.op} of {dtype} is not computed; Cast makes f32 of it")
    shape = lowering.graph.shape_of(node.output)
    axis = normal_axis(node.attrs.get("axis", 1 if lowering.graph.opset < 13 else -1), len(shape))
    seen = shape
    if lowering.graph.opset < 13 and volume(shape[axis + 1 :]) != 1:
        seen, axis = (volume(shape[:axis]), volume(shape[axis:])), 1
    source = lowering.source(node.inputs[0], seen)
    alg = "softmax_log" if node.op == "LogSoftmax" else "softmax_accurate"
    dst = lowering.result(node, seen)
    desc = SoftmaxDesc.forward(FORWARD, alg, source.desc, dst, axis, masked_rows="nan")
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


def _lower_masked_softmax(lowering: Lowering, node: Node) -> None:
    """A softmax along an axis, 0 for a row of -inf."""
    source = lowering.source(node.inputs[0])
    dst = lowering.result(node, source.desc.dims)
    alg, axis = "softmax_accurate", node.attrs["axis"]
    desc = SoftmaxDesc.forward(FORWARD, alg, source.desc, dst, axis, masked_rows="zero")
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


def _lower_quantized_softmax(lowering: Lowering, node: Node) -> None:
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


OPERATORS: Mapping[str, Operator] = {
    op: Operator(same, _lower_softmax, post_ops=ELTWISE_POST_OPS)
    for op in ("LogSoftmax", "Softmax")
}
MADE: Mapping[str, Operator] = {
    MASKED_SOFTMAX: Operator(same, _lower_masked_softmax, post_ops=ELTWISE_POST_OPS),
    SOFTMAX: Operator(same, _lower_quantized_softmax, post_ops=ELTWISE_POST_OPS, inputs=(2, 2)),
}
