"""Functions and their gradients beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Function = Callable[..., torch.Tensor]


def check_gradients(
    function: Function, expected: Function, *tensors: torch.Tensor, tolerance: float = 1e-4
) -> None:
    """Compare the results of two functions, and the gradients of all tensors."""
    results, gradients = [], []
    for each in (function, expected):
        given = [own.detach().requires_grad_() for own in tensors]
        results.append(each(*given))
        torch.manual_seed(1)
        gradient = torch.randn_like(results[0], memory_format=torch.contiguous_format)
        torch.autograd.backward(results[-1], gradient)
        gradients.append([own.grad for own in given])
    for pair in (results, gradients):
        torch.testing.assert_close(*pair, rtol=tolerance, atol=tolerance * 4)


def traces(function: Callable[..., Any], *tensors: torch.Tensor) -> None:
    """A function compiles as one graph, with its gradients and for open sizes."""
    for dynamic in (False, True):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        check_gradients(compiled, function, *tensors)
