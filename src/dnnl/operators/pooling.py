"""Pooling, and what is computed by it: [batch, channels, ...]."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from dnnl.graph.graph import JOINT, ModelError, Node, Shape, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.lowering.facts import Source
from dnnl.lowering.graphs import FORWARD, Lowering
from dnnl.operators.inference import same
from dnnl.operators.operator import ANY_POST_OPS, Expand, Operator, Role
from dnnl.operators.window import Window
from dnnl.operators.writing import counted, ended, powers, reduced, root
from dnnl.primitives.overhang import padded_shares
from dnnl.primitives.pooling import PoolingDesc
from dnnl.primitives.reduction import ReductionDesc
from dnnl.types.arg import Arg
from dnnl.types.size import is_known

_INDEX = np.dtype(np.int64)
_TAPS = "dnnl.MaxPoolTaps"
"""MaxPool whose second result is the index of the maximum within its window; an operator of
expansions, which no file can hold."""
_NUMBERED_BY_BYTES = 255


def infer_pooling(scope: Scope) -> list[TensorType]:
    """[N, C, ...] stays, with the spatial sizes of the window's positions."""
    return scope.result((*scope.shape()[:2], *pooling_window(scope).out))


def _infer_maximum(scope: Scope) -> list[TensorType]:
    """The maxima, and their flattened indices in the source."""
    (maxima,) = infer_pooling(scope)
    return [maxima, TensorType(_INDEX, maxima.shape)][: len(scope.node.outputs)]


def _infer_taps(scope: Scope) -> list[TensorType]:
    """The maxima, and their indices within the window."""
    (maxima,) = infer_pooling(scope)
    return [maxima, TensorType(_number_type(scope), maxima.shape)]


def _number_type(scope: Scope) -> np.dtype:
    few = prod(scope.attr("kernel_shape")) <= _NUMBERED_BY_BYTES
    return np.dtype(np.uint8 if few else np.int32)


def pooling_window(scope: Scope) -> Window:
    """The window of a pooling; a global one covers all that is there.

    Raises ModelError for padding as large as the kernel, where windows could see nothing else.
    """
    spatial = scope.shape()[2:]
    kernel = spatial if scope.node.op.startswith("Global") else tuple(scope.attr("kernel_shape"))
    window = Window.over(spatial, kernel, scope.node.attrs)
    pads = tuple(scope.attr("pads", ()))
    if any(pad >= size for pad, size in zip(pads, (*kernel, *kernel), strict=False)):
        raise ModelError(f"attribute 'pads' = {pads} must be smaller than the kernel {kernel}")
    return window


def _expand_maximum(writer: Writer) -> bool:
    """Flattened indices of maxima, from their indices within the window and the window's
    position."""
    node, graph = writer.node, writer.graph
    if len(node.outputs) < 2 or not node.outputs[1]:
        return False
    scope = Scope(node, graph)
    shape, source, window = graph.shape_of(node.output), scope.shape(), pooling_window(scope)
    maxima, taps = (f"{node.name}{JOINT}{what}" for what in ("maxima", "taps"))
    writer.nodes.append(Node(_TAPS, maxima, node.inputs, (maxima, taps), node.attrs))
    writer.types[maxima] = TensorType(writer.dtype, shape)
    writer.types[taps] = TensorType(_number_type(scope), shape)

    def add(op: str, *inputs: str, dims: Shape = shape) -> str:
        return writer.add(op, inputs, dims, dtype=_INDEX)

    def number(value: int) -> str:
        return writer.sizes([value], ())

    rest = writer.add("Cast", (taps,), shape, {"to": _INDEX}, _INDEX)
    images = shape[0] * shape[1]
    begin = writer.reshape(counted(writer, images), (*shape[:2], *[1] * len(window.out)), _INDEX)
    total = add("Mul", begin, number(prod(source[2:])), dims=(*shape[:2], *[1] * len(window.out)))
    order = list(range(len(window.out)))
    order = order if node.attrs.get("storage_order", 0) else order[::-1]
    strides = {dim: prod(source[2 + d] for d in order[:place]) for place, dim in enumerate(order)}
    for dim in reversed(range(len(window.out))):
        tap = add("Mod", rest, number(window.kernel[dim]))
        rest = add("Div", rest, number(window.kernel[dim]))
        own = tuple(size if d == dim + 2 else 1 for d, size in enumerate(shape))
        first = writer.reshape(counted(writer, window.out[dim]), own, _INDEX)
        first = add("Mul", first, number(window.strides[dim]), dims=own)
        first = add("Sub", first, number(window.padding_l[dim]), dims=own)
        place = add("Add", add("Mul", tap, number(window.dilations[dim])), first)
        total = add("Add", total, add("Mul", place, number(strides[dim])))
    writer.show(writer.reshape(total, shape, _INDEX), 1)
    writer.reshape(maxima, shape)
    return True


def _expand_norm(writer: Writer) -> bool:
    """(sum |x|^p)^(1/p). The sum is an average pooling that includes padding, times the window's
    size."""
    node, shape = writer.node, writer.graph.shape_of(writer.node.output)
    source = writer.graph.shape_of(node.inputs[0])
    power = node.attrs.get("p", 2)
    value = powers(writer, node.inputs[0], source, power)
    if node.op == "GlobalLpPool":
        value = reduced(writer, "ReduceSum", value, source, range(2, len(source)))
    else:
        attrs = {name: own for name, own in node.attrs.items() if name != "p"}
        window = pooling_window(Scope(node, writer.graph))
        factor: Any = prod(window.kernel)
        if any(window.overhang):  # a mean of the taps inside, times their number
            attrs["count_include_pad"] = 0
            factor = factor * padded_shares(
                source[2:],
                window.out,
                window.kernel,
                window.strides,
                window.dilations,
                window.padding_l,
                window.padding_r,
            )
        else:
            attrs["count_include_pad"] = 1
        value = writer.add("AveragePool", (value,), shape, attrs)
        value = writer.add("Mul", (value, writer.constant(factor)), shape)
    return ended(writer, root(writer, value, shape, power))


def _expand_average(writer: Writer) -> bool:
    """An average that counts padding, of windows that hang over it, as one that does not, times
    the shares of the taps inside."""
    node = writer.node
    scope = Scope(node, writer.graph)
    window = pooling_window(scope)
    if not scope.attr("count_include_pad", 0) or not any(window.overhang):
        return False
    padded = zip(window.padding_r, window.overhang, strict=True)
    shares = padded_shares(
        scope.shape()[2:],
        window.out,
        window.kernel,
        window.strides,
        window.dilations,
        window.padding_l,
        [behind - beyond for behind, beyond in padded],
    )
    shape, attrs = writer.graph.shape_of(node.output), {**node.attrs, "count_include_pad": 0}
    means = writer.add("AveragePool", (node.inputs[0],), shape, attrs)
    if (shares != 1).any():
        writer.add("Mul", (means, writer.constant(shares)), shape)
    return True


def _expand_lrn(writer: Writer) -> bool:
    """x * (bias + alpha * mean of squares over ``size`` channels) ** -beta.

    The mean is an average pooling along the channels of [N, 1, C, the rest].
    """
    node, attrs = writer.node, writer.node.attrs
    shape = writer.graph.shape_of(node.output)
    seen = (shape[0], 1, shape[1], prod(shape[2:]))
    size = int(attrs["size"])
    source = writer.reshape(node.inputs[0], seen)
    squares = writer.add("Mul", (source, source), seen)
    left = (size - 1) // 2
    window = {"kernel_shape": (size, 1), "pads": (left, 0, size - 1 - left, 0)}
    means = writer.add("AveragePool", (squares,), seen, {**window, "count_include_pad": 1})
    alpha, bias = attrs.get("alpha", 1e-4), attrs.get("bias", 1.0)
    scaled = writer.add("Mul", (means, writer.constant(alpha)), seen)
    shifted = writer.add("Add", (scaled, writer.constant(bias)), seen)
    factor = writer.add("Pow", (shifted, writer.constant(-attrs.get("beta", 0.75))), seen)
    result = writer.add("Mul", (factor, source), seen)
    writer.reshape(result, shape)
    return True


def _lower_pooling(lowering: Lowering, node: Node) -> None:
    """Maximum or average over a window; the layout of the source stays."""
    scope = Scope(node, lowering.graph)
    if node.op.startswith("Global") and not all(map(is_known, scope.shape()[2:])):
        _reduced(lowering, node)
        return
    alg = "pooling_max"
    if node.op.endswith("AveragePool"):
        include = bool(scope.attr("count_include_pad", 0))
        alg = f"pooling_avg_{'include' if include else 'exclude'}_padding"
    lowering.define(node.output, _emit(lowering, node, FORWARD, alg))


def _lower_taps(lowering: Lowering, node: Node) -> None:
    """Max pooling in training mode: its workspace has the indices."""
    dst = _emit(lowering, node, "forward_training", "pooling_max")
    lowering.define(node.outputs[0], dst)
    lowering.define(node.outputs[1], lowering.further(Arg.WORKSPACE, dst.desc.dims))


def _emit(lowering: Lowering, node: Node, propagation: str, alg: str) -> Source:
    window = pooling_window(Scope(node, lowering.graph))
    source = lowering.source(node.inputs[0])
    desc = PoolingDesc.forward(
        propagation,
        alg,
        source.desc,
        lowering.result(node, (*source.desc.dims[:2], *window.out)),
        window.strides,
        window.kernel,
        window.padding_l,
        window.padding_r,
        window.gaps,
    )
    return lowering.emit(node, desc, {Arg.SRC: source})


def _reduced(lowering: Lowering, node: Node) -> None:
    """A pooling of whole images of which only a run knows the size: no primitive has such a
    window."""
    source = lowering.source(node.inputs[0])
    alg = "reduction_max" if node.op == "GlobalMaxPool" else "reduction_mean"
    dst = (*source.desc.dims[:2], *(1 for _ in source.desc.dims[2:]))
    desc = ReductionDesc(alg, source.desc, lowering.result(node, dst))
    lowering.define(node.output, lowering.emit(node, desc, {Arg.SRC: source}))


def _pooling(
    *required: str,
    expand: Expand | None = None,
    role: Role = Role.FUNCTION,
    stores_bytes: bool = True,
) -> Operator:
    return Operator(
        infer_pooling,
        _lower_pooling,
        expand,
        post_ops=ANY_POST_OPS,
        required=required,
        role=role,
        stores_bytes=stores_bytes,
    )


OPERATORS: Mapping[str, Operator] = {
    "AveragePool": _pooling("kernel_shape", expand=_expand_average),
    "GlobalAveragePool": _pooling(role=Role.STATISTIC),
    "GlobalMaxPool": _pooling(role=Role.STATISTIC, stores_bytes=False),
    "GlobalLpPool": Operator(infer_pooling, expand=_expand_norm),
    "LRN": Operator(same, expand=_expand_lrn, required=("size",)),
    "LpPool": Operator(infer_pooling, expand=_expand_norm, required=("kernel_shape",)),
    "MaxPool": Operator(
        _infer_maximum,
        _lower_pooling,
        _expand_maximum,
        post_ops=ANY_POST_OPS,
        required=("kernel_shape",),
        stores_bytes=False,
    ),
}
MADE: Mapping[str, Operator] = {
    _TAPS: Operator(_infer_taps, _lower_taps, role=Role.EXACT),
}
