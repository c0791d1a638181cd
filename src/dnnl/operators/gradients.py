"""Gradients of convolutions, poolings and softmax, which graphs of training have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dnnl.graph.graph import ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.sizes import same_shape
from dnnl.graph.training import (
    AVERAGE_POOL,
    CONV_DATA,
    CONV_WEIGHTS,
    DOMAIN,
    MAX_POOL,
    SOFTMAX,
)
from dnnl.lowering.facts import Source, amount
from dnnl.lowering.graphs import Lowering
from dnnl.operators.operator import Operator
from dnnl.operators.window import Window
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.pooling import PoolingDesc
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

_DIRECT = "convolution_direct"


def _infer_data(scope: Scope) -> list[TensorType]:
    """The type of the source of the convolution."""
    _check_result(scope, 2, scope.shape(1)[0], _window(scope, 2, scope.shape(1)[2:]))
    return [scope.type(2)]


def _infer_weights(scope: Scope) -> list[TensorType]:
    """[M, C / group, ...], and [M] for the bias."""
    channels, source = scope.shape()[1], scope.shape(1)
    kernel = tuple(scope.attr("kernel_shape"))
    _check_result(scope, 1, channels, _window(scope, 1, kernel))
    weights = channels, source[1] // scope.attr("group", 1), *kernel
    kind = scope.type().dtype
    return [TensorType(kind, weights), TensorType(kind, (channels,))][: len(scope.node.outputs)]


def _window(scope: Scope, source: int, kernel: Shape) -> Window:
    return Window.over(scope.shape(source)[2:], kernel, scope.node.attrs)


def _check_result(scope: Scope, source: int, channels: int, window: Window) -> None:
    """The gradient of the result has the shape of the result."""
    expected = scope.shape(source)[0], channels, *window.out
    if not same_shape(scope.shape(), expected):
        raise ModelError(f"gradient {scope.shape()} of a result {expected}")


def _lower_data(lowering: Lowering, node: Node) -> None:
    scope = Scope(node, lowering.graph)
    gradient, shape = lowering.source(node.inputs[0]), scope.shape(1)
    weights = lowering.source(node.inputs[1], _grouped(shape, node))
    window = _window(scope, 2, shape[2:])
    desc = ConvolutionDesc.backward_data(
        _DIRECT,
        lowering.result(node, scope.shape(2)),
        lowering.weights(weights),
        lowering.wish(gradient),
        *_slides(window),
    )
    args: dict[int, Source] = {Arg.DIFF_DST: gradient, Arg.WEIGHTS: weights}
    flops = 2.0 * amount(scope.shape()) * amount(shape[1:])
    lowering.define(node.output, lowering.emit(node, desc, args, flops))


def _lower_weights(lowering: Lowering, node: Node) -> None:
    scope = Scope(node, lowering.graph)
    gradient, source = (lowering.source(value) for value in node.inputs)
    shape = lowering.graph.shape_of(node.output)
    biases = dict(zip([int(Arg.DIFF_BIAS)], node.outputs[1:], strict=False))
    desc = ConvolutionDesc.backward_weights(
        _DIRECT,
        lowering.wish(source),
        lowering.result(node, _grouped(shape, node)),
        lowering.wish(gradient),
        *_slides(_window(scope, 1, shape[2:])),
        MemoryDesc(shape[:1], gradient.desc.data_type) if biases else None,
    )
    args: dict[int, Source] = {Arg.SRC: source, Arg.DIFF_DST: gradient}
    flops = 2.0 * amount(scope.shape()) * amount(shape[1:])
    lowering.define(node.output, lowering.emit(node, desc, args, flops, further=biases))


def _grouped(shape: Shape, node: Node) -> Shape:
    """Weights [M, C / group, ...] with an axis of groups where there is more than one."""
    group = node.attrs.get("group", 1)
    return shape if group == 1 else (group, shape[0] // group, *shape[1:])


def _slides(window: Window) -> tuple[Shape, Shape, Shape, Shape]:
    return window.strides, window.padding_l, window.padding_r, window.gaps


def _infer_pooling(scope: Scope) -> list[TensorType]:
    """The type of the source of the pooling."""
    window = _window(scope, 1, tuple(scope.attr("kernel_shape")))
    _check_result(scope, 1, scope.shape(1)[1], window)
    return [scope.type(1)]


def _lower_maximum(lowering: Lowering, node: Node) -> None:
    """The places of the maxima are found again: the workspace of a pooling in training."""
    gradient, source = (lowering.source(value) for value in node.inputs)
    dst = MemoryDesc(gradient.desc.dims, source.desc.data_type, "any")
    places = _places(lowering, node)
    desc = PoolingDesc.forward("forward_training", "pooling_max", source.desc, dst, *places)
    result = lowering.emit(node, desc, {Arg.SRC: source})
    workspace = lowering.further(Arg.WORKSPACE, result.desc.dims)
    _emit_pooling(lowering, node, "pooling_max", source, result, {Arg.WORKSPACE: workspace})


def _lower_average(lowering: Lowering, node: Node) -> None:
    gradient, source = (lowering.source(value) for value in node.inputs)
    include = bool(node.attrs.get("count_include_pad", 0))
    alg = f"pooling_avg_{'include' if include else 'exclude'}_padding"
    like = MemoryDesc(source.desc.dims, source.desc.data_type)
    _emit_pooling(lowering, node, alg, Source(like), gradient, {})


def _emit_pooling(
    lowering: Lowering,
    node: Node,
    alg: str,
    source: Source,
    result: Source,
    args: Mapping[int, Source],
) -> None:
    """The gradient of a pooling between two layouts."""
    places = _places(lowering, node)
    desc = PoolingDesc.backward(alg, source.desc, result.desc, *places)
    gradient = lowering.source(node.inputs[0])
    made = lowering.emit(node, desc, {**args, Arg.DIFF_DST: gradient})
    lowering.define(node.output, made)


def _places(lowering: Lowering, node: Node) -> Sequence[Shape]:
    window = _window(Scope(node, lowering.graph), 1, tuple(node.attrs["kernel_shape"]))
    return window.strides, window.kernel, window.padding_l, window.padding_r, window.gaps


def _infer_like_result(scope: Scope) -> list[TensorType]:
    if scope.shape() != scope.shape(1):
        raise ModelError(f"gradient {scope.shape()} of a result {scope.shape(1)}")
    return [scope.type()]


def _lower_softmax(lowering: Lowering, node: Node) -> None:
    gradient, result = (lowering.source(value) for value in node.inputs)
    alg = "softmax_log" if node.attrs.get("log", 0) else "softmax_accurate"
    plain = MemoryDesc(gradient.desc.dims, lowering.kind(node.output))
    descs = plain, plain.with_data_type(gradient.desc.data_type)
    of = plain.with_data_type(result.desc.data_type)
    desc = SoftmaxDesc.backward(alg, *descs, of, Scope(node, lowering.graph).axis(-1))
    args: dict[int, Source] = {Arg.DST: result, Arg.DIFF_DST: gradient}
    lowering.define(node.output, lowering.emit(node, desc, args))


OPERATORS: Mapping[str, Operator] = {
    f"{DOMAIN}.{name}": Operator(infer, lower, inputs=(count, count), required=required)
    for name, infer, lower, count, required in (
        (CONV_DATA, _infer_data, _lower_data, 3, ()),
        (CONV_WEIGHTS, _infer_weights, _lower_weights, 2, ("kernel_shape",)),
        (MAX_POOL, _infer_pooling, _lower_maximum, 2, ("kernel_shape",)),
        (AVERAGE_POOL, _infer_pooling, _lower_average, 2, ("kernel_shape",)),
        (SOFTMAX, _infer_like_result, _lower_softmax, 2, ()),
    )
}
