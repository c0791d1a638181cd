"""Attention: what a softmax of products chooses of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeAlias

import torch

from dnnl.errors import InvalidArguments
from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.matmul import MatmulDesc
from dnnl.primitives.reduction import ReductionDesc
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.torch.functions.checks import check_source
from dnnl.torch.functions.execution import Descs, run
from dnnl.torch.functions.gradients import only_once
from dnnl.torch.functions.operators import operator
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.layout_input import read_bool

_ALG = "softmax_accurate"
_Two: TypeAlias = tuple[torch.Tensor, torch.Tensor]
_Found: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
_broadcast: Callable[..., torch.Size] = torch.broadcast_shapes
_Four: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@operator("attention")
def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    factors: torch.Tensor | None,
    scale: float,
) -> _Two:
    result, weights = made = _made(query, key, value)
    scores = _scores(weights)
    _multiply(query, key.mT, scores, scale, binary_add=mask)
    run(_forward, {Arg.SRC: scores, Arg.DST: weights})
    _multiply(_scaled(weights, factors), value, result)
    return made


@_attention.register_fake
def _(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_others: Any) -> _Two:
    return _made(query, key, value)


@operator("attention_backward")
def _attention_backward(
    gradient: torch.Tensor,
    weights_gradient: torch.Tensor | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    factors: torch.Tensor | None,
    weights: torch.Tensor,
    scale: float,
    masked: bool,
) -> _Four:
    queries, keys, values, masks = made = _gradients_made(query, key, value, mask, masked)
    shares = _scores(weights)
    _multiply(gradient, value.mT, shares, binary_mul=factors, binary_add=weights_gradient)
    scores = torch.empty_like(weights)
    run(_backward, {Arg.DIFF_DST: shares, Arg.DST: weights, Arg.DIFF_SRC: scores})
    _multiply(scores, key, queries, scale)
    _multiply_summed(scores.mT, query, keys, scale)
    _multiply_summed(_scaled(weights, factors).mT, gradient, values)
    if masked:
        _sum_to(scores, masks)
    return made


@_attention_backward.register_fake
def _(_gradient: Any, _shares: Any, query: Any, key: Any, value: Any, *others: Any) -> _Four:
    return _gradients_made(query, key, value, others[0], others[-1])


only_once(_attention_backward, "attention")


def _saved(ctx: Any, inputs: tuple[Any, ...], output: _Two) -> None:
    *tensors, ctx.scale = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, output[1])


def _gradient(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    query, key, value, *_ = tensors = ctx.saved_tensors
    result, shares = gradients
    if result is None:
        result = _made(query, key, value)[0].zero_()
    masked = ctx.needs_input_grad[3]
    *found, masks = _attention_backward(result, shares, *tensors, ctx.scale, masked)
    return *found, masks if masked else None, None, None


_attention.register_autograd(_gradient, setup_context=_saved)


def _laid_like(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A new tensor of these sizes, whose heads and rows are in memory in the order of those of
    ``x``: what is split into heads is joined again without a copy."""
    strides, last = x.stride(), x.dim() - 1
    order = sorted(range(last), key=lambda dim: -strides[dim])
    return torch.empty_permuted(shape, (*order, last), dtype=x.dtype, device=x.device)


def _made(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> _Two:
    """New tensors for the result and for the weights of the values."""
    batch, rows, keys = query.shape[:-2], query.shape[-2], key.shape[-2]
    return _laid_like(query, (*batch, rows, value.shape[-1])), query.new_empty((*batch, rows, keys))


def _gradients_made(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    masked: bool,
) -> _Four:
    """New tensors for the gradients; that of a mask is empty where there is none."""
    three = (_laid_like(own, own.shape) for own in (query, key, value))
    masks = mask.new_empty(mask.shape) if mask is not None and masked else query.new_empty((0,))
    queries, keys, values = three
    return queries, keys, values, masks


def _scores(weights: torch.Tensor) -> torch.Tensor:
    """A new tensor for what the softmax is computed of: small floats would lose digits."""
    wide = torch.float64 if weights.dtype is torch.float64 else torch.float32
    return torch.empty_like(weights, dtype=wide)


def _scaled(weights: torch.Tensor, factors: torch.Tensor | None) -> torch.Tensor:
    """The weights times the factors of a dropout."""
    if factors is None:
        return weights
    result = torch.empty_like(weights)
    run(_product, {Arg.SRC_0: weights, Arg.SRC_1: factors.contiguous(), Arg.DST: result})
    return result


def _multiply(
    x: torch.Tensor,
    y: torch.Tensor,
    result: torch.Tensor,
    scale: float | None = None,
    **operands: torch.Tensor | None,
) -> None:
    """Write the products of matrices, times a scale, then with the operands by algorithm."""
    given = {alg: own for alg, own in operands.items() if own is not None}
    tensors: dict[int, torch.Tensor] = {Arg.SRC: _readable(x), Arg.WEIGHTS: _readable(y)}
    tensors[Arg.DST] = result
    for place, own in enumerate(given.values(), int(scale is not None)):
        ones = (1,) * (result.dim() - own.dim())
        tensors[Arg.post_op(place) | Arg.SRC_1] = own.reshape(*ones, *own.shape).contiguous()
    run(_matmul, tensors, scale, tuple(given))


def _readable(x: torch.Tensor) -> torch.Tensor:
    """Matrices whose rows or columns are contiguous, each element in a place of its own."""
    steps = x.stride()
    spread = all(step or size == 1 for step, size in zip(steps, x.shape, strict=True))
    return x if spread and 1 in steps[-2:] else x.contiguous()


def _multiply_summed(
    x: torch.Tensor, y: torch.Tensor, result: torch.Tensor, scale: float | None = None
) -> None:
    """Write the products of matrices; those that share one of the result's are added up."""
    shape = (*x.shape[:-2], *result.shape[-2:])
    if result.shape == shape:
        _multiply(x, y, result, scale)
        return
    products = _scores(result.new_empty(shape))
    _multiply(x, y, products, scale)
    _sum_to(products, result)


def _sum_to(x: torch.Tensor, result: torch.Tensor) -> None:
    """Write the sums over the dimensions along which a result of fewer was broadcast."""
    ones = (1,) * (x.dim() - result.dim())
    whole = result.view(*ones, *result.shape)
    if whole.shape == x.shape:
        whole.copy_(x)
    elif x.numel():
        run(_sum, {Arg.SRC: x, Arg.DST: whole})
    else:
        result.zero_()


def _matmul(
    descs: Descs, scale: float | None, algs: tuple[str, ...]
) -> tuple[MatmulDesc, PrimitiveAttr]:
    attr = PrimitiveAttr()
    if scale is not None:
        attr.post_ops.append_eltwise("eltwise_linear", scale)
    for place, alg in enumerate(algs, int(scale is not None)):
        attr.post_ops.append_binary(alg, descs[Arg.post_op(place) | Arg.SRC_1])
    return MatmulDesc(descs[Arg.SRC], descs[Arg.WEIGHTS], descs[Arg.DST]), attr


def _forward(descs: Descs) -> SoftmaxDesc:
    src, dst = descs[Arg.SRC], descs[Arg.DST]
    return SoftmaxDesc.forward("forward_training", _ALG, src, dst, dst.ndims - 1, "zero")


def _backward(descs: Descs) -> SoftmaxDesc:
    dst = descs[Arg.DST]
    gradients = descs[Arg.DIFF_SRC], descs[Arg.DIFF_DST]
    return SoftmaxDesc.backward(_ALG, *gradients, dst, dst.ndims - 1)


def _product(descs: Descs) -> BinaryDesc:
    return BinaryDesc("binary_mul", descs[Arg.SRC_0], descs[Arg.SRC_1], descs[Arg.DST])


def _sum(descs: Descs) -> ReductionDesc:
    return ReductionDesc("reduction_sum", descs[Arg.SRC], descs[Arg.DST], 1.0, 0.0)


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

    The weights, [..., L, S], stay in memory for the backward pass. Raises InvalidArguments where
    types or sizes do not agree.
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
    mask = _mask_of(query, key, attn_mask, read_bool("is_causal", is_causal))
    if read_bool("enable_gqa", enable_gqa):
        result, weights, factors = _grouped(query, key, value, mask, factor, part)
    else:
        _check_sizes(query, key, value)
        result, weights, factors = _called(query, key, value, mask, factor, part)
    if not need_weights:
        return result, None
    return result, weights if factors is None else weights * factors


def _number(name: str, value: Any) -> float:
    """A number; PyTorch's symbols stay symbols."""
    if not isinstance(value, int | float | torch.SymFloat):
        raise InvalidArguments(name, value, "expected a number")
    found: float = value  # type: ignore[assignment]
    return found


def _called(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    part: float,
) -> _Found:
    """The result, the weights and the factors of their dropout, by the operator."""
    shapes = query.shape[:-2], key.shape[:-2], value.shape[:-2]
    batch = _broadcast(*shapes)
    query = query.expand(*batch, *query.shape[-2:])
    key, value = (own.reshape((1,) * (query.dim() - own.dim()) + own.shape) for own in (key, value))
    shape = *batch, query.shape[-2], key.shape[-2]
    if mask is not None:
        _check_mask(mask, shape)
    factors = None
    if part:
        factors = torch.nn.functional.dropout(query.new_ones(shape), part)
    result, weights = _attention(query, key, value, mask, factors, scale)
    return result, weights, factors


def _grouped(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    part: float,
) -> _Found:
    """Attention with fewer heads of keys and values, none of which is copied."""
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
    group = every // heads

    def split(own: torch.Tensor) -> torch.Tensor:
        sizes = (1, 1) if own.shape[-3] == 1 else (heads, group)
        return own.reshape(*own.shape[:-3], *sizes, *own.shape[-2:])

    if mask is not None and mask.dim() > 2:
        _check_mask(mask, (*query.shape[:-1], key.shape[-2]))
        mask = split(mask)
    query = query.reshape(*query.shape[:-3], heads, group, *query.shape[-2:])
    key, value = key.unsqueeze(-3), value.unsqueeze(-3)
    _check_sizes(query, key, value)
    result, weights, factors = _called(query, key, value, mask, scale, part)
    joined = None if factors is None else factors.flatten(-4, -3)
    return result.flatten(-4, -3), weights.flatten(-4, -3), joined


def _check_sizes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    if key.shape[-1] != query.shape[-1]:
        rule = f"expected rows of {query.shape[-1]}, as query has the shape {tuple(query.shape)}"
        raise InvalidArguments("key", tuple(key.shape), rule)
    if value.shape[-2] != key.shape[-2]:
        rule = f"expected {key.shape[-2]} rows, as key has"
        raise InvalidArguments("value", tuple(value.shape), rule)
    batch = query.shape[:-2]
    for name, own in (("key", key), ("value", value)):
        try:
            batch = _broadcast(batch, own.shape[:-2])
        except RuntimeError:
            rule = f"cannot be broadcast with the leading dimensions {tuple(batch)}"
            raise InvalidArguments(name, tuple(own.shape), rule) from None


def _mask_of(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, is_causal: bool
) -> torch.Tensor | None:
    """What is added to the products."""
    types = tuple(dict.fromkeys((torch.bool, torch.float32, query.dtype)))
    if mask is not None:
        if is_causal:
            rule = "has a mask of its own"
            raise InvalidArguments("is_causal", True, rule, "pass attn_mask=None")
        if check_source("attn_mask", mask, types).dtype is not torch.bool:
            return mask
    if is_causal:
        mask = query.new_ones((query.shape[-2], key.shape[-2]), dtype=torch.bool).tril()
    if mask is None:
        return None
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill(~mask, -inf)


def _check_mask(mask: torch.Tensor, shape: Sequence[int]) -> None:
    """Raise unless a mask can be broadcast to the products."""
    ones = (1,) * (len(shape) - mask.dim())
    pairs = zip((*ones, *mask.shape), shape, strict=False)
    if mask.dim() > len(shape) or any(own not in (1, size) for own, size in pairs):
        rule = f"cannot be broadcast to {tuple(shape)}"
        raise InvalidArguments("attn_mask", tuple(mask.shape), rule)
