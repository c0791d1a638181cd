"""Convolution and its transpose, pooling and normalization of images: [batch, channels, ...]."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dnnl.framework.lowering import FORWARD, Lowering, Source, amount
from dnnl.graph.graph import Node, Shape
from dnnl.graph.scope import Scope
from dnnl.operators.lower_quantized import quantization_of
from dnnl.operators.shapes import convolution_window, deconvolution_window, pooling_window
from dnnl.operators.window import Window
from dnnl.primitives.batch_normalization import BatchNormalizationDesc
from dnnl.primitives.convolution import ConvolutionDesc
from dnnl.primitives.deconvolution import DeconvolutionDesc
from dnnl.primitives.desc import Desc
from dnnl.primitives.pooling import PoolingDesc
from dnnl.primitives.reduction import ReductionDesc
from dnnl.types.arg import Arg
from dnnl.types.kinds import NormFlags
from dnnl.types.size import is_known


def convolution(lowering: Lowering, node: Node) -> None:
    """Weights [M, C / group, ...] gain an axis of groups where there is more than one."""
    scope = Scope(node, lowering.graph)
    shape, group = scope.shape(1), scope.attr("group", 1)
    grouped = shape if group == 1 else (group, shape[0] // group, *shape[1:])
    weights = lowering.source(node.inputs[1], grouped)
    describe = partial(ConvolutionDesc.forward, FORWARD, "convolution_direct")
    flops = 2.0 * amount(lowering.graph.shape_of(node.output)) * amount(shape[1:])
    _slide(lowering, node, describe, convolution_window(scope), weights, flops)


def deconvolution(lowering: Lowering, node: Node) -> None:
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
        _dilations(window),
        bias,
    )
    lowering.define(node.output, lowering.emit(node, desc, args, flops, factors))


def pooling(lowering: Lowering, node: Node) -> None:
    """Maximum or average over a window; the layout of the source stays."""
    scope = Scope(node, lowering.graph)
    if node.op.startswith("Global") and not all(map(is_known, scope.shape()[2:])):
        _reduced(lowering, node)
        return
    window = pooling_window(scope)
    source = lowering.source(node.inputs[0])
    alg = "pooling_max"
    if node.op.endswith("AveragePool"):
        include = bool(scope.attr("count_include_pad", 0))
        alg = f"pooling_avg_{'include' if include else 'exclude'}_padding"
    out = (*source.desc.dims[:2], *window.out)
    desc = PoolingDesc.forward(
        FORWARD,
        alg,
        source.desc,
        lowering.result(node, out),
        window.strides,
        window.kernel,
        window.padding_l,
        window.padding_r,
        _dilations(window),
    )
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


def _reduced(lowering: Lowering, node: Node) -> None:
    """A pooling of whole images of which only a run knows the size: no primitive has such a
    window."""
    source = lowering.source(node.inputs[0])
    alg = "reduction_max" if node.op == "GlobalMaxPool" else "reduction_mean"
    dst = (*source.desc.dims[:2], *(1 for _ in source.desc.dims[2:]))
    desc = ReductionDesc(alg, source.desc, lowering.result(node, dst))
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


def batch_normalization(lowering: Lowering, node: Node) -> None:
    """What no convolution before it could take in."""
    source = lowering.source(node.inputs[0])
    dst = lowering.result(node, source.desc.dims)
    flags = NormFlags.use_global_stats | NormFlags.use_scale | NormFlags.use_shift
    epsilon = node.attrs.get("epsilon", 1e-5)
    desc = BatchNormalizationDesc.forward(FORWARD, source.desc, dst, epsilon, flags)
    arguments = (Arg.SCALE, Arg.SHIFT, Arg.MEAN, Arg.VARIANCE)
    args: dict[int, Source] = {Arg.SRC: source}
    for argument, value in zip(arguments, node.inputs[1:5], strict=True):
        args[argument] = lowering.source(value)
    lowering.define(node.output, lowering.emit(node, desc, args))


def _dilations(window: Window) -> Shape:
    """Counted as the library does: 0 is a dense window."""
    return tuple(d - 1 for d in window.dilations)
