"""Attention in one primitive, which holds no matrix of weights."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import torch

from dnnl.primitives.attention import MOST_ELEMENTS, AttentionDesc
from dnnl.torch.functions.checks import laid_like
from dnnl.torch.functions.execution import Descs, run
from dnnl.torch.functions.gradients import only_once
from dnnl.torch.functions.operators import operator
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

_Two: TypeAlias = tuple[torch.Tensor, torch.Tensor]
_Three: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
_broadcast: Callable[..., torch.Size] = torch.broadcast_shapes
_TYPES = torch.float32, torch.bfloat16, torch.float16
_RANK = 4


def takes(query: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Whether the primitive computes with these tensors, and all gradients that they need."""
    short = max(query.shape[-1], value.shape[-1]) <= MOST_ELEMENTS
    return query.dtype in _TYPES and short and (mask is None or not mask.requires_grad)


@operator("attention")
def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    masking: str,
    scale: float,
) -> _Two:
    """The result, and the logarithms of sums, of tensors of four dimensions."""
    result, logsum = made = _made(query, value)
    operands = _sources(query, key, value, mask) | {Arg.DST: result, Arg.DST_1: logsum}
    run(_forward, operands, masking, scale)
    return made


@_attention.register_fake
def _(query: torch.Tensor, _key: Any, value: torch.Tensor, *_others: Any) -> _Two:
    return _made(query, value)


@operator("attention_backward")
def _attention_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    result: torch.Tensor,
    logsum: torch.Tensor,
    masking: str,
    scale: float,
) -> _Three:
    queries, keys, values = made = _gradients_made(query, key, value)
    operands = _sources(query, key, value, mask) | {
        Arg.DST: result, Arg.DST_1: logsum, Arg.DIFF_DST: _with_rows(gradient),
        Arg.DIFF_SRC_0: queries, Arg.DIFF_SRC_1: keys, Arg.DIFF_SRC_2: values,
    }  # fmt: skip
    run(_backward, operands, masking, scale)
    return made


@_attention_backward.register_fake
def _(_gradient: Any, query: Any, key: Any, value: Any, *_others: Any) -> _Three:
    return _gradients_made(query, key, value)


only_once(_attention_backward, "attention")


def _saved(ctx: Any, inputs: tuple[Any, ...], output: _Two) -> None:
    *tensors, ctx.masking, ctx.scale = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors, *output)


def _gradient(ctx: Any, gradient: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
    found = _attention_backward(gradient, *ctx.saved_tensors, ctx.masking, ctx.scale)
    return *found, None, None, None


_attention.register_autograd(_gradient, setup_context=_saved)


def _made(query: torch.Tensor, value: torch.Tensor) -> _Two:
    """New tensors for the result and the logarithms of sums."""
    result = laid_like(query, (*query.shape[:-1], value.shape[-1]))
    return result, query.new_empty(query.shape[:-1], dtype=torch.float32)


def _gradients_made(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> _Three:
    """New tensors for the gradients."""
    return laid_like(query, query.shape), laid_like(key, key.shape), laid_like(value, value.shape)


def _sources(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> dict[int, torch.Tensor | None]:
    return {
        Arg.SRC_0: _with_rows(query), Arg.SRC_1: _with_rows(key), Arg.SRC_2: _with_rows(value),
        Arg.SRC_3: None if mask is None else _with_rows(mask),
    }  # fmt: skip


def _with_rows(x: torch.Tensor) -> torch.Tensor:
    """A tensor in whose rows elements are neighbours."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _mask(descs: Descs) -> MemoryDesc | None:
    return descs.get(int(Arg.SRC_3))


def _forward(descs: Descs, masking: str, scale: float) -> AttentionDesc:
    return AttentionDesc.forward(
        "forward_training", descs[Arg.SRC_0], descs[Arg.SRC_1], descs[Arg.SRC_2], descs[Arg.DST],
        mask_desc=_mask(descs), logsum_desc=descs[Arg.DST_1], masking=masking, scale=scale,
    )  # fmt: skip


def _backward(descs: Descs, masking: str, scale: float) -> AttentionDesc:
    return AttentionDesc.backward(
        descs[Arg.SRC_0], descs[Arg.SRC_1], descs[Arg.SRC_2], descs[Arg.DST], descs[Arg.DIFF_DST],
        descs[Arg.DIFF_SRC_0], descs[Arg.DIFF_SRC_1], descs[Arg.DIFF_SRC_2],
        mask_desc=_mask(descs), logsum_desc=descs[Arg.DST_1], masking=masking, scale=scale,
    )  # fmt: skip


def fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    masking: str,
    scale: float,
    *,
    grouped: bool,
) -> torch.Tensor:
    """The result of attention. Leading dimensions are broadcast, but for the heads of ``grouped``
    keys and values, each of which serves several in a row; ``mask`` is added to products."""
    skipped = 3 if grouped else 2
    sources = query, key, value
    batch = _broadcast(*(own.shape[:-skipped] for own in sources))
    lead = (*batch, query.shape[-3]) if grouped else batch
    # Keys and values with one head for all are not broadcast: it serves every head.
    shares = not grouped and len(batch) > 0 and _heads(key) == _heads(value) == 1
    heads = key.shape[-3:-2] if grouped else (1,) if shares else lead[-1:]
    query = _of_four(query.expand(*lead, *query.shape[-2:]))
    served = *lead[:-1], *heads
    key, value = (_of_four(own.expand(*served, *own.shape[-2:])) for own in (key, value))
    if mask is not None:
        mask = _mask_of_four(mask, lead)
    result: torch.Tensor = _attention(query, key, value, mask, masking, scale)[0]
    return result.reshape(*lead, *result.shape[-2:])


def _heads(x: torch.Tensor) -> int:
    return x.shape[-3] if x.dim() >= 3 else 1


def _of_four(x: torch.Tensor) -> torch.Tensor:
    """[batch, heads, rows, elements]."""
    if x.dim() == _RANK:
        return x
    *batch, rows, elements = x.shape
    heads = batch.pop() if batch else 1
    return x.reshape(prod(batch), heads, rows, elements)


def _mask_of_four(mask: torch.Tensor, lead: tuple[int, ...]) -> torch.Tensor:
    """A mask whose dimensions are those of the products, or 1."""
    if mask.dim() <= _RANK and len(lead) <= 2:
        return mask.reshape((1,) * (_RANK - mask.dim()) + mask.shape)
    mask = mask.reshape((1,) * (len(lead) + 2 - mask.dim()) + mask.shape)
    return _of_four(mask.expand(*lead[:-1], *mask.shape[-3:]))
