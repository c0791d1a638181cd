"""Activations, one operator over the algorithms of eltwise."""

from __future__ import annotations

from typing import Any

import torch

from dnnl.errors import InvalidArguments
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.torch.functions.checks import check_source, empty_like, format_of, packed
from dnnl.torch.functions.execution import Descs, run
from dnnl.torch.functions.gradients import only_once
from dnnl.torch.functions.operators import operator
from dnnl.types.arg import Arg

_BY_RESULT = "_use_dst_for_bwd"


@operator("eltwise")
def _eltwise(x: torch.Tensor, alg: str, alpha: float, beta: float) -> torch.Tensor:
    result = empty_like(x, x.shape)
    run(_forward, {Arg.SRC: packed(x), Arg.DST: result}, alg, alpha, beta)
    return result


@_eltwise.register_fake
def _(x: torch.Tensor, alg: str, alpha: float, beta: float) -> torch.Tensor:
    return empty_like(x, x.shape)


@operator("eltwise_backward")
def _eltwise_backward(
    gradient: torch.Tensor, data: torch.Tensor, alg: str, alpha: float, beta: float
) -> torch.Tensor:
    result = empty_like(data, data.shape)
    data, gradient = packed(data), gradient.contiguous(memory_format=format_of(data))
    operands: dict[int, torch.Tensor] = {Arg.DIFF_DST: gradient, Arg.DIFF_SRC: result}
    place = Arg.DST if alg.endswith(_BY_RESULT) else Arg.SRC
    run(_backward, operands | {place: data}, alg, alpha, beta)
    return result


@_eltwise_backward.register_fake
def _(
    gradient: torch.Tensor, data: torch.Tensor, alg: str, alpha: float, beta: float
) -> torch.Tensor:
    return empty_like(data, data.shape)


only_once(_eltwise_backward, "activations")


def _saved(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, *ctx.params = inputs
    ctx.save_for_backward(output if ctx.params[0].endswith(_BY_RESULT) else x)


def _gradient(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    (data,) = ctx.saved_tensors
    return _eltwise_backward(gradient, data, *ctx.params), None, None, None


_eltwise.register_autograd(_gradient, setup_context=_saved)


def _forward(descs: Descs, alg: str, alpha: float, beta: float) -> EltwiseDesc:
    src, dst = descs[Arg.SRC], descs[Arg.DST]
    return EltwiseDesc.forward("forward_training", alg, src, dst, alpha, beta)


def _backward(descs: Descs, alg: str, alpha: float, beta: float) -> EltwiseDesc:
    data = descs[Arg.DST] if Arg.DST in descs else descs[Arg.SRC]
    return EltwiseDesc.backward(alg, descs[Arg.DIFF_SRC], descs[Arg.DIFF_DST], data, alpha, beta)


def _called(x: torch.Tensor, alg: str, alpha: float = 0.0, beta: float = 0.0) -> torch.Tensor:
    if check_source("x", x).dim() == 0:
        return _called(x[None], alg, alpha, beta)[0]
    result: torch.Tensor = _eltwise(x, alg, alpha, beta)
    return result


def relu(x: torch.Tensor) -> torch.Tensor:
    """max(x, 0), of a float tensor of any shape."""
    return _called(x, "eltwise_relu_use_dst_for_bwd")


def leaky_relu(x: torch.Tensor, negative_slope: float = 0.01) -> torch.Tensor:
    """x where it is positive, else ``negative_slope`` x."""
    return _called(x, "eltwise_relu", negative_slope)


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """x times the normal distribution's probability of x; ``approximate`` is "none" or "tanh"."""
    forms = {"none": "eltwise_gelu_erf", "tanh": "eltwise_gelu_tanh"}
    if approximate not in forms:
        raise InvalidArguments("approximate", approximate, 'expected "none" or "tanh"')
    return _called(x, forms[approximate])


def tanh(x: torch.Tensor) -> torch.Tensor:
    """The hyperbolic tangent."""
    return _called(x, "eltwise_tanh_use_dst_for_bwd")


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    """1 / (1 + exp(-x))."""
    return _called(x, "eltwise_logistic_use_dst_for_bwd")


def silu(x: torch.Tensor) -> torch.Tensor:
    """x sigmoid(x)."""
    return _called(x, "eltwise_swish", 1.0)


def elu(x: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """x where it is positive, else ``alpha`` (exp(x) - 1)."""
    return _called(x, "eltwise_elu", alpha)


def mish(x: torch.Tensor) -> torch.Tensor:
    """x tanh(log(1 + exp(x)))."""
    return _called(x, "eltwise_mish")


def hardswish(x: torch.Tensor) -> torch.Tensor:
    """x times `hardsigmoid` of x."""
    return _called(x, "eltwise_hardswish", 1 / 6, 0.5)


def hardsigmoid(x: torch.Tensor) -> torch.Tensor:
    """x / 6 + 1 / 2, from 0 to 1."""
    return _called(x, "eltwise_hardsigmoid", 1 / 6, 0.5)


def hardtanh(x: torch.Tensor, min_val: float = -1.0, max_val: float = 1.0) -> torch.Tensor:
    """x from ``min_val`` to ``max_val``; raises InvalidArguments where these are not in order."""
    if max_val < min_val:
        raise InvalidArguments("max_val", max_val, f"must not be below min_val = {min_val}")
    return _called(x, "eltwise_clip_v2", min_val, max_val)


def relu6(x: torch.Tensor) -> torch.Tensor:
    """x from 0 to 6."""
    return hardtanh(x, 0.0, 6.0)


def softplus(x: torch.Tensor, beta: float = 1.0) -> torch.Tensor:
    """log(1 + exp(``beta`` x)) / ``beta``."""
    if beta == 0:
        raise InvalidArguments("beta", beta, "must not be 0")
    return _called(x, "eltwise_soft_relu", beta)


def logsigmoid(x: torch.Tensor) -> torch.Tensor:
    """The logarithm of `sigmoid`."""
    return _called(x, "eltwise_soft_relu", -1.0)
