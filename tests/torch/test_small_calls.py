"""Calls that cost as much as what they compute: whole graphs, on the memory of tensors."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from dnnl.torch.backend import compile_graph
from dnnl.torch.regions import Whole
from tests.torch.compiling import check, compare, compiled


def several(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x * y).relu() + x).tanh() * 2 - y


def of_types(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x + y, x.abs(), x > y


def mutating(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.exp()


def of_backend(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """What the backend returns for a function; its result is eager's."""
    found = []

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        found.append(compile_graph(module, inputs))
        return found[-1]

    copies = [own.clone() for own in arguments]
    compare(torch.compile(function, backend=backend)(*arguments), function(*copies))
    compare(list(arguments), copies)
    return found[-1]


def is_whole(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a call passes by AOTAutograd's wrapper."""
    return isinstance(of_backend(function, *arguments), Whole)


def test_which_graphs_need_nothing_of_pytorch() -> None:
    x, y = torch.randn(2, 3, 4)
    assert is_whole(several, x, y)
    assert is_whole(lambda x: (x.exp(), x.sum(0)), x)
    assert is_whole(nn.Linear(4, 2), x)
    assert not is_whole(mutating, x)
    assert not is_whole(lambda x: (x.exp(), x.t()), x)
    assert not is_whole(torch.special.i1, x)
    assert is_whole(lambda x, y: x.exp() + y, x, x)


@pytest.mark.usefixtures("with_gradients")
def test_gradients_need_pytorch() -> None:
    x, y = torch.randn(2, 3, 4)
    assert is_whole(several, x, y)
    assert not is_whole(several, x.clone().requires_grad_(), y)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32]
)
def test_types(dtype: torch.dtype) -> None:
    x, y = (torch.randn(2, 37, 21) * 4).to(dtype)
    torch.testing.assert_close(compiled(of_types)(x, y), of_types(x, y))


@pytest.mark.usefixtures("threads")
def test_several_steps_and_results() -> None:
    x = torch.randn(10, 96)
    check(lambda x: (x.softmax(-1), (x @ x.t()).sum(0), x.amax(1), 7), x)


def test_results_are_laid_out_as_eager_has_them() -> None:
    x = torch.randn(2, 3, 4, 5)
    last = x.to(memory_format=torch.channels_last)
    check(lambda x, y: (x * 2, y * 2, y.exp() + x, x.sum((), keepdim=True)), x, last)
    check(lambda x: (x.transpose(1, 3) * 2, x[:, :, 0].t() + 1 if x.ndim == 2 else x + 1), x)


def test_arguments_that_are_copied() -> None:
    data = bytearray(4 * 12 + 1)
    odd = torch.frombuffer(data, dtype=torch.float32, count=12, offset=1).view(3, 4)
    odd.copy_(torch.randn(3, 4))
    y = torch.randn(3, 4)
    negative = torch._neg_view(y)
    for x in (odd, negative, y[:1].expand(3, 4), y.t().reshape(3, 4), torch.randn(6, 4)[::2]):
        torch._dynamo.reset()
        check(several, x, y)


def test_the_weights_of_a_region_stay() -> None:
    net = nn.Conv2d(3, 4, 3).eval()
    x = torch.randn(2, 1, 12, 10).expand(2, 3, 12, 10)
    function, expected = compiled(net), net(x)
    for _ in range(3):
        compare(function(x), expected)
        gc.collect()
        _filled = [torch.full((4 * n,), torch.nan) for n in range(1, 200)]
    with torch.no_grad():
        net.weight.mul_(2)
    compare(function(x), net(x))


def test_tensors_that_no_guard_has_seen_are_pytorchs() -> None:
    for other in (torch.randn(3), torch.randn(4, 16), torch.randn(64).double()):
        torch._dynamo.reset()
        function = of_backend(lambda x: x.exp() + 1, torch.randn(64))
        assert isinstance(function, Whole)
        compare(function(other), [other.exp() + 1])


def test_indices_that_no_guard_has_seen_are_pytorchs() -> None:
    x, places = torch.randn(9, 4), torch.tensor([1, 8, 3])
    for other in (places.int(), places[:2]):
        torch._dynamo.reset()
        function = of_backend(lambda x, places: x.index_select(0, places) * 2, x, places)
        assert isinstance(function, Whole)
        compare(function(x, other), [x.index_select(0, other) * 2])


def test_new_results_in_each_of_several_threads() -> None:
    function = compiled(several)
    x = torch.randn(8, 1000)
    function(x[0], x[1])

    def run(place: int) -> bool:
        own = x[place], x[(place + 1) % 8]
        expected = several(*own)
        results = [function(*own) for _ in range(50)]
        return all(torch.allclose(one, expected, atol=1e-5) for one in results)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(8)))
