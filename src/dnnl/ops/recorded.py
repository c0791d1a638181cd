"""Calls on tensors that require gradients: PyTorch's part of the library has the gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from dnnl import lazy
from dnnl.errors import InvalidArguments

# It imports PyTorch, as whoever has a tensor that requires a gradient did before.
_derivatives = lazy.Module("dnnl.torch.derivatives.calls")


class RequiresGradient(InvalidArguments):
    """A tensor requires a gradient, of which a primitive by itself records nothing."""


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with gradients of tensors that require them. It is called first: where it meets
    no such tensor, nothing else is done."""

    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except RequiresGradient as error:
            refusal = error
        return _derivatives.derived(function, given, named, refusal)

    # By this name it is pickled.
    called.__module__ = "dnnl.ops"
    return called
