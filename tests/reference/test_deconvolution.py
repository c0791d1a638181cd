"""The deconvolution reference against PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl.reference.deconvolution import (
    deconvolution,
    deconvolution_backward_data,
    deconvolution_backward_weights,
)
from tests.reference.agreement import assert_agree, random, tensor

PEERS = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

Dims = tuple[int, ...]
Case = tuple[int, int, int, Dims, Dims, Dims, Dims, Dims, Dims]

# groups, IC / G, OC / G, spatial, kernel, strides, padding, output padding, dilations
CASES: list[Case] = [
    (1, 3, 5, (9,), (3,), (1,), (1,), (0,), (0,)),
    (1, 3, 5, (4,), (4,), (3,), (0,), (2,), (1,)),
    (1, 4, 6, (5, 7), (3, 3), (2, 2), (1, 1), (1, 0), (0, 0)),
    (1, 4, 6, (5, 4), (1, 2), (2, 3), (0, 0), (1, 2), (0, 0)),
    (2, 3, 4, (5, 4), (3, 2), (2, 1), (0, 1), (0, 1), (1, 2)),
    (6, 1, 1, (5, 6), (3, 3), (2, 3), (1, 2), (1, 0), (1, 0)),
    (1, 2, 3, (3, 4, 5), (3, 2, 3), (1, 2, 1), (1, 0, 2), (0, 1, 0), (0, 0, 1)),
    (2, 2, 2, (2, 3, 2), (2, 2, 2), (2, 2, 2), (0, 0, 0), (0, 0, 0), (0, 0, 0)),
]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_pytorch(case: Case, with_bias: bool) -> None:
    groups, ic, oc, spatial, kernel, strides, padding, behind, dilations = case
    src = random(1, 2, groups * ic, *spatial)
    weights = random(2, groups, oc, ic, *kernel)
    bias = random(3, groups * oc) if with_bias else None
    want = PEERS[len(spatial)](
        tensor(src),
        tensor(weights).transpose(1, 2).flatten(0, 1),
        None if bias is None else tensor(bias),
        stride=strides,
        padding=padding,
        output_padding=behind,
        groups=groups,
        dilation=tuple(d + 1 for d in dilations),
    )
    got = deconvolution(
        src,
        weights[0] if groups == 1 else weights,
        bias,
        spatial=want.shape[2:],
        strides=strides,
        padding_l=padding,
        dilations=dilations,
    )
    assert_agree(got, want)


@pytest.mark.parametrize("case", CASES)
def test_gradients_agree_with_autograd(case: Case) -> None:
    groups, ic, oc, spatial, kernel, strides, padding, behind, dilations = case
    src = random(1, 2, groups * ic, *spatial)
    weights = random(2, groups, oc, ic, *kernel)
    leaves = tensor(src).requires_grad_(), tensor(weights).requires_grad_()
    dst = PEERS[len(spatial)](
        leaves[0],
        leaves[1].transpose(1, 2).flatten(0, 1),
        stride=strides,
        padding=padding,
        output_padding=behind,
        groups=groups,
        dilation=tuple(d + 1 for d in dilations),
    )
    diff_dst = random(4, *dst.shape)
    want = torch.autograd.grad(dst, leaves, tensor(diff_dst))

    place = {"strides": strides, "padding_l": padding, "dilations": dilations}
    right = [p - b for p, b in zip(padding, behind, strict=True)]
    got = deconvolution_backward_data(diff_dst, weights, padding_r=right, **place)
    assert_agree(got, want[0])
    got = deconvolution_backward_weights(src, diff_dst, weights.shape, **place)
    assert_agree(got, want[1])
    if groups == 1:
        got = deconvolution_backward_weights(src, diff_dst, weights.shape[1:], **place)
        assert_agree(got, want[1][0])


def test_what_nothing_reaches_is_the_bias_alone() -> None:
    src, weights = random(1, 1, 2, 2), random(2, 3, 2, 1)
    bias = random(3, 3)
    got = deconvolution(src, weights, bias, spatial=(9,), strides=(4,), padding_l=(0,))
    reached = torch.zeros(9, dtype=torch.bool)
    reached[[0, 4]] = True
    assert (got[0][:, ~reached.numpy()] == bias[:, None]).all()
