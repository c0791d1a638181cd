"""Sizes that change: one plan for all, and calls at addresses of those that come again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from dnnl import SpecialKernels, config
from dnnl.framework.plans import Settings
from dnnl.torch import runs
from dnnl.torch.backend import compile_graph
from tests.torch.compiling import Net, attention, compare, compiled


def test_open_sizes_have_one_plan(plans: list[Any]) -> None:
    net = Net().eval()
    function = compiled(net, dynamic=True)
    for n, height in ((2, 9), (4, 12), (3, 8), (7, 20), (6, 33)):
        x = torch.randn(n, 3, height, height + 5)
        compare(function(x), net(x))
    assert len(plans) == 1


def test_one_and_no_images(plans: list[Any]) -> None:
    net = Net().eval()
    function = compiled(net)
    for n in (4, 3, 6, 1, 0, 5):
        x = torch.randn(n, 3, 8, 8)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        compare(function(x), net(x))


def test_lengths_that_are_marked(plans: list[Any]) -> None:
    function = compiled(attention)
    for length in (5, 9, 31, 2, 64):
        x = torch.randn(2, length, 32)
        torch._dynamo.mark_dynamic(x, 1)
        compare(function(x), attention(x))
    assert len(plans) == 1


def test_sizes_as_arguments_and_results(plans: list[Any]) -> None:
    def net(x: torch.Tensor, n: int) -> tuple[torch.Tensor, int]:
        return (x * 2).sum(1, keepdim=True).expand(-1, n) + n, x.shape[0] * n

    function = compiled(net, dynamic=True)
    for rows, n in ((3, 4), (5, 7), (8, 9)):
        x = torch.randn(rows, 6)
        compare(function(x, n), net(x, n))
    assert len(plans) == 1


def test_a_cache_that_grows(plans: list[Any]) -> None:
    def step(x: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys = torch.cat([keys, x], 1)
        return torch.softmax(x @ keys.transpose(1, 2), -1) @ keys, keys

    function = compiled(step)
    ours = theirs = torch.randn(2, 2, 16)
    for _ in range(6):
        torch._dynamo.mark_dynamic(ours, 1)
        x = torch.randn(2, 1, 16)
        (a, ours), (b, theirs) = function(x, ours), step(x, theirs)
        compare([a, ours], [b, theirs])
    assert len(plans) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_positions_behind_a_cache(plans: list[Any], dtype: torch.dtype) -> None:
    class Positions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(64, 16, dtype=dtype)

        def forward(self, x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
            first = keys.shape[1]
            found: torch.Tensor = self.table(torch.arange(first, first + x.shape[1]))
            return torch.cat([keys, x + found], 1) * 2

    net = Positions()
    function = compiled(net, dynamic=True)
    for length in (3, 7, 11, 60):
        x, keys = torch.randn(2, 4, 16, dtype=dtype), torch.randn(2, length, 16, dtype=dtype)
        compare(function(x, keys), net(x, keys))
    assert len(plans) == 1


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What computes at addresses."""
    found: list[Any] = []
    original = runs._direct

    def counted(*args: Any) -> Any:
        found.append(original(*args))
        return found[-1]

    monkeypatch.setattr(runs, "_direct", counted)
    return found


def several(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    z = torch.softmax(x @ y.t(), -1)
    return z, (z @ y).tanh() + x


@pytest.mark.usefixtures("threads")
def test_sizes_that_come_again(made: list[Any]) -> None:
    function = compiled(several, dynamic=True)
    for _ in range(4):
        for rows, width in ((3, 8), (5, 8), (9, 4)):
            x, y = torch.randn(rows, width), torch.randn(7, width)
            compare(function(x, y), several(x, y))
    assert len(made) == 3
    assert all(made)


def test_strides_that_come_again(made: list[Any]) -> None:
    function = compiled(several, dynamic=True)
    for _ in range(3):
        for x in (torch.randn(6, 8), torch.randn(8, 6).t(), torch.randn(6, 16)[:, ::2]):
            y = torch.randn(7, 8)
            compare(function(x, y), several(x, y))
    assert all(made)


def test_channels_last_that_come_again() -> None:
    net = Net().eval()
    function = compiled(net.body, dynamic=True)
    for _ in range(3):
        for size in (9, 12):
            x = torch.randn(2, 3, size, size + 5).to(memory_format=torch.channels_last)
            compare(function(x), net.body(x))


@pytest.mark.parametrize("reads", [False, True])
def test_numbers_that_come_again(made: list[Any], reads: bool) -> None:
    def net(x: torch.Tensor, n: int) -> torch.Tensor:
        return (x * 2).sum(1, keepdim=True).expand(-1, n).exp() + (n if reads else 1)

    function = compiled(net, dynamic=True)
    for rows, n in ((3, 4), (3, 4), (3, 4), (3, 5), (3, 4), (3, 5), (5, 5), (3, 5)):
        x = torch.randn(rows, 6)
        compare(function(x, n), net(x, n))
    assert [own is not None for own in made] == [not reads] * 2


def test_nothing_comes_again() -> None:
    function = compiled(lambda x: x.exp() * 2, dynamic=True)
    for rows in (4, 0, 0, 0, 4, 4):
        x = torch.randn(rows, 3)
        compare(function(x), x.exp() * 2)


def test_more_sizes_than_are_remembered(made: list[Any]) -> None:
    function = compiled(lambda x: x.exp() * 2, dynamic=True)
    for size in (*range(2, 100), *range(90, 100), *range(90, 100)):
        x = torch.randn(size)
        compare(function(x), x.exp() * 2)
    assert len(made) >= 10


def test_indices_that_come_again() -> None:
    function = compiled(lambda x, places: x[places] * 2, dynamic=True)
    x = torch.randn(9, 4)
    for places in ([1, 8, 3], [0, 0, -9], [5, 4, 3]):
        compare(function(x, torch.tensor(places)), x[places] * 2)
    with pytest.raises(IndexError):
        function(x, torch.tensor([1, 9, 3]))


def test_elements_that_no_guard_has_seen(made: list[Any]) -> None:
    found: list[Callable[..., Any]] = []

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        found.append(compile_graph(module, inputs))
        return found[-1]

    function = torch.compile(lambda x: x.exp() * 2, backend=backend, dynamic=True)
    for _ in range(3):
        function(torch.randn(5))
    x = torch.randn(5).double()
    (graph,) = found
    compare(graph(5, x), [x.exp() * 2])
    x = torch.randn(5)
    compare(graph(5, x), [x.exp() * 2])
    assert len(made) == 1


def test_a_size_gets_a_plan_of_its_own(made: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    often = partial(Settings, special=SpecialKernels("often", seconds=0.0))
    monkeypatch.setattr(runs, "Settings", often)
    function = compiled(several, dynamic=True)
    x, y = torch.randn(6, 8), torch.randn(7, 8)
    expected, end = several(x, y), time.monotonic() + 60
    while not any(own and not own._session.is_open for own in made):
        compare(function(x, y), expected)
        time.sleep(0.05)
        assert time.monotonic() < end
    compare(function(x, y), expected)
    assert made[0]._session.is_open


def test_every_size_has_a_plan_of_its_own(made: list[Any]) -> None:
    with config.override("special_kernels", "always"):
        function = compiled(several, dynamic=True)
        for _ in range(3):
            for rows in (3, 5, 9):
                x, y = torch.randn(rows, 8), torch.randn(7, 8)
                compare(function(x, y), several(x, y))
    assert len(made) == 3
    assert not any(own._session.is_open for own in made)


def test_sizes_in_several_threads() -> None:
    function = compiled(several, dynamic=True)
    y = torch.randn(7, 8)
    function(torch.randn(2, 8), y)

    def run(place: int) -> bool:
        x = torch.randn(3 + place % 3, 8)
        expected = several(x, y)
        with torch.no_grad():
            results = [function(x, y) for _ in range(50)]
        return all(
            torch.allclose(one, other, atol=1e-5)
            for found in results
            for one, other in zip(found, expected, strict=True)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(8)))


class Block(nn.Module):
    """Strides, a depthwise convolution, normalizations and a pooling around a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2), nn.BatchNorm2d(16), nn.SiLU())
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.inner = nn.Sequential(
            nn.Conv2d(16, 16, 3, 2, 1, groups=16), nn.BatchNorm2d(16), nn.SiLU()
        )
        self.outer, self.beside = nn.Conv2d(16, 24, 3, padding=1), nn.Conv2d(16, 24, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.begin(x))
        result: torch.Tensor = self.outer(self.inner(x)) + self.beside(x)
        return result


@pytest.mark.usefixtures("with_gradients")
def test_training_on_images_of_any_size(plans: list[Any], loaded: list[Any]) -> None:
    net = Block()
    theirs = deepcopy(net)
    function = compiled(net, dynamic=True)
    for n, height, width in ((2, 33, 33), (2, 40, 52), (3, 37, 45), (2, 50, 36), (4, 41, 47)):
        x = torch.randn(n, 3, height, width)
        for own, run in ((net, function), (theirs, theirs)):
            own.zero_grad()
            run(x).square().mean().backward()
        for ours, wanted in zip(net.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, wanted.grad, rtol=1e-3, atol=1e-5)
        if height == 40:
            before = len(plans), len(loaded)
    assert 0 < before[0] == len(plans)
    assert 0 < before[1] == len(loaded)


UPSAMPLINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "upsampling": partial(functional.interpolate, scale_factor=2, mode="bilinear"),
    "corners": partial(functional.interpolate, scale_factor=3, mode="bilinear", align_corners=True),
    "half": partial(functional.interpolate, scale_factor=1.5, mode="bilinear"),
    "cubic": partial(functional.interpolate, scale_factor=2, mode="bicubic"),
    "nearest": partial(functional.interpolate, scale_factor=2),
    "middles": lambda x: functional.interpolate(
        x, [3 * x.shape[2] - 1, 2 * x.shape[3]], mode="nearest-exact"
    ),
}
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **UPSAMPLINGS,
    "roll": partial(torch.roll, shifts=(1, 2), dims=(2, 3)),
    "flip": partial(torch.flip, dims=(2, 3)),
    "reflection": partial(functional.pad, pad=(1, 2, 2, 1), mode="reflect"),
    "unfolding": partial(functional.unfold, kernel_size=3, padding=1),
    "groups": partial(functional.group_norm, num_groups=2),
    "maxima": partial(functional.max_pool2d, kernel_size=3, stride=2, ceil_mode=True),
}


@pytest.mark.usefixtures("with_gradients")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_plan_for_images_of_any_size(name: str, plans: list[Any]) -> None:
    function = compiled(lambda x: FUNCTIONS[name](x * 2), dynamic=True)
    for n, height, width in ((2, 16, 16), (2, 20, 24), (3, 27, 18), (2, 24, 31), (4, 19, 21)):
        x = torch.randn(n, 4, height, width)
        ours, theirs = (x.clone().requires_grad_() for _ in range(2))
        found, wanted = function(ours), FUNCTIONS[name](theirs * 2)
        for own in (found, wanted):
            own.square().sum().backward()
        # PyTorch rounds the positions of resampled elements in f32.
        bound = 5e-5 if name in UPSAMPLINGS else 1e-5
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=bound)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)
        if height == 20:
            before = len(plans)
    assert 0 < before == len(plans)
    if name in UPSAMPLINGS:
        operators = {node.op for graph in plans for node in graph.nodes}
        assert operators >= {"ResizeByRule", "ResizeGradient"}
