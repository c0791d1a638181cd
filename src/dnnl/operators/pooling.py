"""Pooling, and what is computed by it: [batch, channels, ...]."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError, Node, TensorType
from dnnl.graph.scope import Scope
from dnnl.graph.writer import Writer
from dnnl.lowering.graphs import FORWARD, Lowering
from dnnl.operators.inference import same
from dnnl.operators.operator import ANY_POST_OPS, Expand, Operator, Role
from dnnl.operators.window import Window
from dnnl.primitives.overhang import padded_shares
from dnnl.primitives.pooling import PoolingDesc
from dnnl.primitives.reduction import ReductionDesc
from dnnl.types.arg import Arg
from dnnl.types.size import is_known


def infer_pooling(scope: Scope) -> list[TensorType]:
    """[N, C, ...] stays, with the spatial sizes of the window's positions."""
    if len(scope.node.outputs) > 1 and scope.node.outputs[1]:
        raise Unimplemented(f"{scope.node}: the indices of the maxima are not computed")
    return scope.result((*scope.shape()[:2], *pooling_window(scope).out))


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
        window.gaps,
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
    "LRN": Operator(same, expand=_expand_lrn, required=("size",)),
    "MaxPool": _pooling("kernel_shape", stores_bytes=False),
}
