"""The workspace and the gradient of the pooling reference against PyTorch and its autograd."""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl.errors import InvalidArguments
from dnnl.reference.arrays import Array
from dnnl.reference.pooling import pooling, pooling_backward, pooling_workspace
from tests.reference.agreement import assert_agree, random, tensor

MAXIMUM = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
CONVOLUTION = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
AVERAGES = ["pooling_avg_include_padding", "pooling_avg_exclude_padding"]


@dataclass(frozen=True)
class Case:
    spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def geometry(self) -> dict[str, Any]:
        """The arguments of the reference."""
        fields = asdict(self)
        del fields["spatial"]
        return fields

    @property
    def steps(self) -> tuple[int, ...]:
        """What the peer calls dilations."""
        return tuple(d + 1 for d in self.dilations)

    def padded(self, src: torch.Tensor, fill: float) -> torch.Tensor:
        """The source with its padding, which is cropped where that is negative."""
        sides = zip(reversed(self.padding_l), reversed(self.padding_r), strict=True)
        return F.pad(src, tuple(itertools.chain(*sides)), value=fill)

    def maximum(self, src: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The result and the flat indices into the padded source."""
        peer = MAXIMUM[len(self.kernel)]
        dst, indices = peer(
            self.padded(src, -math.inf),
            self.kernel,
            self.strides,
            dilation=self.steps,
            return_indices=True,
        )
        return dst, indices

    def total(self, src: torch.Tensor) -> torch.Tensor:
        """The sum of each window."""
        padded = self.padded(src, 0.0)
        planes = padded.reshape(-1, 1, *padded.shape[2:])
        ones = torch.ones(1, 1, *self.kernel, dtype=src.dtype)
        peer = CONVOLUTION[len(self.kernel)]
        dst = peer(planes, ones, stride=self.strides, dilation=self.steps)
        return dst.reshape(*src.shape[:2], *dst.shape[2:])

    def average(self, src: torch.Tensor, alg: str) -> torch.Tensor:
        if "include" in alg:
            return self.total(src) / math.prod(self.kernel)
        return self.total(src) / self.total(torch.ones_like(src)).clamp(min=1)


CASES = {
    "disjoint": Case((6, 8), (2, 2), (2, 2), (0, 0), (0, 0), (0, 0)),
    "line": Case((9,), (3,), (2,), (1,), (1,), (0,)),
    "overlapping": Case((8, 7), (3, 3), (1, 2), (1, 1), (1, 1), (0, 0)),
    "sparse": Case((8, 9), (2, 2), (3, 4), (0, 1), (1, 0), (0, 0)),
    "whole": Case((5, 6), (5, 6), (1, 1), (0, 0), (0, 0), (0, 0)),
    "dilated": Case((9, 9), (3, 2), (1, 2), (1, 1), (1, 1), (1, 2)),
    "lopsided": Case((7, 6), (3, 2), (2, 1), (2, 0), (0, 1), (0, 1)),
    "volume": Case((5, 6, 7), (3, 2, 3), (2, 1, 2), (1, 0, 1), (0, 1, 1), (0, 0, 1)),
    "cropped behind": Case((2,), (1,), (1,), (0,), (-1,), (0,)),
    "cropped": Case((9, 8), (3, 2), (2, 1), (1, -1), (-2, -3), (0, 0)),
    "empty windows": Case((3, 2), (2, 2), (1, 2), (3, 4), (4, 4), (0, 0)),
    "many taps": Case((16, 16), (16, 16), (1, 1), (2, 1), (1, 0), (0, 0)),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def source(case: Case) -> Array:
    """Halves of small numbers, so that there are equal maxima."""
    return np.round(2 * random(1, 2, 3, *case.spatial)) / 2


@every_case
def test_maximum(case: Case) -> None:
    src = source(case)
    leaf = tensor(src).requires_grad_()
    want, indices = case.maximum(leaf)
    assert_agree(pooling(src, "pooling_max", **case.geometry), want, rtol=0)

    workspace = pooling_workspace(src, **case.geometry)
    assert workspace.shape == want.shape
    taken = want.detach().numpy() > -np.inf
    taps = np.unravel_index(workspace.astype(np.intp), case.kernel)
    origins = np.indices(want.shape)[2:]
    places = [
        o * s + k * d for o, s, k, d in zip(origins, case.strides, taps, case.steps, strict=True)
    ]
    found = np.ravel_multi_index(places, tuple(case.padded(leaf, 0.0).shape[2:]))
    np.testing.assert_array_equal(found[taken], indices.numpy()[taken])

    diff_dst = random(2, *want.shape)
    (gradient,) = torch.autograd.grad(want, leaf, tensor(diff_dst))
    got = pooling_backward(diff_dst, "pooling_max", src.shape, **case.geometry, workspace=workspace)
    assert_agree(got, gradient)


def test_infinities_and_nan() -> None:
    """The first tap inside that is -inf, where all are, and the last one that is NaN."""
    src = source(CASES["overlapping"])
    src[0, 0], src[0, 1, :3], src[0, 2, 2:5, 1:4] = -np.inf, -np.inf, np.nan
    src[1, 0, 3, 3:5] = np.inf, np.nan
    leaf = tensor(src).requires_grad_()
    want, indices = F.max_pool2d(leaf, 3, (1, 2), 1, return_indices=True)
    window: dict[str, Any] = {"kernel": (3, 3), "strides": (1, 2), "padding_l": (1, 1)}
    assert_agree(pooling(src, "pooling_max", **window), want, rtol=0)
    workspace = pooling_workspace(src, **window)
    row, column = np.indices(want.shape)[2:]
    down, right = np.divmod(workspace.astype(np.intp), 3)
    places = (row - 1 + down) * src.shape[3] + 2 * column - 1 + right
    np.testing.assert_array_equal(places, indices.numpy())


@pytest.mark.parametrize("alg", AVERAGES)
@every_case
def test_averages(case: Case, alg: str) -> None:
    src = source(case)
    leaf = tensor(src).requires_grad_()
    want = case.average(leaf, alg)
    assert_agree(pooling(src, alg, **case.geometry), want)
    diff_dst = random(2, *want.shape)
    (gradient,) = torch.autograd.grad(want, leaf, tensor(diff_dst))
    assert_agree(pooling_backward(diff_dst, alg, src.shape, **case.geometry), gradient)


@pytest.mark.parametrize(
    ("kernel", "data_type"), [((255,), "uint8"), ((256,), "int32"), ((4, 4, 16), "int32")]
)
def test_the_type_of_the_workspace(kernel: tuple[int, ...], data_type: str) -> None:
    src = np.arange(float(math.prod(kernel))).reshape(1, 1, *kernel)
    zeros = [0] * len(kernel)
    workspace = pooling_workspace(src, kernel=kernel, strides=[1] * len(kernel), padding_l=zeros)
    assert workspace.dtype == data_type
    np.testing.assert_array_equal(workspace.reshape(-1), [math.prod(kernel) - 1])


POINTS: dict[str, Any] = {"kernel": (2,), "strides": (2,), "padding_l": (0,)}


def test_the_first_of_equal_maxima_wins() -> None:
    workspace = pooling_workspace([[[5.0, 5.0, 1.0, 2.0]]], **POINTS)
    np.testing.assert_array_equal(workspace, [[[0, 1]]])


def test_the_last_nan_gets_the_gradient() -> None:
    src = [[[-np.inf, -np.inf, np.nan, np.nan, np.nan, 3.0]]]
    workspace = pooling_workspace(src, **POINTS)
    np.testing.assert_array_equal(workspace, [[[0, 1, 0]]])
    got = pooling_backward(
        [[[2.0, 3.0, 4.0]]], "pooling_max", (1, 1, 6), **POINTS, workspace=workspace
    )
    np.testing.assert_array_equal(got, [[[2, 0, 0, 3, 4, 0]]])


def test_an_infinite_gradient_stays_in_its_place() -> None:
    got = pooling_backward(
        [[[np.inf, 1.0]]], "pooling_max", (1, 1, 4), **POINTS, workspace=[[[1, 0]]]
    )
    np.testing.assert_array_equal(got, [[[0, np.inf, 1, 0]]])


@pytest.mark.parametrize("data_type", ["int8", "uint8", "int32"])
def test_integers(data_type: str) -> None:
    limits = np.iinfo(data_type)
    src = np.array([[[limits.min, limits.min, 3, limits.max]]], data_type)
    got = pooling(src, "pooling_max", **POINTS)
    np.testing.assert_array_equal(got, [[[limits.min, limits.max]]])
    workspace = pooling_workspace(src, **POINTS)
    np.testing.assert_array_equal(workspace, [[[0, 1]]])


@pytest.mark.parametrize("alg", ["pooling_max", *AVERAGES])
@pytest.mark.parametrize("dims", [(0, 3, 4), (2, 0, 4)])
def test_no_elements(dims: tuple[int, ...], alg: str) -> None:
    src = np.zeros(dims)
    diff_dst = pooling(src, alg, **POINTS)
    workspace = pooling_workspace(src, **POINTS)
    got = pooling_backward(diff_dst, alg, dims, **POINTS, workspace=workspace)
    assert got.shape == dims


def test_refusals() -> None:
    with pytest.raises(TypeError, match="workspace"):
        pooling_backward([[[1.0]]], "pooling_max", (1, 1, 2), **POINTS)
    with pytest.raises(InvalidArguments, match="softmax_log"):
        pooling_backward([[[1.0]]], "softmax_log", (1, 1, 2), **POINTS)
