"""Convolutions and their transposes, of floats and of bytes: [batch, channels, ...]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from dnnl import config
from dnnl.graph.graph import ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.lowering.facts import Source, amount
from dnnl.lowering.graphs import FORWARD, Lowering
from dnnl.operators.factors import quantization_of
from dnnl.operators.operator import ANY_POST_OPS, Operator, product
from dnnl.operators.quantization import CONV, CONV_TRANSPOSE
from dnnl.operators.window import Window
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.deconvolution import DeconvolutionDesc
from dnnl.primitives.desc import Desc
from dnnl.types.arg import Arg


def infer_convolution(scope: Scope) -> list[TensorType]:
    """[N, C, ...] with weights [M, C / group, ...] gives [N, M, ...]."""
    source, weights = scope.shape(), scope.shape(1)
    group = scope.attr("group", 1)
    if group < 1 or len(source) < 3:
        raise ModelError(f"group {group} and source {source} are no convolution")
    if len(source) != len(weights) or source[1] != weights[1] * group or weights[0] % group:
        raise ModelError(f"source {source}, weights {weights} and group {group} disagree")
    if scope.node.input(2) and scope.shape(2) != weights[:1]:
        raise ModelError(f"bias {scope.shape(2)} has not one value for each of {weights[0]}")
    return scope.result((source[0], weights[0], *convolution_window(scope).out))


def convolution_window(scope: Scope) -> Window:
    """The window of a convolution; its kernel is the weights' shape."""
    return Window.over(scope.shape()[2:], _kernel(scope), scope.node.attrs)


def _kernel(scope: Scope) -> Shape:
    kernel = scope.shape(1)[2:]
    declared = tuple(scope.attr("kernel_shape", kernel))
    if declared != kernel:
        raise ModelError(f"kernel_shape {declared} is not the weights' {kernel}")
    return kernel


def _infer_deconvolution(scope: Scope) -> list[TensorType]:
    """[N, C, ...] with weights [C, M / group, ...] gives [N, M, ...]."""
    source, weights = scope.shape(), scope.shape(1)
    group = scope.attr("group", 1)
    if group < 1 or len(source) < 3:
        raise ModelError(f"group {group} and source {source} are no transposed convolution")
    if len(source) != len(weights) or source[1] != weights[0] or weights[0] % group:
        raise ModelError(f"source {source}, weights {weights} and group {group} disagree")
    channels = weights[1] * group
    if scope.node.input(2) and scope.shape(2) != (channels,):
        raise ModelError(f"bias {scope.shape(2)} has not one value for each of {channels}")
    return scope.result((source[0], channels, *deconvolution_window(scope).out))


def deconvolution_window(scope: Scope) -> Window:
    """The window of a transposed convolution; its kernel is the weights' shape."""
    return Window.onto(scope.shape()[2:], _kernel(scope), scope.node.attrs)


def _lower_convolution(lowering: Lowering, node: Node) -> None:
    """Weights [M, C / group, ...] gain an axis of groups where there is more than one."""
    scope = Scope(node, lowering.graph)
    shape, group = scope.shape(1), scope.attr("group", 1)
    grouped = shape if group == 1 else (group, shape[0] // group, *shape[1:])
    weights = lowering.source(node.inputs[1], grouped)
    describe = partial(ConvolutionDesc.forward, FORWARD, _algorithm(weights))
    flops = 2.0 * amount(lowering.graph.shape_of(node.output)) * amount(shape[1:])
    _slide(lowering, node, describe, convolution_window(scope), weights, flops)


def _algorithm(weights: Source) -> str:
    """Winograd's algorithm may be chosen for constant weights, which are transformed once."""
    allowed = bool(weights.constant) and config.get("winograd")
    return "convolution_auto" if allowed else "convolution_direct"


def _lower_deconvolution(lowering: Lowering, node: Node) -> None:
    """Weights [C, M / group, ...] gain an axis of groups where there is more than one, and are seen
    with M before C."""
    scope = Scope(node, lowering.graph)
    shape, group = scope.shape(1), scope.attr("group", 1)
    grouped = shape if group == 1 else (group, shape[0] // group, *shape[1:])
    taps = range(len(grouped))[2 - len(shape) :]
    order = (1, 0, *taps) if group == 1 else (0, 2, 1, *taps)
    weights = lowering.source(node.inputs[1], grouped, order)
    describe = partial(DeconvolutionDesc.forward, FORWARD, "deconvolution_direct")
    flops = 2.0 * amount(scope.shape()) * amount(shape[1:])
    _slide(lowering, node, describe, deconvolution_window(scope), weights, flops)


def _slide(
    lowering: Lowering,
    node: Node,
    describe: Callable[..., Desc],
    window: Window,
    weights: Source,
    flops: float,
) -> None:
    """A convolution or its transpose, with weights as the library has them."""
    source = lowering.source(node.inputs[0])
    out = lowering.graph.shape_of(node.output)
    args: dict[int, Source] = {Arg.SRC: source, Arg.WEIGHTS: weights}
    bias = None
    if node.input(2):
        args[Arg.BIAS] = lowering.source(node.input(2))
        bias = args[Arg.BIAS].desc
    grouped = weights.desc.ndims > source.desc.ndims
    factors = quantization_of(lowering, node, (source, weights), (0, 0b11 if grouped else 0b1))
    desc = describe(
        lowering.wish(source),
        lowering.weights(weights),
        lowering.result(node, out),
        window.strides,
        window.padding_l,
        window.padding_r,
        window.gaps,
        bias,
    )
    lowering.define(node.output, lowering.emit(node, desc, args, flops, factors))


OPERATORS: Mapping[str, Operator] = {
    "Conv": product(infer_convolution, _lower_convolution, (2, 3)),
    "ConvTranspose": product(_infer_deconvolution, _lower_deconvolution, (2, 3)),
}
MADE: Mapping[str, Operator] = {
    CONV: Operator(infer_convolution, _lower_convolution, post_ops=ANY_POST_OPS, inputs=(2, 6)),
    CONV_TRANSPOSE: Operator(
        _infer_deconvolution, _lower_deconvolution, post_ops=ANY_POST_OPS, inputs=(2, 6)
    ),
}
