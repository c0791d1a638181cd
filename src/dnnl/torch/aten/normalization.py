"""Normalizations and softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dnnl.errors import Unimplemented
from dnnl.torch.aten.writer import Translate, Value, Writer, require_floats

Results = tuple[str | None, ...]


def _batch(
    w: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    momentum: float,
    eps: float,
) -> Results:
    """With running statistics; what training would save is empty."""
    require_floats(x)
    if mean is None or variance is None:
        raise Unimplemented("a batch normalization without running statistics")
    channels = [x.shape[1]]
    kind = mean.dtype
    scale = w.expand(w.scalar(1, kind), channels) if weight is None else w.to(weight, kind)
    shift = w.expand(w.scalar(0, kind), channels) if bias is None else w.to(bias, kind)
    value = w.add("BatchNormalization", x, scale, shift, mean, variance, epsilon=float(eps))
    empty = w.constant([], torch.float32)
    return value, empty, empty


def _batch_in_any_mode(
    w: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Results:
    if training:
        raise Unimplemented("a batch normalization that computes statistics")
    return _batch(w, x, weight, bias, mean, variance, momentum, eps)


def _instance(
    w: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Results:
    """Statistics of one image; those of several are of a batch."""
    require_floats(x)
    if x.shape[0] != 1 or x.rank < 3:
        raise Unimplemented("a batch normalization that computes statistics")
    channels = [x.shape[1]]
    scale = w.expand(w.scalar(1, x.dtype), channels) if weight is None else w.to(weight, x.dtype)
    shift = w.expand(w.scalar(0, x.dtype), channels) if bias is None else w.to(bias, x.dtype)
    return w.add("InstanceNormalization", x, scale, shift, epsilon=float(eps)), None, None


def _layer(
    w: Writer,
    x: Value,
    normalized_shape: Sequence[Any],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> Results:
    """The last axes; the mean and the inverse deviation are for gradients."""
    require_floats(x)
    axis = -len(normalized_shape)
    ones = w.expand(w.scalar(1, x.dtype), normalized_shape) if weight is None else weight
    sources = [x, ones] if bias is None else [x, ones, bias]
    return w.add("LayerNormalization", *sources, axis=axis, epsilon=float(eps)), None, None


def _layer_alone(
    w: Writer,
    x: Value,
    normalized_shape: Sequence[Any],
    weight: Value | None,
    bias: Value | None,
    eps: float,
    cudnn_enable: bool,
) -> str | None:
    return _layer(w, x, normalized_shape, weight, bias, eps)[0]


def _group(
    w: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: Any,
    c: Any,
    hxw: Any,
    groups: int,
    eps: float,
) -> Results:
    require_floats(x)
    channels = [x.shape[1]]
    scale = w.expand(w.scalar(1, x.dtype), channels) if weight is None else w.to(weight, x.dtype)
    shift = w.expand(w.scalar(0, x.dtype), channels) if bias is None else w.to(bias, x.dtype)
    value = w.add("GroupNormalization", x, scale, shift, num_groups=groups, epsilon=float(eps))
    return value, None, None


def _root_mean_square(
    w: Writer, x: Value, normalized_shape: Sequence[Any], weight: Value | None, eps: float | None
) -> str:
    require_floats(x)
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    ones = w.expand(w.scalar(1, x.dtype), normalized_shape) if weight is None else weight
    axis = -len(normalized_shape)
    return w.add("RMSNormalization", x, ones, axis=axis, epsilon=float(eps))


def _root_mean_square_fused(
    w: Writer, x: Value, normalized_shape: Sequence[Any], weight: Value | None, eps: float | None
) -> Results:
    return _root_mean_square(w, x, normalized_shape, weight, eps), None


def _softmax(op: str) -> Translate:
    """A softmax along one axis, in the type of the result."""

    def write(w: Writer, x: Value, dim: int, *_: Any) -> str:
        if not w.dtype.is_floating_point or w.dtype == torch.float64:
            raise Unimplemented(f"elements of {w.dtype}")
        value = w.to(x, w.dtype)
        if x.rank:
            return w.add(op, value, axis=x.axis(dim))
        return w.reshape(w.add(op, w.reshape(value, [1]), axis=0), ())

    return write


TABLE: Mapping[str, Translate] = {
    "_native_batch_norm_legit_no_training": _batch,
    "native_batch_norm": _batch_in_any_mode,
    "_native_batch_norm_legit.no_stats": _instance,
    "native_layer_norm": _layer,
    "layer_norm": _layer_alone,
    "native_group_norm": _group,
    "rms_norm": _root_mean_square,
    "_fused_rms_norm": _root_mean_square_fused,
    **{name: _softmax("Softmax") for name in ("_softmax", "softmax.int")},
    **{name: _softmax("LogSoftmax") for name in ("_log_softmax", "log_softmax.int")},
}
