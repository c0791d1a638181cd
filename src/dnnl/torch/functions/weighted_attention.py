"""Attention that gives the weights of the values, or drops some of them: two products and a softmax
over a matrix of all weights, which stays in memory for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.matmul import MatmulDesc
from dnnl.primitives.reduction import ReductionDesc
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.torch.functions.checks import laid_like
from dnnl.torch.functions.execution import Descs, run
from dnnl.torch.functions.gradients import only_once
from dnnl.torch.functions.operators import operator
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr

_ALG = "softmax_accurate"
_Two: TypeAlias = tuple[torch.Tensor, torch.Tensor]
_Found: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
_broadcast: Callable[..., torch.Size] = torch.broadcast_shapes
_Four: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@operator("weighted_attention")
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


@operator("weighted_attention_backward")
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


def _made(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> _Two:
    """New tensors for the result and for the weights of the values."""
    batch, rows, keys = query.shape[:-2], query.shape[-2], key.shape[-2]
    return laid_like(query, (*batch, rows, value.shape[-1])), query.new_empty((*batch, rows, keys))


def _gradients_made(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    masked: bool,
) -> _Four:
    """New tensors for the gradients; that of a mask is empty where there is none."""
    three = (laid_like(own, own.shape) for own in (query, key, value))
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


def weighted_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    part: float,
) -> _Found:
    """The result of attention, the weights, and the factors of the dropout of a part of them, None
    where nothing is dropped. Leading dimensions are broadcast; ``mask`` is added to products."""
    shapes = query.shape[:-2], key.shape[:-2], value.shape[:-2]
    batch = _broadcast(*shapes)
    query = query.expand(*batch, *query.shape[-2:])
    key, value = (own.reshape((1,) * (query.dim() - own.dim()) + own.shape) for own in (key, value))
    shape = *batch, query.shape[-2], key.shape[-2]
    factors = None
    if part:
        factors = torch.nn.functional.dropout(query.new_ones(shape), part)
    result, weights = _attention(query, key, value, mask, factors, scale)
    return result, weights, factors


def grouped_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    part: float,
) -> _Found:
    """`weighted_attention` with fewer heads of keys and values, none of which is copied."""
    heads = key.shape[-3]
    group = query.shape[-3] // heads

    def split(own: torch.Tensor) -> torch.Tensor:
        sizes = (1, 1) if own.shape[-3] == 1 else (heads, group)
        return own.reshape(*own.shape[:-3], *sizes, *own.shape[-2:])

    if mask is not None and mask.dim() > 2:
        mask = split(mask)
    query = query.reshape(*query.shape[:-3], heads, group, *query.shape[-2:])
    key, value = key.unsqueeze(-3), value.unsqueeze(-3)
    result, weights, factors = weighted_attention(query, key, value, mask, scale, part)
    joined = None if factors is None else factors.flatten(-4, -3)
    return result.flatten(-4, -3), weights.flatten(-4, -3), joined
