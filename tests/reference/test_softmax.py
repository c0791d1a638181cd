"""The softmax reference against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dnnl.errors import InvalidArguments
from dnnl.reference.softmax import softmax, softmax_backward
from tests.pairs import every_pair
from tests.reference.agreement import assert_agree, random, tensor

PEERS = {"softmax_accurate": torch.softmax, "softmax_log": torch.log_softmax}


@every_pair(alg=PEERS, axis=[0, 1, 2], spread=[1.0, 300.0])
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


@every_pair(alg=PEERS, axis=[0, 1, 2], spread=[1.0, 300.0])
def test_backward_agrees_with_pytorch(alg: str, axis: int, spread: float) -> None:
    leaf = tensor(spread * random(1, 3, 7, 5)).requires_grad_()
    diff_dst = random(2, 3, 7, 5)
    dst = PEERS[alg](leaf, dim=axis)
    (want,) = torch.autograd.grad(dst, leaf, tensor(diff_dst))
    assert_agree(softmax_backward(dst.detach().numpy(), diff_dst, axis, alg), want)


def test_backward_of_a_row_of_minus_infinity() -> None:
    """Such a row has no weight: its results are constant, or move with their own sources alone."""
    src, diff_dst = np.full((1, 4), -np.inf), random(1, 1, 4)
    for alg, want in (("softmax_accurate", 0 * diff_dst), ("softmax_log", diff_dst)):
        got = softmax_backward(softmax(src, 1, alg), diff_dst, 1, alg)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("alg", PEERS)
def test_one_element_and_none(alg: str) -> None:
    one = softmax(np.array([[7.0]]), 1, alg)
    np.testing.assert_array_equal(one, [[float(alg == "softmax_accurate")]])
    np.testing.assert_array_equal(softmax_backward(one, [[5.0]], 1, alg), [[0.0]])
    for dims in ((2, 0), (0, 2)):
        none = softmax(np.zeros(dims), 1, alg)
        assert none.shape == softmax_backward(none, none, 1, alg).shape == dims


def test_a_source_of_integers() -> None:
    src = np.array([[-128, 127, 126, 0]], np.int8)
    want = torch.softmax(torch.from_numpy(src).double(), dim=1)
    assert_agree(softmax(src, 1), want)


def test_other_algorithms_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="pooling_max"):
        softmax(np.zeros((1, 1)), 1, "pooling_max")
    with pytest.raises(InvalidArguments, match="pooling_max"):
        softmax_backward(np.zeros((1, 1)), np.zeros((1, 1)), 1, "pooling_max")
