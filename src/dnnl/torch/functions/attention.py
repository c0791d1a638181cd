"""Attention: what a softmax of products chooses of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import torch

from dnnl.errors import InvalidArguments
from dnnl.torch.functions.checks import check_source
from dnnl.torch.functions.fused_attention import fused_attention, takes
from dnnl.torch.functions.weighted_attention import grouped_attention, weighted_attention
from dnnl.types.layout_input import read_bool

_broadcast: Callable[..., torch.Size] = torch.broadcast_shapes


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """softmax(query key^T scale + attn_mask) value, as
    `torch.nn.functional.scaled_dot_product_attention` has it.

    ``query`` is [..., L, E], ``key`` [..., S, E] and ``value`` [..., S, V], floats of one type,
    whose leading dimensions are broadcast; the result is [..., L, V]. ``attn_mask`` is broadcast
    to [..., L, S]: floats are added, and keys where it is False take no part. With ``is_causal``
    row i takes the first i + 1 keys. ``scale`` is by default 1 / sqrt(E). With ``enable_gqa`` each
    head, dimension -3, of ``key`` and ``value`` serves several of ``query``. A row in which no key
    takes part gives 0. ``dropout_p`` is the part of the weights that PyTorch's generator drops.

    No memory grows with L times S, but where weights are dropped, for f64, and where ``attn_mask``
    has a gradient: then the weights, [..., L, S], stay in memory for the backward pass. Raises
    InvalidArguments where types or sizes do not agree.
    """
    given = query, key, value, attn_mask, is_causal, scale, enable_gqa
    return attended(*given, dropout_p=dropout_p, need_weights=False)[0]


def attended(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    dropout_p: float = 0.0,
    need_weights: bool = True,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The result of `attention`, and where they are wanted the weights of the values."""
    for name, own in {"query": query, "key": key, "value": value}.items():
        if check_source(name, own).dim() < 2:
            raise InvalidArguments(name, tuple(own.shape), "expected a matrix, or batches of them")
        if own.dtype != query.dtype:
            rule = f"expected the type of query, {query.dtype}"
            raise InvalidArguments(name, str(own.dtype), rule, f"convert it by .to({query.dtype})")
    factor = (query.shape[-1] or 1) ** -0.5 if scale is None else _number("scale", scale)
    part = _number("dropout_p", dropout_p)
    if not 0 <= part <= 1:
        raise InvalidArguments("dropout_p", dropout_p, "expected a part, from 0 to 1")
    causal, grouped = read_bool("is_causal", is_causal), read_bool("enable_gqa", enable_gqa)
    _check_mask_type(query, attn_mask, causal)
    if grouped:
        _check_heads(query, key, value)
    shape = _check_sizes(query, key, value, skipped=3 if grouped else 2)
    if attn_mask is not None:
        _check_mask(attn_mask, shape)
    given = query, key, value
    if not (need_weights or part) and takes(query, value, attn_mask):
        masking = "causal" if causal else "none"
        return fused_attention(*given, _added(attn_mask), masking, factor, grouped=grouped), None
    if causal:
        attn_mask = query.new_ones((query.shape[-2], key.shape[-2]), dtype=torch.bool).tril()
    found = grouped_attention if grouped else weighted_attention
    result, weights, factors = found(*given, _added(attn_mask), factor, part)
    if not need_weights:
        return result, None
    return result, weights if factors is None else weights * factors


def _number(name: str, value: Any) -> float:
    """A number; PyTorch's symbols stay symbols."""
    if not isinstance(value, int | float | torch.SymFloat):
        raise InvalidArguments(name, value, "expected a number")
    found: float = value  # type: ignore[assignment]
    return found


def _check_heads(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    """Raise unless each head of keys and values serves as many of queries."""
    for name, own in (("query", query), ("key", key), ("value", value)):
        if own.dim() < 3:
            rule = "enable_gqa takes heads as dimension -3"
            raise InvalidArguments(name, tuple(own.shape), rule)
    every, heads = query.shape[-3], key.shape[-3]
    if value.shape[-3] != heads:
        rule = f"expected {heads} heads, as key has"
        raise InvalidArguments("value", tuple(value.shape), rule)
    if heads == 0 or every % heads:
        rule = f"expected a number of heads that divides the {every} of query"
        raise InvalidArguments("key", tuple(key.shape), rule)


def _check_sizes(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, skipped: int
) -> tuple[int, ...]:
    """Raise unless the tensors fit each other; the last ``skipped`` dimensions are not broadcast.
    Returns the sizes of the products."""
    if key.shape[-1] != query.shape[-1]:
        rule = f"expected rows of {query.shape[-1]}, as query has the shape {tuple(query.shape)}"
        raise InvalidArguments("key", tuple(key.shape), rule)
    if value.shape[-2] != key.shape[-2]:
        rule = f"expected {key.shape[-2]} rows, as key has"
        raise InvalidArguments("value", tuple(value.shape), rule)
    batch = query.shape[:-skipped]
    for name, own in (("key", key), ("value", value)):
        try:
            batch = _broadcast(batch, own.shape[:-skipped])
        except RuntimeError:
            rule = f"cannot be broadcast with the leading dimensions {tuple(batch)}"
            raise InvalidArguments(name, tuple(own.shape), rule) from None
    return (*batch, *query.shape[-skipped:-1], key.shape[-2])


def _check_mask_type(query: torch.Tensor, mask: torch.Tensor | None, causal: bool) -> None:
    if mask is None:
        return
    if causal:
        rule = "has a mask of its own"
        raise InvalidArguments("is_causal", True, rule, "pass attn_mask=None")
    check_source("attn_mask", mask, tuple(dict.fromkeys((torch.bool, torch.float32, query.dtype))))


def _added(mask: torch.Tensor | None) -> torch.Tensor | None:
    """What is added to the products."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill(~mask, -inf)


def _check_mask(mask: torch.Tensor, shape: Sequence[int]) -> None:
    """Raise unless a mask can be broadcast to the products."""
    ones = (1,) * (len(shape) - mask.dim())
    pairs = zip((*ones, *mask.shape), shape, strict=False)
    if mask.dim() > len(shape) or any(own not in (1, size) for own, size in pairs):
        rule = f"cannot be broadcast to {tuple(shape)}"
        raise InvalidArguments("attn_mask", tuple(mask.shape), rule)
