"""The group normalization reference against PyTorch and its autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl.reference.arrays import Array
from dnnl.reference.group_normalization import (
    group_normalization,
    group_normalization_backward,
    statistics,
)
from tests.pairs import every_pair
from tests.reference.agreement import assert_agree, random, tensor

EPSILON = 1e-3
every_rank = pytest.mark.parametrize("spatial", [(5,), (4, 5), (2, 3, 2)])
every_grouping = pytest.mark.parametrize("groups", [1, 2, 3, 6])


def leaf(values: Array) -> torch.Tensor:
    return tensor(values).requires_grad_()


@every_rank
@every_grouping
def test_statistics(spatial: tuple[int, ...], groups: int) -> None:
    src = 3 * random(1, 4, 6, *spatial) + 2
    rows = tensor(src).reshape(4, groups, -1)
    mean, variance = statistics(src, groups)
    assert_agree(mean, rows.mean(2))
    assert_agree(variance, rows.var(2, unbiased=False))


@every_pair(
    every_rank,
    every_grouping,
    pytest.mark.parametrize("use_scale", [False, True]),
    pytest.mark.parametrize("use_shift", [False, True]),
)
def test_training(spatial: tuple[int, ...], groups: int, use_scale: bool, use_shift: bool) -> None:
    src, diff_dst = (random(seed, 4, 6, *spatial) for seed in (1, 2))
    scale = random(4, 6) if use_scale else None
    shift = random(5, 6) if use_shift else None
    mean, variance = statistics(src, groups)
    got = group_normalization(src, mean, variance, scale, shift, epsilon=EPSILON)
    weight = leaf(np.ones(6) if scale is None else scale)
    bias = leaf(np.zeros(6) if shift is None else shift)
    source = leaf(src)
    want = F.group_norm(source, groups, weight, bias, EPSILON)
    assert_agree(got, want)
    gradients = group_normalization_backward(src, diff_dst, mean, variance, scale, epsilon=EPSILON)
    wanted = torch.autograd.grad(want, (source, weight, bias), tensor(diff_dst))
    for gradient, expected in zip(gradients, wanted, strict=True):
        assert_agree(gradient, expected, rtol=1e-11)


@every_rank
def test_groups_of_one_channel_are_instances(spatial: tuple[int, ...]) -> None:
    src, scale, shift = random(1, 4, 6, *spatial), random(2, 6), random(3, 6)
    got = group_normalization(src, *statistics(src, 6), scale, shift, epsilon=EPSILON)
    leaves = tensor(src), tensor(scale), tensor(shift)
    want = F.instance_norm(leaves[0], weight=leaves[1], bias=leaves[2], eps=EPSILON)
    assert_agree(got, want)


@every_rank
@every_grouping
def test_given_statistics_are_constants(spatial: tuple[int, ...], groups: int) -> None:
    src, diff_dst = (random(seed, 4, 6, *spatial) for seed in (1, 2))
    mean, variance, scale = random(3, 4, groups), random(4, 4, groups) ** 2, random(5, 6)

    def over(values: Array) -> torch.Tensor:
        grouped = tensor(values).repeat_interleave(6 // groups, dim=1)
        return grouped.reshape(4, 6, *[1] * len(spatial))

    source, weight = leaf(src), leaf(scale)
    normalized = (source - over(mean)) / (over(variance) + EPSILON).sqrt()
    want = normalized * weight.reshape(1, 6, *[1] * len(spatial))
    assert_agree(group_normalization(src, mean, variance, scale, epsilon=EPSILON), want)
    wanted = torch.autograd.grad(want, (source, weight), tensor(diff_dst))
    gradients = group_normalization_backward(
        src, diff_dst, mean, variance, scale, epsilon=EPSILON, global_stats=True
    )
    for gradient, expected in zip(gradients, wanted, strict=False):
        assert_agree(gradient, expected)


@pytest.mark.parametrize("dims", [(0, 4, 3), (2, 4, 0)])
def test_no_elements(dims: tuple[int, ...]) -> None:
    src = np.zeros(dims)
    mean, variance = statistics(src, 2)
    np.testing.assert_array_equal([mean, variance], np.zeros((2, dims[0], 2)))
    assert group_normalization(src, mean, variance, epsilon=EPSILON).shape == dims
    diff_src, *sums = group_normalization_backward(src, src, mean, variance, epsilon=EPSILON)
    assert diff_src.shape == dims
    np.testing.assert_array_equal(sums, np.zeros((2, 4)))
