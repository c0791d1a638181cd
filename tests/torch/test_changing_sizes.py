"""Differentiable functions on ever other sizes: gradients, and that few kernels serve all."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

import dnnl.torch as dt
from dnnl.torch.functions import execution

pytestmark = pytest.mark.usefixtures("with_gradients", "_forgotten")

LENGTHS = (19, 14, 21, 17, 23, 22, 26, 18)
OPEN = 5
"""After so many lengths there are kernels for all others."""


@pytest.fixture
def _forgotten() -> None:
    execution._plan.cache_clear()


class Attended(nn.Module):
    """A layer of attention of a module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(x, x, x, need_weights=False)[0]
        return result


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(24, 40), (-1, 24)),
    "rows of a batch": (lambda: nn.Linear(24, 40), (2, -1, 24)),
    "layer_norm": (lambda: nn.LayerNorm(24), (2, -1, 24)),
    "gelu": (nn.GELU, (2, -1, 24)),
    "softmax": (lambda: nn.Softmax(-1), (4, -1, 24)),
    "pooling": (lambda: nn.AvgPool2d(2), (-1, 3, 8, 8)),
    "convolution": (lambda: nn.Conv2d(16, 24, 3, padding=1), (2, 16, -1, 20)),
    "images of a convolution": (lambda: nn.Conv2d(16, 24, 3, padding=1), (-1, 16, 7, 9)),
    "points of a convolution": (lambda: nn.Conv2d(16, 24, 1, bias=False), (2, 16, -1, 20)),
    "strides of a convolution": (lambda: nn.Conv2d(16, 24, 3, 2, 1), (2, 16, -1, 20)),
    "depthwise": (lambda: nn.Conv2d(16, 16, 3, padding=1, groups=16), (2, 16, 9, -1)),
    "attention": (lambda: nn.MultiheadAttention(24, 3, batch_first=True), (2, -1, 24)),
    "lstm": (lambda: nn.LSTM(24, 16, num_layers=2, bidirectional=True), (-1, 3, 24)),
    "gru": (lambda: nn.GRU(24, 16), (-1, 3, 24)),
    "batches of a gru": (lambda: nn.GRU(24, 16, batch_first=True), (-1, 7, 24)),
}


def _trained(net: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The result and the gradients."""
    x = x.clone().requires_grad_()
    net.zero_grad()
    result = net(x)
    result = result[0] if isinstance(result, tuple) else result
    result.square().sum().backward()
    parameters = (own.grad for own in net.parameters())
    return [result, x.grad, *(own for own in parameters if own is not None)]


@pytest.mark.parametrize("name", MODULES)
def test_lengths_that_change(name: str, loaded: list[Any]) -> None:
    make, shape = MODULES[name]
    theirs = make()
    ours = dt.replace(deepcopy(theirs))
    if name == "attention":
        ours, theirs = Attended(ours), Attended(theirs)
    for number, length in enumerate(LENGTHS):
        x = torch.randn([length if own < 0 else own for own in shape])
        for got, want in zip(_trained(ours, x), _trained(theirs, x), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
        if number < OPEN:
            before = len(loaded)
    assert 0 < before == len(loaded)


def test_both_sizes_of_a_batch_change(loaded: list[Any]) -> None:
    theirs = nn.LSTM(12, 16)
    ours = dt.replace(deepcopy(theirs))
    for steps, rows in ((5, 3), (9, 4), (7, 8), (12, 5), (30, 2), (4, 9), (8, 8), (21, 6)):
        x = torch.randn(steps, rows, 12)
        for got, want in zip(_trained(ours, x), _trained(theirs, x), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
        if steps == 30:
            before = len(loaded)
    assert 0 < before == len(loaded)
