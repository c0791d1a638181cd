"""Poolings of models against ONNX Runtime: windows of any size that reach beyond their padding."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.framework.models import make_model, node
from tests.framework.test_operators import agree


def drawn(seed: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    """An image, and a window over it whose padding differs on both sides."""
    rng = random.Random(seed)
    rank = 1 + seed % 3
    kernel = [rng.randint(1, 4) for _ in range(rank)]
    attrs = {
        "kernel_shape": kernel,
        "strides": [rng.randint(1, 4) for _ in kernel],
        "pads": [rng.randint(0, k - 1) for k in (*kernel, *kernel)],
        "dilations": [rng.randint(1, 2) for _ in kernel],
        "ceil_mode": int(rng.random() < 0.8),
    }
    return (2, 3, *(rng.randint(8, 11) for _ in kernel)), attrs


@pytest.mark.parametrize("seed", range(12))
def test_averages(seed: int) -> None:
    dims, attrs = drawn(seed)
    include = int(seed % 4 != 3)
    average = node("AveragePool", ["x"], "y", count_include_pad=include, **attrs)
    agree(make_model([average], {"x": dims}, ["y"], opset=19), "propagate")


@pytest.mark.parametrize("seed", range(6))
def test_maxima(seed: int) -> None:
    dims, attrs = drawn(100 + seed)
    maximum = node("MaxPool", ["x"], "y", **attrs)
    agree(make_model([maximum], {"x": dims}, ["y"], opset=19), "propagate")


def test_what_pytorch_exports_by_default() -> None:
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    average = node("AveragePool", ["r"], "y", ceil_mode=1, count_include_pad=1, **attrs)
    nodes = [node("Relu", ["x"], "r"), average]
    agree(make_model(nodes, {"x": (2, 20, 8, 9)}, ["y"], opset=17), "propagate")
