"""The convolution reference against PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl.reference.convolution import convolution
from dnnl.reference.product import bias_gradient
from dnnl.reference.sliding import correlation_backward_data, correlation_backward_weights
from tests.reference.agreement import assert_agree, random, tensor

PEERS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}

Dims = tuple[int, ...]
Case = tuple[int, int, int, Dims, Dims, Dims, Dims, Dims, Dims]

# groups, IC / G, OC / G, spatial, kernel, strides, padding_l, padding_r, dilations
CASES: list[Case] = [
    (1, 3, 5, (9,), (3,), (1,), (1,), (1,), (0,)),
    (1, 3, 5, (9,), (4,), (2,), (0,), (3,), (1,)),
    (1, 4, 6, (8, 7), (3, 3), (1, 1), (1, 1), (1, 1), (0, 0)),
    (1, 4, 6, (8, 7), (1, 1), (2, 2), (0, 0), (0, 0), (0, 0)),
    (2, 3, 4, (9, 8), (3, 2), (2, 1), (0, 1), (2, 0), (0, 2)),
    (6, 1, 1, (9, 8), (3, 3), (2, 3), (1, 2), (1, 2), (1, 0)),
    (3, 1, 2, (7, 7), (5, 3), (1, 1), (4, 0), (0, 4), (0, 1)),
    (1, 2, 3, (5, 6, 7), (3, 2, 3), (1, 2, 1), (1, 0, 2), (0, 1, 1), (0, 0, 1)),
    (2, 2, 2, (4, 4, 4), (2, 2, 2), (2, 2, 2), (0, 0, 0), (0, 0, 0), (0, 0, 0)),
]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_pytorch(case: Case, with_bias: bool) -> None:
    groups, ic, oc, spatial, kernel, strides, left, right, dilations = case
    src = random(1, 2, groups * ic, *spatial)
    weights = random(2, groups * oc, ic, *kernel)
    bias = random(3, groups * oc) if with_bias else None

    grouped = weights if groups == 1 else weights.reshape(groups, oc, ic, *kernel)
    got = convolution(
        src,
        grouped,
        bias,
        strides=strides,
        padding_l=left,
        padding_r=right,
        dilations=dilations,
    )

    # The peer counts dilation from 1 and lists padding from the innermost dimension.
    widths = [w for pair in zip(reversed(left), reversed(right), strict=True) for w in pair]
    want = PEERS[len(spatial)](
        F.pad(tensor(src), widths),
        tensor(weights),
        None if bias is None else tensor(bias),
        stride=strides,
        dilation=tuple(d + 1 for d in dilations),
        groups=groups,
    )
    assert_agree(got, want)


@pytest.mark.parametrize("case", CASES)
def test_gradients_agree_with_autograd(case: Case) -> None:
    groups, ic, oc, spatial, kernel, strides, left, right, dilations = case
    src = random(1, 2, groups * ic, *spatial)
    weights = random(2, groups, oc, ic, *kernel)
    leaves = tensor(src).requires_grad_(), tensor(weights).requires_grad_()
    bias = torch.zeros(groups * oc, dtype=torch.float64, requires_grad=True)
    widths = [w for pair in zip(reversed(left), reversed(right), strict=True) for w in pair]
    dst = PEERS[len(spatial)](
        F.pad(leaves[0], widths),
        leaves[1].flatten(0, 1),
        bias,
        stride=strides,
        dilation=tuple(d + 1 for d in dilations),
        groups=groups,
    )
    diff_dst = random(4, *dst.shape)
    want = torch.autograd.grad(dst, (*leaves, bias), tensor(diff_dst))

    place = {"strides": strides, "padding_l": left, "dilations": dilations}
    got = correlation_backward_data(diff_dst, weights, spatial=spatial, **place)
    assert_agree(got, want[0])
    got = correlation_backward_weights(src, diff_dst, weights.shape, **place)
    assert_agree(got, want[1])
    assert_agree(bias_gradient(diff_dst), want[2])
    if groups == 1:
        got = correlation_backward_data(diff_dst, weights[0], spatial=spatial, **place)
        assert_agree(got, want[0])
        got = correlation_backward_weights(src, diff_dst, weights.shape[1:], **place)
        assert_agree(got, want[1][0])


def test_gradients_without_images_are_zero() -> None:
    src, diff_dst = random(1, 0, 4, 5), random(2, 0, 6, 3)
    got = correlation_backward_weights(src, diff_dst, (2, 3, 2, 3), strides=(1,), padding_l=(0,))
    assert_agree(got, torch.zeros(2, 3, 2, 3, dtype=torch.float64), rtol=0)
    assert_agree(bias_gradient(diff_dst), torch.zeros(6, dtype=torch.float64), rtol=0)


def test_padding_right_defaults_to_left() -> None:
    src, weights = random(1, 1, 2, 5, 5), random(2, 3, 2, 3, 3)
    got = convolution(src, weights, strides=(1, 1), padding_l=(1, 1))
    assert_agree(got, F.conv2d(tensor(src), tensor(weights), padding=1))


def test_a_group_of_one_may_be_spelled_out() -> None:
    src, weights = random(1, 1, 2, 5), random(2, 3, 2, 3)
    geometry = {"strides": (1,), "padding_l": (1,)}
    got = convolution(src, weights[None], **geometry)
    assert_agree(got, torch.from_numpy(convolution(src, weights, **geometry)), rtol=0)
