"""Results that are views: they have eager's memory, strides, contents and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import dnnl
from dnnl.torch.backend import compile_graph
from dnnl.torch.partition import SHARED
from tests.torch.compiling import compare

Results = tuple[torch.Tensor, ...]


def of_arguments(x: torch.Tensor) -> Results:
    return x.narrow(1, 0, x.shape[1] // 2), x.t(), x, x.reshape(-1)[:: x.shape[0] + 1], x.sin()


def of_results(x: torch.Tensor) -> Results:
    y = (x * 2).roll(1, 0)
    return y, y.narrow(0, 1, x.shape[0] - 1), y[:, ::2], y.t().relu()


def with_gaps(x: torch.Tensor) -> Results:
    return x.exp()[:, 1:3], x.sum(1, keepdim=True).expand(x.shape), x.mean().expand(3)


def of_parts(x: torch.Tensor) -> Results:
    parts = torch.split(x @ x.t() @ x.repeat(1, 4)[:, :24], 8, 1)
    return tuple(own.view(-1, 2, 4).transpose(0, 1) for own in parts)


def computed_with(x: torch.Tensor) -> Results:
    y = x.exp()
    return y[1:], y[1:].sum(0) + 1, (y[1:] * 2).tanh()


def twice(x: torch.Tensor) -> Results:
    y = x + 1
    return y, y, y.view(-1)


def shared(results: Sequence[torch.Tensor]) -> list[list[bool]]:
    """Which results are on the same memory."""
    memory = [own.untyped_storage().data_ptr() for own in results]
    return [[own == other for other in memory] for own in memory]


FUNCTIONS = [of_arguments, of_results, with_gaps, of_parts, computed_with, twice]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda own: own.__name__)
def test_views(function: Callable[..., Any], dynamic: bool | None) -> None:
    fast = torch.compile(function, backend=compile_graph, fullgraph=True, dynamic=dynamic)
    for shape in ((3, 7), (4, 9), (5, 6), (4, 9)):
        x = torch.randn(shape)
        found, expected = fast(x), function(x)
        compare(found, expected)
        assert shared((x, *found)) == shared((x, *expected))


@pytest.mark.usefixtures("with_gradients")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda own: own.__name__)
def test_views_with_gradients(function: Callable[..., Any], dynamic: bool | None) -> None:
    fast = torch.compile(function, backend=compile_graph, fullgraph=True, dynamic=dynamic)
    for shape in ((3, 7), (4, 9), (5, 6), (4, 9)):
        x = torch.randn(shape, requires_grad=True)
        found, expected = fast(x), function(x)
        compare([own.detach() for own in found], [own.detach() for own in expected])
        assert shared((x, *found)) == shared((x, *expected))
        shares = [torch.randn_like(own) for own in expected]
        compare(*(torch.autograd.grad(own, x, shares) for own in (found, expected)))


@pytest.mark.usefixtures("with_gradients")
def test_gradients_accumulate_apart() -> None:
    """Two that are views of one have memory of their own, as in eager."""
    matrix, row = torch.randn(3, 4, requires_grad=True), torch.randn(12, requires_grad=True)

    def function() -> torch.Tensor:
        return (matrix + row.view(3, 4)).tanh().sum()

    fast = torch.compile(function, backend=compile_graph)
    (expected,) = torch.autograd.grad(function(), matrix)
    for step in range(1, 4):
        torch.autograd.backward(fast())
        found = [own.grad for own in (matrix, row) if own.grad is not None]
        compare(found, [step * expected, step * expected.reshape(-1)])
    assert shared(found) == [[True, False], [False, True]]


def test_an_explanation_names_views() -> None:
    found = dnnl.explain_graph(of_results, torch.randn(3, 7))
    assert [own.operator for own in found.decisions if own.reason == SHARED] == [
        "aten.slice.Tensor",
        "aten.slice.Tensor",
    ]
