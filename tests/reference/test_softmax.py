"""The softmax reference against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dnnl.reference.softmax import softmax
from tests.reference.agreement import assert_agree, random, tensor

PEERS = {"softmax_accurate": torch.softmax, "softmax_log": torch.log_softmax}


@pytest.mark.parametrize("alg", PEERS)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_agrees_with_pytorch(alg: str, axis: int, spread: float) -> None:
    src = spread * random(1, 3, 7, 5)
    assert_agree(softmax(src, axis, alg), PEERS[alg](tensor(src), dim=axis))


def test_a_row_of_minus_infinity() -> None:
    src = np.full((1, 4), -np.inf)
    np.testing.assert_array_equal(softmax(src, 1), np.zeros((1, 4)))
    np.testing.assert_array_equal(softmax(src, 1, "softmax_log"), src)


def test_single_minus_infinities_are_ordinary() -> None:
    src = np.array([[0.0, -np.inf, 0.0]])
    np.testing.assert_array_equal(softmax(src, 1), [[0.5, 0.0, 0.5]])
