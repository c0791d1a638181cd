"""The batch normalization reference against PyTorch and its autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl.reference.batch_normalization import (
    batch_normalization,
    batch_normalization_backward,
    relu_gradient,
    relu_workspace,
    statistics,
)
from tests.pairs import every_pair
from tests.reference.agreement import assert_agree, random, tensor

EPSILON = 1e-3
every_rank = pytest.mark.parametrize("spatial", [(), (5,), (4, 5), (2, 3, 2)])


def leaf(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> torch.Tensor:
    return tensor(values).requires_grad_()


@every_pair(
    every_rank,
    pytest.mark.parametrize("affine", [False, True]),
    pytest.mark.parametrize("fuse_relu", [False, True]),
)
def test_given_statistics(spatial: tuple[int, ...], affine: bool, fuse_relu: bool) -> None:
    src, mean, variance = random(1, 2, 3, *spatial), random(2, 3), random(3, 3) ** 2
    scale, shift = (random(4, 3), random(5, 3)) if affine else (None, None)
    got = batch_normalization(
        src, mean, variance, scale, shift, epsilon=EPSILON, fuse_relu=fuse_relu
    )
    source = leaf(src)
    weight, bias = (None if values is None else leaf(values) for values in (scale, shift))
    want = F.batch_norm(source, tensor(mean), tensor(variance), weight, bias, eps=EPSILON)
    want = F.relu(want) if fuse_relu else want
    assert_agree(got, want)

    diff_dst = random(6, *src.shape)
    gradients = batch_normalization_backward(
        src,
        diff_dst,
        mean,
        variance,
        scale,
        epsilon=EPSILON,
        global_stats=True,
        workspace=relu_workspace(got) if fuse_relu else None,
    )
    leaves = [source, *(values for values in (weight, bias) if values is not None)]
    wanted = torch.autograd.grad(want, leaves, tensor(diff_dst))
    for gradient, expected in zip(gradients, wanted, strict=False):
        assert_agree(gradient, expected)


@every_rank
def test_statistics(spatial: tuple[int, ...]) -> None:
    src = 3 * random(1, 4, 3, *spatial) + 2
    rows = tensor(src).transpose(0, 1).reshape(3, -1)
    mean, variance = statistics(src)
    assert_agree(mean, rows.mean(1))
    assert_agree(variance, rows.var(1, unbiased=False))


@every_pair(
    every_rank, use_scale=[False, True], use_shift=[False, True], fused=["", "relu", "add_relu"]
)
def test_training(spatial: tuple[int, ...], use_scale: bool, use_shift: bool, fused: str) -> None:
    src, diff_dst, added = (random(seed, 4, 3, *spatial) for seed in (1, 2, 3))
    scale = random(4, 3) if use_scale else None
    shift = random(5, 3) if use_shift else None
    mean, variance = statistics(src)
    got = batch_normalization(
        src,
        mean,
        variance,
        scale,
        shift,
        epsilon=EPSILON,
        fuse_relu=bool(fused),
        added=added if fused == "add_relu" else None,
    )
    weight = leaf(np.ones(3) if scale is None else scale)
    bias = leaf(np.zeros(3) if shift is None else shift)
    source, second = leaf(src), leaf(added)
    want = F.batch_norm(source, None, None, weight, bias, training=True, eps=EPSILON)
    want = want + second if fused == "add_relu" else want
    want = F.relu(want) if fused else want
    assert_agree(got, want)

    workspace = relu_workspace(got) if fused else None
    gradients = batch_normalization_backward(
        src, diff_dst, mean, variance, scale, epsilon=EPSILON, workspace=workspace
    )
    leaves = (source, weight, bias, second)
    wanted = torch.autograd.grad(want, leaves, tensor(diff_dst), allow_unused=True)
    for gradient, expected in zip(gradients, wanted[:3], strict=True):
        assert_agree(gradient, expected, rtol=1e-11)
    if fused == "add_relu":
        assert workspace is not None
        assert_agree(relu_gradient(diff_dst, workspace), wanted[3], rtol=0)


def test_the_workspace_marks_what_the_relu_kept() -> None:
    src = np.array([[-1.0, 0.0, 2.0, np.nan]])
    dst = batch_normalization(src, np.zeros(4), np.ones(4), epsilon=0.0, fuse_relu=True)
    workspace = relu_workspace(dst)
    assert workspace.dtype == np.uint8
    np.testing.assert_array_equal(workspace, [[0, 0, 1, 1]])
    np.testing.assert_array_equal(relu_gradient(np.full((1, 4), np.inf), workspace)[0, :2], [0, 0])


@pytest.mark.parametrize("dims", [(4, 3, 2), (1, 3)])
def test_a_constant_channel_becomes_the_shift(dims: tuple[int, ...]) -> None:
    src, shift, diff_dst = np.full(dims, 3.0), random(1, 3), random(2, *dims)
    mean, variance = statistics(src)
    np.testing.assert_array_equal([mean, variance], [[3.0] * 3, [0.0] * 3])
    got = batch_normalization(src, mean, variance, random(3, 3), shift, epsilon=EPSILON)
    assert_agree(got, tensor(0 * src) + tensor(shift).reshape(1, 3, *[1] * (len(dims) - 2)))
    diff_src, diff_scale, _ = batch_normalization_backward(
        src, diff_dst, mean, variance, epsilon=EPSILON
    )
    axes = (0, *range(2, len(dims)))
    centred = diff_dst - diff_dst.mean(axes, keepdims=True)
    np.testing.assert_allclose(diff_src, centred / np.sqrt(EPSILON), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(diff_scale, np.zeros(3))


@pytest.mark.parametrize("dims", [(0, 3, 4), (2, 3, 0)])
def test_no_elements(dims: tuple[int, ...]) -> None:
    src = np.zeros(dims)
    mean, variance = statistics(src)
    np.testing.assert_array_equal([mean, variance], np.zeros((2, 3)))
    assert batch_normalization(src, mean, variance, epsilon=EPSILON).shape == dims
    diff_src, *sums = batch_normalization_backward(src, src, mean, variance, epsilon=EPSILON)
    assert diff_src.shape == dims
    np.testing.assert_array_equal(sums, np.zeros((2, 3)))


def test_infinities_and_nan_stay_in_their_channel() -> None:
    src = random(1, 4, 3, 2)
    src[1, 0, 1], src[2, 1, 0] = np.inf, np.nan
    got = batch_normalization(src, *statistics(src), epsilon=EPSILON)
    assert np.isnan(got[:, :2]).all()
    assert np.isfinite(got[:, 2]).all()


def test_an_integer_source() -> None:
    src = (20 * random(1, 2, 3, 4)).astype(np.int8)
    mean, variance = random(2, 3), random(3, 3) ** 2
    want = F.batch_norm(torch.from_numpy(src).double(), tensor(mean), tensor(variance), eps=EPSILON)
    assert_agree(batch_normalization(src, mean, variance, epsilon=EPSILON), want)
