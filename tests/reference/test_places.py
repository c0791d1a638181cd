"""References of places, of cumulative sums and of scattering against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dnnl.reference.arg_reduction import arg_reduction
from dnnl.reference.cumulative import cumulative
from dnnl.reference.scatter import scatter
from tests.reference.agreement import assert_agree, random, tensor


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_places_of_extremes(axis: int) -> None:
    src = random(1, 5, 6, 7)
    for function, peer in (("max", torch.argmax), ("min", torch.argmin)):
        assert_agree(
            arg_reduction(src, function, axis), peer(tensor(src), axis, keepdim=True).double()
        )


def test_equal_elements_and_nan() -> None:
    src = [1.0, 3.0, 3.0, 0.0]
    assert arg_reduction(src, "max", 0).tolist() == [1]
    assert arg_reduction(src, "max", 0, "last").tolist() == [2]
    assert arg_reduction([1.0, np.nan, 5.0, np.nan], "min", 0, "last").tolist() == [3]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_cumulative(axis: int) -> None:
    src = random(2, 5, 6, 7)
    assert_agree(cumulative(src, "sum", axis), torch.cumsum(tensor(src), axis))
    assert_agree(cumulative(src, "product", axis), torch.cumprod(tensor(src), axis))
    flipped = torch.flip(torch.cumsum(torch.flip(tensor(src), [axis]), axis), [axis])
    assert_agree(cumulative(src, "sum", axis, reverse=True), flipped)
    without = cumulative(src, "sum", axis, exclusive=True)
    assert_agree(without + src, torch.cumsum(tensor(src), axis))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    ("function", "reduce"), [("add", "sum"), ("mul", "prod"), ("max", "amax"), ("min", "amin")]
)
def test_scatter(axis: int, function: str, reduce: str) -> None:
    src, updates = random(3, 5, 6, 7), random(4, 4, 5, 3)
    numbers = np.random.default_rng(axis).integers(0, 5, (4, 5, 3))
    places = torch.from_numpy(numbers)
    want = torch.scatter_reduce(tensor(src), axis, places, tensor(updates), reduce)
    assert_agree(scatter(src, numbers, updates, axis, function), want)
    assert_agree(scatter(src, numbers - src.shape[axis], updates, axis, function), want)


def test_slices() -> None:
    src, updates = random(5, 5, 6), random(6, 4, 6)
    numbers = np.array([3, 1, 3, 0])
    want = torch.index_add(tensor(src), 0, torch.from_numpy(numbers), tensor(updates))
    assert_agree(scatter(src, numbers, updates, 0, "add"), want)
    assert scatter([0.0, 0.0], [1, 9, 1], [1.0, 2.0, 3.0], 0).tolist() == [0.0, 3.0]
