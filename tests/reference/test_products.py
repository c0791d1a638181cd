"""The matmul and inner product references against PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl.reference.inner_product import (
    inner_product,
    inner_product_backward_data,
    inner_product_backward_weights,
)
from dnnl.reference.matmul import matmul
from dnnl.reference.product import bias_gradient
from tests.reference.agreement import assert_agree, random, tensor


@pytest.mark.parametrize(
    ("src", "weights", "bias"),
    [
        ((3, 4), (4, 5), None),
        ((3, 4), (4, 5), (1, 5)),
        ((3, 4), (4, 5), (3, 1)),
        ((2, 3, 4), (2, 4, 5), (1, 1, 5)),
        ((2, 1, 3, 4), (1, 6, 4, 5), (2, 1, 3, 5)),
        ((3, 0), (0, 5), (1, 5)),
    ],
)
def test_matmul(
    src: tuple[int, ...], weights: tuple[int, ...], bias: tuple[int, ...] | None
) -> None:
    left, right = random(1, *src), random(2, *weights)
    added = None if bias is None else random(3, *bias)
    want = torch.matmul(tensor(left), tensor(right))
    if added is not None:
        want = want + tensor(added)
    assert_agree(matmul(left, right, added), want)


@pytest.mark.parametrize("spatial", [(), (3,), (2, 3), (2, 3, 2)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_inner_product(spatial: tuple[int, ...], with_bias: bool) -> None:
    src, weights = random(1, 4, 3, *spatial), random(2, 5, 3, *spatial)
    bias = random(3, 5) if with_bias else None
    want = F.linear(
        tensor(src).flatten(1), tensor(weights).flatten(1), None if bias is None else tensor(bias)
    )
    assert_agree(inner_product(src, weights, bias), want)


@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("spatial", [(), (3,), (2, 3, 2)])
def test_gradients_of_an_inner_product(spatial: tuple[int, ...], batch: int) -> None:
    src, weights = random(1, batch, 3, *spatial), random(2, 5, 3, *spatial)
    leaves = [tensor(array).requires_grad_() for array in (src, weights, random(3, 5))]
    dst = F.linear(leaves[0].flatten(1), leaves[1].flatten(1), leaves[2])
    diff_dst = random(4, *dst.shape)
    want = torch.autograd.grad(dst, leaves, tensor(diff_dst))
    assert_agree(inner_product_backward_data(diff_dst, weights), want[0])
    assert_agree(inner_product_backward_weights(src, diff_dst), want[1])
    assert_agree(bias_gradient(diff_dst), want[2])
