"""Normalizations over batches, rows and groups."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import torch

from dnnl.errors import InvalidArguments
from dnnl.primitives.batch_normalization import BatchNormalizationDesc
from dnnl.primitives.desc import Desc
from dnnl.primitives.group_normalization import GroupNormalizationDesc
from dnnl.primitives.layer_normalization import LayerNormalizationDesc
from dnnl.torch.functions.checks import (
    check_shape,
    check_source,
    empty_like,
    format_of,
    packed,
    read_integer,
)
from dnnl.torch.functions.execution import Descs, run
from dnnl.torch.functions.gradients import only_once
from dnnl.torch.functions.operators import operator
from dnnl.types.arg import Arg

_TYPES = torch.float32, torch.bfloat16, torch.float16
_LAYERS, _BATCH = 0, -1
"""In place of a number of groups: rows are normalized, or channels over a batch."""
_Three: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@operator("normalization")
def _normalization(
    x: torch.Tensor,
    scale: torch.Tensor | None,
    shift: torch.Tensor | None,
    mean: torch.Tensor | None,
    variance: torch.Tensor | None,
    groups: int,
    epsilon: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The result and, unless they are given, mean and variance; f32 but for x and the result."""
    made = _made(x, mean, groups)
    result, *statistics = made
    if mean is not None and variance is not None:
        statistics = [mean.contiguous(), variance.contiguous()]
    operands: dict[int, torch.Tensor | None] = {
        Arg.SRC: packed(x),
        Arg.DST: result,
        Arg.MEAN: statistics[0],
        Arg.VARIANCE: statistics[1],
        Arg.SCALE: None if scale is None else scale.contiguous(),
        Arg.SHIFT: None if shift is None else shift.contiguous(),
    }
    run(_forward, operands, groups, epsilon, mean is not None)
    return made


@_normalization.register_fake
def _(x: torch.Tensor, _scale: Any, _shift: Any, mean: Any, _variance: Any, *params: Any) -> _Three:
    return _made(x, mean, params[0])


def _made(x: torch.Tensor, mean: torch.Tensor | None, groups: int) -> _Three:
    """New tensors for a result and its statistics, which are empty where they are given."""
    found: Sequence[int] = (x.shape[0], groups)
    if groups in (_LAYERS, _BATCH):
        found = x.shape[:1] if groups == _LAYERS else x.shape[1:2]
    shape = found if mean is None else (0,)
    statistics = [torch.empty(shape, dtype=torch.float32, device=x.device) for _ in range(2)]
    return empty_like(x, x.shape), statistics[0], statistics[1]


@operator("normalization_backward")
def _normalization_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    scale: torch.Tensor | None,
    shifted: bool,
    mean: torch.Tensor,
    variance: torch.Tensor,
    groups: int,
    epsilon: float,
    given: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of x, scale and shift; an empty tensor for one that is absent."""
    made = _gradients_made(x, scale, shifted, groups)
    result, scales, shifts = made
    operands: dict[int, torch.Tensor | None] = {
        Arg.SRC: packed(x),
        Arg.DIFF_DST: gradient.contiguous(memory_format=format_of(x)),
        Arg.DIFF_SRC: result,
        Arg.MEAN: mean.contiguous(),
        Arg.VARIANCE: variance.contiguous(),
        Arg.SCALE: None if scale is None else scale.contiguous(),
        Arg.DIFF_SCALE: None if scale is None else scales,
        Arg.DIFF_SHIFT: shifts if shifted else None,
    }
    run(_backward, operands, groups, epsilon, given)
    return made


@_normalization_backward.register_fake
def _(_gradient: Any, x: torch.Tensor, scale: Any, shifted: bool, *others: Any) -> _Three:
    return _gradients_made(x, scale, shifted, others[2])


def _gradients_made(
    x: torch.Tensor, scale: torch.Tensor | None, shifted: bool, groups: int
) -> _Three:
    channels = x.shape[-1 if groups == _LAYERS else 1]
    scales, shifts = (
        torch.empty((channels if there else 0,), dtype=torch.float32, device=x.device)
        for there in (scale is not None, shifted)
    )
    return empty_like(x, x.shape), scales, shifts


only_once(_normalization_backward, "normalizations")


def _saved(ctx: Any, inputs: tuple[Any, ...], output: _Three) -> None:
    x, scale, shift, mean, variance, ctx.groups, ctx.epsilon = inputs
    ctx.shifted, ctx.given = shift is not None, mean is not None
    statistics = (mean, variance) if ctx.given else output[1:]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, scale, *statistics)


def _gradient(ctx: Any, gradient: torch.Tensor | None, *statistics: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 7
    x, scale, mean, variance = ctx.saved_tensors
    data, scales, shifts = _normalization_backward(
        gradient, x, scale, ctx.shifted, mean, variance, ctx.groups, ctx.epsilon, ctx.given
    )
    absent = None, None, None, None
    return data, None if scale is None else scales, shifts if ctx.shifted else None, *absent


_normalization.register_autograd(_gradient, setup_context=_saved)


def _flags(descs: Descs, given: bool, shift: Arg) -> str | None:
    there = {
        "use_scale": Arg.SCALE in descs,
        "use_shift": shift in descs,
        "use_global_stats": given,
    }
    return "|".join(name for name, own in there.items() if own) or None


def _forward(descs: Descs, groups: int, epsilon: float, given: bool) -> Desc:
    flags = _flags(descs, given, Arg.SHIFT)
    tensors = "forward_training", descs[Arg.SRC], descs[Arg.DST]
    if groups == _LAYERS:
        return LayerNormalizationDesc.forward(*tensors, epsilon, flags)
    if groups == _BATCH:
        return BatchNormalizationDesc.forward(*tensors, epsilon, flags)
    return GroupNormalizationDesc.forward(*tensors, groups, epsilon, flags)


def _backward(descs: Descs, groups: int, epsilon: float, given: bool) -> Desc:
    flags = _flags(descs, given, Arg.DIFF_SHIFT)
    tensors = "backward", descs[Arg.DIFF_SRC], descs[Arg.DIFF_DST], descs[Arg.SRC]
    if groups == _LAYERS:
        return LayerNormalizationDesc.backward(*tensors, epsilon, flags)
    if groups == _BATCH:
        return BatchNormalizationDesc.backward(*tensors, epsilon, flags)
    return GroupNormalizationDesc.backward(*tensors, groups, epsilon, flags)


def _channels(name: str, own: torch.Tensor | None, shape: Sequence[int]) -> torch.Tensor | None:
    """Numbers of channels as f32, in one dimension."""
    if own is None:
        return None
    check_shape(name, check_source(name, own), shape)
    return own.float().flatten()


def layer_norm(
    x: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """The last dimensions of x by their mean and variance, as torch has it.

    ``normalized_shape`` are the sizes of these dimensions, and those of ``weight`` and ``bias``.
    ``x`` is f32, bf16 or f16. Raises InvalidArguments where sizes do not agree.
    """
    check_source("x", x, _TYPES)
    given = normalized_shape if isinstance(normalized_shape, list | tuple) else [normalized_shape]
    shape = [read_integer("normalized_shape", own) for own in given]
    if not shape or list(x.shape[-len(shape) :]) != shape:
        rule = f"must be the last sizes of x, whose shape is {tuple(x.shape)}"
        raise InvalidArguments("normalized_shape", normalized_shape, rule)
    scale, shift = _channels("weight", weight, shape), _channels("bias", bias, shape)
    rows = x.reshape(prod(x.shape[: x.dim() - len(shape)]), prod(shape))
    result: torch.Tensor = _normalization(rows, scale, shift, None, None, _LAYERS, eps)[0]
    return result.reshape(x.shape)


def group_norm(
    x: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Groups of channels of each image [N, C, ...] by their mean and variance, as torch has it.

    There are up to three spatial dimensions; ``weight`` and ``bias`` are [C]. ``x`` is f32, bf16 or
    f16. Raises InvalidArguments where sizes do not agree.
    """
    if not 2 <= check_source("x", x, _TYPES).dim() <= 5:
        rule = "expected [N, C] and up to three spatial dimensions"
        raise InvalidArguments("x", tuple(x.shape), rule)
    channels, num_groups = x.shape[1], read_integer("num_groups", num_groups)
    if num_groups < 1 or channels % num_groups:
        rule = f"must be positive and divide the {channels} channels of x"
        raise InvalidArguments("num_groups", num_groups, rule)
    scale, shift = (
        _channels(name, own, (channels,)) for name, own in (("weight", weight), ("bias", bias))
    )
    images = x if x.dim() > 2 else x[..., None]
    result: torch.Tensor = _normalization(images, scale, shift, None, None, num_groups, eps)[0]
    return result.reshape(x.shape)


def batch_norm(
    x: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Channels of a batch [N, C, ...] by their mean and variance, as torch has it.

    In ``training`` the statistics are those of the batch, and running ones move towards them by
    ``momentum``; else they are the running ones. These, ``weight`` and ``bias`` are [C]. ``x`` is
    f32, bf16 or f16. Raises InvalidArguments where sizes do not agree, where running statistics are
    missing, and in training of channels with one element.
    """
    if not 2 <= check_source("x", x, _TYPES).dim() <= 5:
        rule = "expected [N, C] and up to three spatial dimensions"
        raise InvalidArguments("x", tuple(x.shape), rule)
    channels = x.shape[1]
    names = {"weight": weight, "bias": bias, "running_mean": running_mean}
    names["running_var"] = running_var
    scale, shift, mean, variance = (
        _channels(name, own, (channels,)) for name, own in names.items()
    )
    if (running_mean is None) != (running_var is None):
        raise InvalidArguments("running_var", running_var, "goes with running_mean")
    if not training:
        if mean is None:
            raise InvalidArguments("running_mean", None, "is what training=False normalizes by")
        result: torch.Tensor = _normalization(x, scale, shift, mean, variance, _BATCH, eps)[0]
        return result
    count = x.numel() // channels if channels else 0
    if count == 1:
        rule = "expected more than one element of each channel in training"
        raise InvalidArguments("x", tuple(x.shape), rule)
    result, mean, variance = _normalization(x, scale, shift, None, None, _BATCH, eps)
    if running_mean is not None and running_var is not None and count:
        with torch.no_grad():
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            # Running variances are those of samples.
            variance = variance * (count / (count - 1))
            running_var.lerp_(variance.to(running_var.dtype), momentum)
    return result
