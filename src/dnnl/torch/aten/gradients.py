"""Gradients of convolutions, normalizations, poolings and softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dnnl.errors import Unimplemented
from dnnl.graph import training
from dnnl.torch.aten.convolution import window_of
from dnnl.torch.aten.normalization import Results, rows_of
from dnnl.torch.aten.windows import average_window, batched, maximum_window
from dnnl.torch.aten.writer import Source, Translate, Value, Writer, require_floats


def _convolution(
    w: Writer,
    grad: Value,
    x: Value,
    weight: Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> Results:
    """A transposed convolution is the gradient of a convolution by its source: its own gradients
    are that convolution and the one by its weights, of the gradient and the source exchanged."""
    require_floats(grad, x, weight)
    attrs = window_of(weight, stride, padding, dilation, groups)
    spatial = weight.rank - 2
    (source, alone), (result, _) = batched(w, x, spatial), batched(w, grad, spatial)
    data = weights = bias = None
    if mask[0]:
        if transposed:
            data = w.add("Conv", result, weight, **attrs)
        else:
            data = _add(w, training.CONV_DATA, result, weight, source, **attrs)[0]
        data = w.squeeze(data, [0]) if alone else data
    if mask[1]:
        pair = (source, result) if transposed else (result, source)
        count = 1 + (mask[2] and not transposed)
        weights, *rest = _add(w, training.CONV_WEIGHTS, *pair, count=count, **attrs)
        bias = rest[0] if rest else None
    if mask[2] and bias is None:
        axes = [0, *range(2, spatial + 2)]
        bias = w.add("ReduceSum", result, w.sizes(axes), keepdims=0)
    return data, weights, bias


def _batch(
    w: Writer,
    grad: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_variance: Value | None,
    mean: Value | None,
    inverse: Value | None,
    trains: bool,
    eps: float,
    mask: Sequence[bool],
) -> Results:
    require_floats(grad, x)
    if trains:
        assert mean is not None
        assert inverse is not None
        statistics = [w.to(mean, torch.float32), _variance(w, inverse, eps)]
    elif running_mean is None or running_variance is None:
        raise Unimplemented("a batch normalization without statistics")
    else:
        statistics = [w.to(own, torch.float32) for own in (running_mean, running_variance)]
    return _normalized(w, "Batch", grad, x, statistics, weight, eps, given=int(not trains))


def _layer(
    w: Writer,
    grad: Value,
    x: Value,
    normalized_shape: Sequence[Any],
    mean: Value,
    inverse: Value,
    weight: Value | None,
    bias: Value | None,
    mask: Sequence[bool],
) -> Results:
    """Rows of a matrix. Epsilon was added before the inverse was taken: none is added again."""
    require_floats(grad, x)
    shape, rows = rows_of(x, normalized_shape), [-1]
    source, result = (w.reshape(own, shape) for own in (x, grad))
    statistics = [
        w.reshape(w.to(mean, torch.float32), rows),
        w.reshape(_variance(w, inverse, 0.0), rows),
    ]
    found = _normalized(w, "Layer", result, source, statistics, weight, 0.0)
    data, *others = found
    assert data is not None
    back = [None if own is None else w.reshape(own, normalized_shape) for own in others]
    return w.reshape(data, x.shape), *back


def _group(
    w: Writer,
    grad: Value,
    x: Value,
    mean: Value,
    inverse: Value,
    weight: Value | None,
    n: Any,
    c: Any,
    hxw: Any,
    groups: int,
    mask: Sequence[bool],
) -> Results:
    require_floats(grad, x)
    shape = [n, c, hxw]
    source, result = (w.reshape(own, shape) for own in (x, grad))
    statistics = [w.to(mean, torch.float32), _variance(w, inverse, 0.0)]
    data, *others = _normalized(
        w, "Group", result, source, statistics, weight, 0.0, num_groups=groups
    )
    assert data is not None
    return w.reshape(data, x.shape), *others


def _variance(w: Writer, inverse: Value, eps: float) -> str:
    """The variance, of one divided by the deviation: in f32."""
    kind = torch.float32
    variance = w.add("Pow", w.to(inverse, kind), w.scalar(-2.0, kind))
    return w.add("Sub", variance, w.scalar(eps, kind)) if eps else variance


def _normalized(
    w: Writer,
    kind: str,
    grad: Source,
    x: Source,
    statistics: Sequence[str],
    weight: Value | None,
    eps: float,
    **attrs: int,
) -> Results:
    """The gradients of the source, the scale and the shift in the types of the results."""
    sources = [grad, x, *statistics]
    if weight is not None:
        scale = w.to(weight, torch.float32)
        sources.append(scale if weight.rank == 1 else w.reshape(scale, [-1]))
    data, *channels = _add(w, training.gradient(kind), *sources, count=3, epsilon=eps, **attrs)
    types = [None if own is None else own.dtype for own in w.result[1:]]
    own = [
        None if dtype is None else w.to(value, dtype, torch.float32)
        for value, dtype in zip(channels, types, strict=True)
    ]
    return data, *own


def _maximum(spatial: int) -> Translate:
    def write(w: Writer, grad: Value, x: Value, *window: Any) -> str:
        attrs = maximum_window(spatial, *window[:-1])  # the last are the places
        return _pooled(w, training.MAX_POOL, grad, x, spatial, attrs)

    return write


def _average(spatial: int) -> Translate:
    def write(w: Writer, grad: Value, x: Value, *window: Any) -> str:
        attrs, factor = average_window(spatial, *window)
        if attrs["ceil_mode"] and attrs["count_include_pad"]:
            # Windows beyond the padding divide by fewer elements than they have.
            raise Unimplemented("means that count padding, of windows that may reach beyond it")
        found = _pooled(w, training.AVERAGE_POOL, grad, x, spatial, attrs)
        return found if factor == 1 else w.add("Mul", found, w.scalar(factor, x.dtype))

    return write


def _pooled(
    w: Writer, op: str, grad: Value, x: Value, spatial: int, attrs: Mapping[str, Any]
) -> str:
    (result, _), (source, alone) = batched(w, grad, spatial), batched(w, x, spatial)
    (found,) = _add(w, op, result, source, **attrs)
    return w.squeeze(found, [0]) if alone else found


def _softmax(*, log: bool) -> Translate:
    def write(w: Writer, grad: Value, result: Value, dim: int, dtype: torch.dtype) -> str:
        require_floats(grad, result)
        if not grad.rank:
            raise Unimplemented("a softmax of a scalar")
        (found,) = _add(w, training.SOFTMAX, grad, result, axis=result.axis(dim), log=int(log))
        return w.to(found, w.dtype, grad.dtype)

    return write


def _add(w: Writer, op: str, *sources: Source, count: int = 1, **attrs: Any) -> Sequence[str]:
    return w.add_several(count, op, *sources, domain=training.DOMAIN, **attrs)


TABLE: Mapping[str, Translate] = {
    "convolution_backward": _convolution,
    "native_batch_norm_backward": _batch,
    "native_layer_norm_backward": _layer,
    "native_group_norm_backward": _group,
    **{f"max_pool{n}d_with_indices_backward": _maximum(n) for n in (2, 3)},
    **{f"avg_pool{n}d_backward": _average(n) for n in (2, 3)},
    "_softmax_backward_data": _softmax(log=False),
    "_log_softmax_backward_data": _softmax(log=True),
}
