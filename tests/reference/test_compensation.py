"""The sums do what they are for: they correct a convolution, here PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dnnl.reference.arrays import Array
from dnnl.reference.compensation import compensation


def integers(low: int, high: int, *shape: int) -> Array:
    rng = np.random.default_rng(shape)
    values: Array = rng.integers(low, high, shape, endpoint=True).astype(np.float64)
    return values


def convolve(src: Array, weights: Array, groups: int) -> Array:
    flat = weights.reshape(-1, *weights.shape[-3:])
    result = torch.nn.functional.conv2d(torch.tensor(src), torch.tensor(flat), groups=groups)
    values: Array = result.numpy()
    return values


@pytest.mark.parametrize(("shape", "mask"), [((6, 4, 3, 3), 1), ((2, 3, 4, 3, 3), 3)])
def test_they_correct_a_moved_source(shape: tuple[int, ...], mask: int) -> None:
    weights = integers(-128, 127, *shape)
    groups = shape[0] if mask == 3 else 1
    src = integers(-128, 127, 2, groups * shape[-3], 5, 6)
    want = convolve(src, weights, groups)
    s8s8 = compensation("s8s8", weights, mask).reshape(1, -1, 1, 1)
    np.testing.assert_array_equal(convolve(src + 128, weights, groups) + s8s8, want)
    zero_point = 11
    sums = compensation("zero_points", weights, mask).reshape(1, -1, 1, 1)
    corrected = convolve(src, weights, groups) + zero_point * sums
    np.testing.assert_array_equal(corrected, convolve(src - zero_point, weights, groups))


def test_what_is_not_summed_keeps_its_dimensions() -> None:
    weights = integers(-9, 9, 2, 3, 4)
    assert compensation("zero_points", weights, 5).shape == (2, 1, 4)
    np.testing.assert_array_equal(compensation("zero_points", weights, 7), -weights)


def test_sums_are_those_of_s32() -> None:
    weights = np.full((1, 200_000), 127)
    (want,) = compensation("zero_points", weights, 1).reshape(-1)
    assert want == -25_400_000
    (want,) = compensation("s8s8", weights, 1).reshape(-1)
    assert want == -25_400_000 * 128 + 2**32
