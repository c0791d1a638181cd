"""The grid sample reference against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from dnnl.reference.grid_sample import grid_sample
from tests.pairs import every_pair
from tests.reference.agreement import assert_agree, random, tensor


@every_pair(
    corners=[False, True],
    padding=["zeros", "border", "reflection"],
    function=["nearest", "linear", "cubic"],
)
def test_images(function: str, padding: str, corners: bool) -> None:
    src = random(1, 2, 3, 5, 7)
    grid = np.random.default_rng(2).uniform(-1.7, 1.7, (2, 6, 4, 2))
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(function, function)
    places = torch.from_numpy(grid)
    want = functional.grid_sample(tensor(src), places, mode, padding, align_corners=corners)
    coordinates = "corners" if corners else "edges"
    assert_agree(grid_sample(src, grid, function, padding, coordinates), want, rtol=1e-9)


@pytest.mark.parametrize("function", ["nearest", "linear"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_volumes(padding: str, function: str) -> None:
    src = random(1, 2, 3, 4, 5, 7)
    grid = np.random.default_rng(3).uniform(-1.7, 1.7, (2, 2, 6, 4, 3))
    mode = {"linear": "bilinear"}.get(function, function)
    want = functional.grid_sample(
        tensor(src), torch.from_numpy(grid), mode, padding, align_corners=False
    )
    assert_agree(grid_sample(src, grid, function, padding), want, rtol=1e-9)


def test_pixels() -> None:
    src = np.arange(12.0).reshape(1, 1, 3, 4)
    grid = [[[[1.0, 2.0], [0.5, 0.0]]]]
    assert grid_sample(src, grid, coordinates="pixels").ravel().tolist() == [9.0, 0.5]
