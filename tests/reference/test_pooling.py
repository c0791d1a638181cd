"""The pooling reference against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl.errors import InvalidArguments
from dnnl.reference.pooling import pooling
from tests.reference.agreement import assert_agree, random, tensor

MAXIMUM = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}

# spatial, kernel, strides, padding, dilations
CASES = [
    ((9,), (3,), (2,), (1,), (0,)),
    ((8, 7), (3, 3), (2, 2), (1, 1), (0, 0)),
    ((8, 9), (2, 3), (1, 3), (1, 0), (0, 0)),
    ((7, 7), (7, 7), (1, 1), (0, 0), (0, 0)),
    ((5, 6, 7), (3, 2, 3), (2, 1, 2), (1, 0, 1), (0, 0, 0)),
]
Geometry = tuple[tuple[int, ...], ...]


@pytest.mark.parametrize("case", [*CASES, ((9, 9), (3, 2), (1, 2), (1, 1), (1, 2))])
def test_maximum(case: Geometry) -> None:
    spatial, kernel, strides, padding, dilations = case
    src = random(1, 2, 3, *spatial)
    got = pooling(
        src,
        "pooling_max",
        kernel=kernel,
        strides=strides,
        padding_l=padding,
        dilations=dilations,
    )
    want = MAXIMUM[len(spatial)](
        tensor(src), kernel, strides, padding, dilation=tuple(d + 1 for d in dilations)
    )
    assert_agree(got, want, rtol=0)


@pytest.mark.parametrize("alg", ["include", "exclude"])
@pytest.mark.parametrize("case", CASES)
def test_averages(case: Geometry, alg: str) -> None:
    spatial, kernel, strides, padding, _ = case
    src = random(1, 2, 3, *spatial)
    got = pooling(
        src, f"pooling_avg_{alg}_padding", kernel=kernel, strides=strides, padding_l=padding
    )
    want = AVERAGE[len(spatial)](
        tensor(src), kernel, strides, padding, count_include_pad=alg == "include"
    )
    assert_agree(got, want)


@pytest.mark.parametrize("alg", ["include", "exclude"])
def test_asymmetric_and_dilated_average_counts_taps(alg: str) -> None:
    # A row of ones makes the result the share of taps that lie inside.
    got = pooling(
        np.ones((1, 1, 4)),
        f"pooling_avg_{alg}_padding",
        kernel=(3,),
        strides=(1,),
        padding_l=(1,),
        padding_r=(4,),
        dilations=(1,),
    )
    inside = np.array([2, 2, 2, 1, 1]) / 3
    np.testing.assert_array_equal(got[0, 0], inside if alg == "include" else np.ones(5))


def test_maximum_of_padding_alone_is_minus_infinity() -> None:
    geometry = {"kernel": (1,), "strides": (1,), "padding_l": (1,)}
    got = pooling(np.zeros((1, 1, 1)), "pooling_max", **geometry)
    np.testing.assert_array_equal(got[0, 0], [-np.inf, 0, -np.inf])


def test_other_algorithms_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="softmax_log"):
        pooling(np.zeros((1, 1, 1)), "softmax_log", kernel=(1,), strides=(1,), padding_l=(0,))
