"""The layer normalization reference against PyTorch and its autograd."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl.reference.arrays import Array
from dnnl.reference.layer_normalization import (
    layer_normalization,
    layer_normalization_backward,
    statistics,
)
from tests.reference.agreement import assert_agree, random, tensor

EPSILON = 1e-3
DIMS = [(4, 7), (2, 3, 5), (2, 3, 1, 6), (2, 1, 3, 2, 4), (3, 1)]
every_dims = pytest.mark.parametrize("dims", DIMS)
every_kind = pytest.mark.parametrize("rms", [False, True], ids=["layer", "rms"])


def given(dims: tuple[int, ...]) -> tuple[Array, Array, Array, Array]:
    """A source far from its normal form, diff_dst, scale and shift."""
    columns = dims[-1]
    return 3 * random(1, *dims) + 2, random(2, *dims), random(3, columns), random(4, columns)


def peer(operands: Sequence[torch.Tensor], rms: bool) -> torch.Tensor:
    """Of the source, the scale and the shift."""
    src, scale, shift = operands
    columns = [src.shape[-1]]
    if rms:
        return F.rms_norm(src, columns, scale, EPSILON) + shift
    return F.layer_norm(src, columns, scale, shift, EPSILON)


@every_dims
def test_statistics(dims: tuple[int, ...]) -> None:
    src = given(dims)[0]
    mean, variance = statistics(src)
    assert_agree(mean, tensor(src).mean(-1))
    assert_agree(variance, tensor(src).var(-1, unbiased=False))
    mean, variance = statistics(src, rms=True)
    np.testing.assert_array_equal(mean, np.zeros(dims[:-1]))
    assert_agree(variance, tensor(src).square().mean(-1))


@every_kind
@every_dims
def test_forward_and_backward(dims: tuple[int, ...], rms: bool) -> None:
    src, diff_dst, scale, shift = given(dims)
    mean, variance = statistics(src, rms=rms)
    got = layer_normalization(src, mean, variance, scale, shift, epsilon=EPSILON, rms=rms)
    leaves = [tensor(values).requires_grad_() for values in (src, scale, shift)]
    want = peer(leaves, rms)
    assert_agree(got, want)

    gradients = layer_normalization_backward(
        src, diff_dst, mean, variance, scale, epsilon=EPSILON, rms=rms
    )
    wanted = torch.autograd.grad(want, leaves, tensor(diff_dst))
    for gradient, expected in zip(gradients, wanted, strict=True):
        assert_agree(gradient, expected, rtol=1e-11)


@every_kind
@pytest.mark.parametrize("use_scale", [False, True])
def test_given_statistics_are_constants(use_scale: bool, rms: bool) -> None:
    src, diff_dst, scale, shift = given((2, 3, 5))
    mean, variance = random(5, 2, 3), random(6, 2, 3) ** 2
    leaves = [tensor(values).requires_grad_() for values in (src, scale, shift)]
    centred = leaves[0] if rms else leaves[0] - tensor(mean)[..., None]
    normalized = centred / torch.sqrt(tensor(variance)[..., None] + EPSILON)
    want = normalized * (leaves[1] if use_scale else 1 + 0 * leaves[1]) + leaves[2]
    factor = scale if use_scale else None
    got = layer_normalization(src, mean, variance, factor, shift, epsilon=EPSILON, rms=rms)
    assert_agree(got, want)

    diff_src, diff_scale, diff_shift = layer_normalization_backward(
        src, diff_dst, mean, variance, factor, epsilon=EPSILON, global_stats=True, rms=rms
    )
    wanted = torch.autograd.grad(want, leaves, tensor(diff_dst))
    assert_agree(diff_src, wanted[0])
    assert_agree(diff_shift, wanted[2])
    if use_scale:
        assert_agree(diff_scale, wanted[1])


@every_kind
def test_without_scale_and_shift(rms: bool) -> None:
    src, diff_dst, _, _ = given((3, 5))
    ones, zeros = np.ones(5), np.zeros(5)
    stats = statistics(src, rms=rms)
    plain = layer_normalization(src, *stats, epsilon=EPSILON, rms=rms)
    neutral = layer_normalization(src, *stats, ones, zeros, epsilon=EPSILON, rms=rms)
    np.testing.assert_array_equal(plain, neutral)
    plain, *_ = layer_normalization_backward(src, diff_dst, *stats, epsilon=EPSILON, rms=rms)
    neutral, *_ = layer_normalization_backward(
        src, diff_dst, *stats, ones, epsilon=EPSILON, rms=rms
    )
    np.testing.assert_array_equal(plain, neutral)


def test_rms_needs_no_mean() -> None:
    src, diff_dst, scale, shift = given((3, 5))
    mean, variance = statistics(src, rms=True)
    for other in (None, mean + 7):
        got = layer_normalization(src, other, variance, scale, shift, epsilon=EPSILON, rms=True)
        assert_agree(got, peer([tensor(values) for values in (src, scale, shift)], True))
        diff_src, *_ = layer_normalization_backward(
            src, diff_dst, other, variance, scale, epsilon=EPSILON, rms=True
        )
        want, *_ = layer_normalization_backward(
            src, diff_dst, mean, variance, scale, epsilon=EPSILON, rms=True
        )
        np.testing.assert_array_equal(diff_src, want)


def test_a_constant_row_becomes_the_shift() -> None:
    src, shift = np.full((2, 4), 3.0), random(1, 4)
    mean, variance = statistics(src)
    np.testing.assert_array_equal(variance, np.zeros(2))
    got = layer_normalization(src, mean, variance, random(2, 4), shift, epsilon=EPSILON)
    np.testing.assert_array_equal(got, np.broadcast_to(shift, (2, 4)))
    diff_dst = random(3, 2, 4)
    diff_src, diff_scale, _ = layer_normalization_backward(
        src, diff_dst, mean, variance, epsilon=EPSILON
    )
    centred = diff_dst - diff_dst.mean(-1, keepdims=True)
    np.testing.assert_allclose(diff_src, centred / np.sqrt(EPSILON), rtol=1e-12)
    np.testing.assert_array_equal(diff_scale, np.zeros(4))


@pytest.mark.parametrize("dims", [(0, 4), (3, 0), (0, 0)])
def test_no_elements(dims: tuple[int, ...]) -> None:
    src = np.zeros(dims)
    mean, variance = statistics(src)
    np.testing.assert_array_equal([mean, variance], np.zeros((2, dims[0])))
    assert layer_normalization(src, mean, variance, epsilon=EPSILON).shape == dims
    diff_src, diff_scale, diff_shift = layer_normalization_backward(
        src, src, mean, variance, epsilon=EPSILON
    )
    assert diff_src.shape == dims
    np.testing.assert_array_equal([diff_scale, diff_shift], np.zeros((2, dims[1])))


def test_infinities_and_nan_stay_in_their_row() -> None:
    src = np.array([[1.0, np.inf, 2.0], [1.0, np.nan, 2.0], [1.0, 3.0, 2.0]])
    got = layer_normalization(src, *statistics(src), epsilon=EPSILON)
    assert np.isnan(got[:2]).all()
    assert np.isfinite(got[2]).all()


@pytest.mark.parametrize("data_type", ["int8", "uint8", "float32"])
def test_any_type_of_source(data_type: str) -> None:
    src = (20 * random(1, 3, 8) + 60).astype(data_type)
    want = F.layer_norm(torch.from_numpy(src).double(), [8], eps=EPSILON)
    assert_agree(layer_normalization(src, *statistics(src), epsilon=EPSILON), want)
