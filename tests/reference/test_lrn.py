"""The local response normalization reference against PyTorch and its autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import Arg, DataType, LrnDesc, MemoryDesc
from dnnl.errors import InvalidArguments
from dnnl.reference.conversions import convert
from dnnl.reference.lrn import SPECIFICATION, lrn, lrn_backward
from dnnl.reference.rule import compare
from tests.pairs import every_pair
from tests.reference.agreement import assert_agree, random, tensor

CONVOLUTION = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
FACTORS = {"alpha": 0.5, "beta": 0.75, "k": 1.5}
ALGS = ["lrn_across_channels", "lrn_within_channel"]
DIMS = [(3, 7), (2, 7, 9), (2, 7, 5, 6), (2, 5, 4, 3, 6)]

every_alg = pytest.mark.parametrize("alg", ALGS)
every_dims = pytest.mark.parametrize("dims", DIMS)


def mean_square(src: torch.Tensor, alg: str, size: int) -> torch.Tensor:
    """The sum over each window, a convolution with ones, divided by the window's full volume."""
    across = alg == "lrn_across_channels"
    square = src.square().movedim(1, -1) if across else src.square()
    spatial = square.shape[-1:] if across else square.shape[2:]
    if spatial:
        half = (size - 1) // 2
        ones = torch.ones(1, 1, *[2 * half + 1] * len(spatial), dtype=src.dtype)
        convolution = CONVOLUTION[len(spatial)]
        total = convolution(square.reshape(-1, 1, *spatial), ones, padding=half)
        square = (total / size ** len(spatial)).reshape(square.shape)
    return square.movedim(-1, 1) if across else square


@every_pair(every_alg, every_dims, pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 15]))
def test_forward_and_backward(dims: tuple[int, ...], alg: str, size: int) -> None:
    src, diff_dst = random(1, *dims), random(2, *dims)
    leaf = tensor(src).requires_grad_()
    want = leaf * (FACTORS["k"] + FACTORS["alpha"] * mean_square(leaf, alg, size)) ** -0.75
    assert_agree(lrn(src, alg, local_size=size, **FACTORS), want)
    (gradient,) = torch.autograd.grad(want, leaf, tensor(diff_dst))
    assert_agree(lrn_backward(src, diff_dst, alg, local_size=size, **FACTORS), gradient)


@every_dims
@pytest.mark.parametrize("size", [1, 3, 5, 15])
def test_odd_sizes_across_channels_are_those_of_pytorch(dims: tuple[int, ...], size: int) -> None:
    src = random(1, *(dims if len(dims) > 2 else (*dims, 1)))
    want = F.local_response_norm(tensor(src), size, **FACTORS)
    assert_agree(lrn(src, "lrn_across_channels", local_size=size, **FACTORS), want)


@every_alg
def test_an_even_size_sums_one_element_less_than_it_divides_by(alg: str) -> None:
    src = np.ones((1, 5, 5))
    dst = lrn(src, alg, local_size=4, alpha=4.0, beta=1.0, k=0.0)
    inside = [2, 3, 3, 3, 2]
    along = np.broadcast_to(inside, (5, 5))
    np.testing.assert_array_equal(dst[0], 1 / (along if "within" in alg else along.T))


@every_alg
def test_one_element(alg: str) -> None:
    src = np.array([[[2.0]]])
    dst = lrn(src, alg, local_size=5, alpha=5.0, beta=2.0, k=1.0)
    np.testing.assert_array_equal(dst, [[[2 / 25]]])
    # d/ds s (1 + s^2)^-2 = (1 - 3 s^2) / (1 + s^2)^3
    gradient = lrn_backward(src, np.ones((1, 1, 1)), alg, local_size=5, alpha=5.0, beta=2.0, k=1.0)
    np.testing.assert_allclose(gradient, [[[-11 / 125]]], rtol=1e-14)


@every_alg
@pytest.mark.parametrize("dims", [(0, 3, 4), (2, 3, 0), (2, 0, 4)])
def test_no_elements(alg: str, dims: tuple[int, ...]) -> None:
    src = np.zeros(dims)
    assert lrn(src, alg, local_size=3, **FACTORS).shape == dims
    assert lrn_backward(src, src, alg, local_size=3, **FACTORS).shape == dims


def test_zeros_and_infinities() -> None:
    src = np.array([[0.0, 0.0, 0.0, np.inf]])
    dst = lrn(src, "lrn_across_channels", local_size=3, **FACTORS)
    np.testing.assert_array_equal(dst, [[0, 0, 0, np.nan]])


def test_other_algorithms_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="softmax_log"):
        lrn(np.zeros((1, 1)), "softmax_log", local_size=1, **FACTORS)


@every_alg
@pytest.mark.parametrize("data_type", ["f32", "bf16"])
def test_what_is_a_little_wrong_is_not_accepted(alg: str, data_type: str) -> None:
    plain = MemoryDesc((2, 7, 5, 6), data_type)
    desc = LrnDesc.forward("forward_inference", alg, plain, plain, 5, 0.5, 0.75, 1.0)
    values = SPECIFICATION.fill(desc)
    want = SPECIFICATION.compute(desc, values)[Arg.DST]
    rule = SPECIFICATION.rule(desc, Arg.DST, values)
    core = plain.data_type
    verdict = compare("dst", convert(want * 0.97, core), want, core, DataType.f32, rule)
    assert verdict.errors > 0.9 * np.count_nonzero(want)
