"""The operators of `dnnl.torch` as those of PyTorch, for exported programs.

An operator that is not decomposed in some call stays in the program, where it is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

_Tensor = torch.Tensor
_aten: Any = torch.ops.aten


def decompositions() -> dict[Any, Callable[..., Any]]:
    """What writes each operator that has been imported."""
    found = ((getattr(torch.ops.dnnl, name, None), write) for name, write in _TABLE.items())
    return {own.default: write for own, write in found if own is not None}


def _convolution(
    x: _Tensor,
    weight: _Tensor,
    bias: _Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> _Tensor:
    params = stride, padding, dilation, False, [0] * len(stride), groups
    found: _Tensor = _aten.convolution(x, weight, bias, *params)
    return found


_ACTIVATIONS: Mapping[str, Callable[[_Tensor, float, float], _Tensor]] = {
    "eltwise_relu_use_dst_for_bwd": lambda x, *_: functional.relu(x),
    "eltwise_relu": lambda x, slope, _: functional.leaky_relu(x, slope),
    "eltwise_gelu_erf": lambda x, *_: functional.gelu(x),
    "eltwise_gelu_tanh": lambda x, *_: functional.gelu(x, approximate="tanh"),
    "eltwise_tanh_use_dst_for_bwd": lambda x, *_: x.tanh(),
    "eltwise_logistic_use_dst_for_bwd": lambda x, *_: x.sigmoid(),
    "eltwise_swish": lambda x, *_: functional.silu(x),
    "eltwise_elu": lambda x, alpha, _: functional.elu(x, alpha),
    "eltwise_mish": lambda x, *_: functional.mish(x),
    "eltwise_hardswish": lambda x, *_: functional.hardswish(x),
    "eltwise_hardsigmoid": lambda x, *_: functional.hardsigmoid(x),
    "eltwise_clip_v2": functional.hardtanh,
    "eltwise_soft_relu": lambda x, beta, _: functional.softplus(x, beta),
}
"""Activations by algorithm, of a tensor and both parameters."""


def _activated(x: _Tensor, alg: str, alpha: float, beta: float) -> Any:
    write = _ACTIVATIONS.get(alg)
    return NotImplemented if write is None else write(x, alpha, beta)


def _softmax(x: _Tensor, alg: str, axis: int) -> _Tensor:
    return x.log_softmax(axis) if alg == "softmax_log" else x.softmax(axis)


def _normalized(
    x: _Tensor,
    scale: _Tensor | None,
    shift: _Tensor | None,
    mean: _Tensor | None,
    variance: _Tensor | None,
    groups: int,
    epsilon: float,
) -> tuple[_Tensor, _Tensor, _Tensor]:
    """Groups are -1 for channels over a batch, 0 for rows."""
    if mean is not None:
        empty = mean.new_empty((0,))
        result = functional.batch_norm(x, mean, variance, scale, shift, eps=epsilon)
        return result, empty, empty
    if groups < 0:
        result = functional.batch_norm(x, None, None, scale, shift, training=True, eps=epsilon)
        rows, axes = x, [0, *range(2, x.dim())]
    else:
        scale, shift = (None if own is None else own.to(x.dtype) for own in (scale, shift))
        if groups == 0:
            result = functional.layer_norm(x, x.shape[1:], scale, shift, epsilon)
            rows, axes = x, [1]
        else:
            result = functional.group_norm(x, groups, scale, shift, epsilon)
            rows, axes = x.reshape(x.shape[0], groups, -1), [2]
    variance, mean = torch.var_mean(rows.float(), axes, correction=0)
    return result, mean, variance


def _pooled(
    x: _Tensor,
    alg: str,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    spatial: list[int],
) -> tuple[_Tensor, _Tensor]:
    """The result; places are for gradients."""
    rows = zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    inside = [(i + 2 * p - (k - 1) * d - 1) // s + 1 for i, k, s, p, d in rows]
    is_ceiled, count = inside != spatial, len(kernel)
    if alg == "pooling_max":
        pool = getattr(functional, f"max_pool{count}d")
        result = pool(x, kernel, stride, padding, dilation, is_ceiled)
    else:
        pool = getattr(functional, f"avg_pool{count}d")
        counts_padding = alg == "pooling_avg_include_padding"
        result = pool(x, kernel, stride, padding, is_ceiled, counts_padding)
    return result, x.new_empty((0,), dtype=torch.uint8)


_CELLS: Mapping[str, Callable[..., Any]] = {
    "lstm": _aten.lstm.input,
    "gru": _aten.gru.input,
    "tanh": _aten.rnn_tanh.input,
    "relu": _aten.rnn_relu.input,
}


def _recurrent(
    x: _Tensor,
    h: _Tensor | None,
    c: _Tensor | None,
    weights: Sequence[_Tensor],
    lengths: _Tensor | None,
    directions: int,
    cell: str,
    training: bool,
) -> Any:
    """The results and the last states; the rest is for gradients. Sequences of several lengths are
    not decomposed."""
    if lengths is not None:
        return NotImplemented
    each, has_states = len(weights) // directions, cell == "lstm"
    if h is None:
        h = x.new_zeros((directions, x.shape[1], weights[1].shape[1]))
    if c is None and has_states:
        c = x.new_zeros((directions, x.shape[1], weights[0].shape[0] // 4))
    params = weights, each > 3, 1, 0.0, False, directions > 1, False
    result, *states = _CELLS[cell](x, [h, c] if has_states else h, *params)
    empty = x.new_empty((0,))
    return result, *states, *[empty] * (3 - len(states))


def _attention(
    query: _Tensor,
    key: _Tensor,
    value: _Tensor,
    mask: _Tensor | None,
    masking: str,
    scale: float,
) -> tuple[_Tensor, _Tensor]:
    """The result; logarithms of sums are for gradients."""
    result = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        None if mask is None else mask.to(query.dtype),
        is_causal=masking == "causal",
        scale=scale,
        enable_gqa=key.shape[1] != query.shape[1],
    )
    return result, query.new_empty((0,))


def _weighted(
    query: _Tensor,
    key: _Tensor,
    value: _Tensor,
    mask: _Tensor | None,
    factors: _Tensor | None,
    scale: float,
) -> Any:
    """The result and the weights; those of which some are dropped are not decomposed."""
    if factors is not None:
        return NotImplemented
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = (query @ key.mT).to(wide) * scale
    if mask is not None:
        scores = scores + mask
    weights = _aten._safe_softmax(scores, -1).to(query.dtype)
    return weights @ value, weights


_TABLE: Mapping[str, Callable[..., Any]] = {
    "linear": functional.linear,
    "convolution": _convolution,
    "eltwise": _activated,
    "softmax": _softmax,
    "normalization": _normalized,
    "pooling": _pooled,
    "recurrent_layer": _recurrent,
    "attention": _attention,
    "weighted_attention": _weighted,
}
