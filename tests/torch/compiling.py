"""Networks that are compiled, and results beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dnnl.torch.backend import compile_graph


def compiled(net: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(net, backend=compile_graph, fullgraph=True, **options)


def check(net: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Compare a first and a second call with eager: contents, types and strides."""
    function = compiled(net, **options)
    for _ in range(2):
        compare(function(*arguments), net(*arguments))


def compare(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(
        actual, expected, rtol=1e-4, atol=1e-5, equal_nan=True, check_stride=True
    )


class Net(nn.Module):
    """Convolutions and a product, with everything that folds into them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.body(x).mean((2, 3)))
        return found.softmax(-1)


class Block(nn.Module):
    """What networks have many of."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.linear(x)
        return found.relu() + x


def attention(x: torch.Tensor) -> torch.Tensor:
    batch, length, width = x.shape
    heads = x.view(batch, length, 4, width // 4).transpose(1, 2)
    mask = torch.arange(length)[None] <= torch.arange(length)[:, None]
    found = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
    return found.transpose(1, 2).reshape(batch, length, width) * (1 / length)


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)
