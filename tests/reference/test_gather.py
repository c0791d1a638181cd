"""The gather reference against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dnnl.reference.gather import gather
from tests.reference.agreement import assert_agree, random, tensor


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_slices(axis: int) -> None:
    src = random(1, 5, 6, 7)
    numbers = np.random.default_rng(axis).integers(0, 5, 9)
    want = torch.index_select(tensor(src), axis, torch.from_numpy(numbers))
    assert_agree(gather(src, numbers, axis), want, rtol=0)
    assert_agree(gather(src, numbers - src.shape[axis], axis), want, rtol=0)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements(axis: int) -> None:
    """Fewer than src has along the other axes."""
    src = random(2, 5, 6, 7)
    numbers = np.random.default_rng(axis).integers(0, 5, (4, 5, 3))
    want = torch.gather(tensor(src), axis, torch.from_numpy(numbers))
    assert_agree(gather(src, numbers, axis), want, rtol=0)
    assert_agree(gather(src, numbers - src.shape[axis], axis), want, rtol=0)


def test_outside_is_the_nearest() -> None:
    assert gather([1.0, 2.0, 3.0], [-9, -4, 3, 99], 0).tolist() == [1.0, 1.0, 3.0, 3.0]
