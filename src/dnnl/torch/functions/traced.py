"""Activations that are functions of Python's."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import torch

from dnnl import forks
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.primitives.parameters import Traced
from dnnl.torch.functions.checks import check_source, empty_like, format_of, packed
from dnnl.torch.functions.execution import Descs, run
from dnnl.torch.functions.gradients import only_once
from dnnl.torch.functions.operators import operator
from dnnl.types.arg import Arg
from dnnl.types.expression import Function

_FUNCTIONS: dict[Function, int] = {}
"""Functions by their numbers, which operators take for them. None is ever dropped: traced graphs
have the numbers."""
_NUMBERING = Lock()
forks.hold(_NUMBERING)
_ALG = "eltwise_function"


@operator("function")
def _function(x: torch.Tensor, number: int) -> torch.Tensor:
    result = empty_like(x, x.shape)
    run(_forward, {Arg.SRC: packed(x), Arg.DST: result}, _function_of(number))
    return result


@_function.register_fake
def _(x: torch.Tensor, number: int) -> torch.Tensor:
    return empty_like(x, x.shape)


@operator("function_backward")
def _function_backward(gradient: torch.Tensor, x: torch.Tensor, number: int) -> torch.Tensor:
    result = empty_like(x, x.shape)
    operands: dict[int, torch.Tensor] = {
        Arg.DIFF_DST: gradient.contiguous(memory_format=format_of(x)),
        Arg.SRC: packed(x),
        Arg.DIFF_SRC: result,
    }
    run(_backward, operands, _function_of(number))
    return result


@_function_backward.register_fake
def _(gradient: torch.Tensor, x: torch.Tensor, number: int) -> torch.Tensor:
    return empty_like(x, x.shape)


only_once(_function_backward, "activations")


def _saved(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, ctx.number = inputs
    ctx.save_for_backward(x)


def _gradient(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return _function_backward(gradient, *ctx.saved_tensors, ctx.number), None


_function.register_autograd(_gradient, setup_context=_saved)


def _forward(descs: Descs, function: Function) -> EltwiseDesc:
    return EltwiseDesc.made(
        prop_kind="forward_training",
        alg_kind=_ALG,
        src_desc=descs[Arg.SRC],
        dst_desc=descs[Arg.DST],
        function=function,
    )


def _backward(descs: Descs, function: Function) -> EltwiseDesc:
    return EltwiseDesc.made(
        prop_kind="backward_data",
        alg_kind=_ALG,
        diff_src_desc=descs[Arg.DIFF_SRC],
        diff_dst_desc=descs[Arg.DIFF_DST],
        src_desc=descs[Arg.SRC],
        function=function,
    )


def _function_of(number: int) -> Function:
    return list(_FUNCTIONS)[number]


def activation(function: Callable[..., object]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A differentiable function of float tensors, of a Python function of one traced scalar.

    ``function`` uses operators and the functions of `dnnl.math`. It is called once; its derivative
    is that of what it computes, of one side where it jumps or has a corner. Programs that
    `torch.export` has saved cannot be read with it. Raises InvalidArguments for functions that
    cannot be traced.

    >>> import dnnl.math
    >>> own = activation(lambda x: x * dnnl.math.tanh(x))
    >>> own(torch.zeros(2))
    tensor([0., 0.])
    """
    found = Traced().read("fn", function, 0)
    assert found is not None
    with _NUMBERING:
        number = _FUNCTIONS.setdefault(found, len(_FUNCTIONS))

    def called(x: torch.Tensor) -> torch.Tensor:
        check_source("x", x)
        if x.dim() == 0:
            return called(x[None])[0]
        result: torch.Tensor = _function(x, number)
        return result

    return called
