"""Softmax and its logarithm."""

from __future__ import annotations

from typing import Any

import torch

from dnnl.errors import InvalidArguments
from dnnl.primitives.softmax import SoftmaxDesc
from dnnl.torch.functions.checks import (
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


@operator("softmax")
def _softmax(x: torch.Tensor, alg: str, axis: int) -> torch.Tensor:
    result = empty_like(x, x.shape)
    run(_forward, {Arg.SRC: packed(x), Arg.DST: result}, alg, axis)
    return result


@_softmax.register_fake
def _(x: torch.Tensor, alg: str, axis: int) -> torch.Tensor:
    return empty_like(x, x.shape)


@operator("softmax_backward")
def _softmax_backward(
    gradient: torch.Tensor, result: torch.Tensor, alg: str, axis: int
) -> torch.Tensor:
    made = empty_like(result, result.shape)
    operands: dict[int, torch.Tensor] = {
        Arg.DIFF_DST: gradient.contiguous(memory_format=format_of(result)),
        Arg.DST: packed(result),
        Arg.DIFF_SRC: made,
    }
    run(_backward, operands, alg, axis)
    return made


@_softmax_backward.register_fake
def _(gradient: torch.Tensor, result: torch.Tensor, alg: str, axis: int) -> torch.Tensor:
    return empty_like(result, result.shape)


only_once(_softmax_backward, "softmax")


def _saved(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, *ctx.params = inputs
    ctx.save_for_backward(output)


def _gradient(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return _softmax_backward(gradient, *ctx.saved_tensors, *ctx.params), None, None


_softmax.register_autograd(_gradient, setup_context=_saved)


def _forward(descs: Descs, alg: str, axis: int) -> SoftmaxDesc:
    src, dst = descs[Arg.SRC], descs[Arg.DST]
    return SoftmaxDesc.forward("forward_training", alg, src, dst, axis, "nan")


def _backward(descs: Descs, alg: str, axis: int) -> SoftmaxDesc:
    gradients = descs[Arg.DIFF_SRC], descs[Arg.DIFF_DST]
    return SoftmaxDesc.backward(alg, *gradients, descs[Arg.DST], axis)


def softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """exp(x) over its sum along ``dim``, of a float tensor; rows of -inf give NaN."""
    return _called(x, "softmax_accurate", dim)


def log_softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The logarithm of `softmax`."""
    return _called(x, "softmax_log", dim)


def backward(gradient: torch.Tensor, result: torch.Tensor, alg: str, axis: int) -> torch.Tensor:
    """The gradient of what a softmax or its logarithm is computed of, of those of one type."""
    found: torch.Tensor = _softmax_backward(gradient, result, alg, axis)
    return found


def _called(x: torch.Tensor, alg: str, dim: int) -> torch.Tensor:
    if check_source("x", x).dim() == 0:
        return _called(x[None], alg, dim)[0]
    count, dim = x.dim(), read_integer("dim", dim)
    if not -count <= dim < count:
        raise InvalidArguments("dim", dim, f"expected one from {-count} to {count - 1}")
    result: torch.Tensor = _softmax(x, alg, dim % count)
    return result
