"""Normalizations and softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch

from dnnl.errors import Unimplemented
from dnnl.graph.training import DOMAIN, training
from dnnl.torch.aten.writer import Source, Translate, Value, Writer, require_floats

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
    """With running statistics; what training would save is empty, of their type."""
    require_floats(x)
    if mean is None or variance is None:
        raise Unimplemented("a batch normalization without running statistics")
    channels = [x.shape[1]]
    kind = mean.dtype
    scale = w.expand(w.scalar(1, kind), channels) if weight is None else w.to(weight, kind)
    shift = w.expand(w.scalar(0, kind), channels) if bias is None else w.to(bias, kind)
    value = w.add("BatchNormalization", x, scale, shift, mean, variance, epsilon=float(eps))
    empty = w.constant([], kind)
    return value, empty, empty


def _batch_in_any_mode(
    w: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    trains: bool,
    momentum: float,
    eps: float,
) -> Results:
    """With running statistics, or with those of the batch, which are results."""
    require_floats(x)
    if not trains:
        return _batch(w, x, weight, bias, mean, variance, momentum, eps)
    value, statistics = _trained(w, "Batch", x, weight, bias, eps)
    return value, *_saved(w, statistics, eps)


def _batch_functional(
    w: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    trains: bool,
    momentum: float,
    eps: float,
) -> Results:
    """As above; the results 3 and 4 are the running statistics behind this batch."""
    require_floats(x)
    if not trains:
        given = w.add("Identity", mean), w.add("Identity", variance)
        return *_batch(w, x, weight, bias, mean, variance, momentum, eps), *given
    value, statistics = _trained(w, "Batch", x, weight, bias, eps)
    count = prod((x.shape[0], *x.shape[2:]))
    kind = torch.float32
    factors = 1.0, count / (count - 1)  # the running variance is that of a sample
    moved = []
    for before, own, factor in zip((mean, variance), statistics, factors, strict=True):
        share = w.add("Mul", own, w.scalar(momentum * factor, kind))
        old = w.add("Mul", w.to(before, kind), w.scalar(1 - momentum, kind))
        moved.append(w.to(w.add("Add", old, share), before.dtype, kind))
    return value, *_saved(w, statistics, eps), *moved


def _instance(
    w: Writer,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    trains: bool,
    momentum: float,
    eps: float,
) -> Results:
    """Statistics of the batch, which may be one image."""
    require_floats(x)
    if x.shape[0] != 1 or x.rank < 3 or {1, 2}.intersection(w.used):
        return _batch_in_any_mode(w, x, weight, bias, None, None, True, momentum, eps)
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
    """The last axes; the mean and one divided by the deviation are for gradients."""
    require_floats(x)
    if {1, 2}.intersection(w.used):
        source = w.reshape(x, rows_of(x, normalized_shape))
        value, statistics = _trained(w, "Layer", source, weight, bias, eps)
        left = [*x.shape[: x.rank - len(normalized_shape)], *[1] * len(normalized_shape)]
        saved = [w.reshape(own, left) for own in _saved(w, statistics, eps)]
        return w.reshape(value, x.shape), *saved
    axis = -len(normalized_shape)
    ones = w.expand(w.scalar(1, x.dtype), normalized_shape) if weight is None else weight
    sources = [x, ones] if bias is None else [x, ones, bias]
    return w.add("LayerNormalization", *sources, axis=axis, epsilon=float(eps)), None, None


def rows_of(x: Value, normalized_shape: Sequence[Any]) -> list[Any]:
    """The shape of a matrix whose rows are normalized."""
    return [prod(x.shape[: x.rank - len(normalized_shape)]), prod(normalized_shape)]


def _trained(
    w: Writer,
    kind: str,
    x: Source,
    weight: Value | None,
    bias: Value | None,
    eps: float,
    **attrs: int,
) -> tuple[str, Sequence[str]]:
    """The result with statistics of the source, and these: the mean and the variance."""
    parameters = [
        "" if own is None else w.reshape(w.to(own, torch.float32), [-1]) for own in (weight, bias)
    ]
    value, *statistics = w.add_several(
        3, training(kind), x, *parameters, domain=DOMAIN, epsilon=float(eps), **attrs
    )
    return value, statistics


def _saved(w: Writer, statistics: Sequence[str], eps: float) -> Sequence[str]:
    """The mean, and one divided by the deviation, in the types of the results 1 and 2."""
    (mean, variance), kind = statistics, torch.float32
    shifted = w.add("Add", variance, w.scalar(eps, kind))
    inverse = w.add("Pow", shifted, w.scalar(-0.5, kind))
    pairs = zip((mean, inverse), w.result[1:3], strict=True)
    return [w.to(value, own.dtype, kind) for value, own in pairs]


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
    if {1, 2}.intersection(w.used):
        source = w.reshape(x, [n, c, hxw])
        value, statistics = _trained(w, "Group", source, weight, bias, eps, num_groups=groups)
        return w.reshape(value, x.shape), *_saved(w, statistics, eps)
    channels = [x.shape[1]]
    scale = w.expand(w.scalar(1, x.dtype), channels) if weight is None else w.to(weight, x.dtype)
    shift = w.expand(w.scalar(0, x.dtype), channels) if bias is None else w.to(bias, x.dtype)
    value = w.add("GroupNormalization", x, scale, shift, num_groups=groups, epsilon=float(eps))
    return value, None, None


def _root_mean_square(
    w: Writer, x: Value, normalized_shape: Sequence[Any], weight: Value | None, eps: float | None
) -> str:
    require_floats(x)
    if eps is None:  # squares are at least f32
        eps = torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps
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
    "_native_batch_norm_legit_functional": _batch_functional,
    "_native_batch_norm_legit.no_stats": _instance,
    "native_layer_norm": _layer,
    "layer_norm": _layer_alone,
    "native_group_norm": _group,
    "rms_norm": _root_mean_square,
    "_fused_rms_norm": _root_mean_square_fused,
    **{name: _softmax("Softmax") for name in ("_softmax", "softmax.int")},
    **{name: _softmax("LogSoftmax") for name in ("_log_softmax", "log_softmax.int")},
}
