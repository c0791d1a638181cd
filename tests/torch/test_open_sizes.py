"""Sizes that change: one plan for all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

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
