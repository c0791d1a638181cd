"""The reorder reference and its quantization against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dnnl.reference.conversions import convert
from dnnl.reference.quantization import expand
from dnnl.reference.reorder import reorder
from dnnl.types.dtype import DataType
from dnnl.types.scales import ScaleSpec
from tests.reference.agreement import random

PER_ROW = ScaleSpec(1, (), DataType.f32)


def test_without_attributes_nothing_changes() -> None:
    src = random(1, 2, 3)
    np.testing.assert_array_equal(reorder(src), src)


def test_quantization_per_tensor() -> None:
    src = (10 * random(1, 64, 64)).astype(np.float32)
    want = torch.fake_quantize_per_tensor_affine(torch.from_numpy(src), 0.25, 3, 0, 255)
    stored = convert(reorder(src, dst_scale=0.25, dst_zero_point=3), "u8")
    back = reorder(stored, src_scale=0.25, src_zero_point=3)
    np.testing.assert_array_equal(back, want.double().numpy())


def test_quantization_per_channel() -> None:
    src = (10 * random(1, 4, 64)).astype(np.float32)
    scales = torch.tensor([0.25, 0.5, 1.0, 2.0])
    zero_points = torch.tensor([0, 3, -7, 100], dtype=torch.int32)
    want = torch.fake_quantize_per_channel_affine(
        torch.from_numpy(src), scales, zero_points, 0, -128, 127
    )
    scale = expand(scales.numpy(), src.shape, PER_ROW)
    zero_point = expand(zero_points.numpy(), src.shape, PER_ROW)
    stored = convert(reorder(src, dst_scale=scale, dst_zero_point=zero_point), "s8")
    back = reorder(stored, src_scale=scale, src_zero_point=zero_point)
    np.testing.assert_array_equal(back, want.double().numpy())


def test_the_sum_is_scaled_and_divided_with_the_rest() -> None:
    got = reorder(
        [10.0],
        src_scale=0.5,
        src_zero_point=2,
        sum_scale=3.0,
        dst=[4.0],
        dst_scale=2.0,
        dst_zero_point=1,
    )
    np.testing.assert_array_equal(got, [(0.5 * (10 - 2) + 3 * 4) / 2 + 1])
    with pytest.raises(TypeError, match="sum_scale"):
        reorder([1.0], sum_scale=1.0)


@pytest.mark.parametrize(
    ("mask", "groups", "shape"),
    [
        (0, (), (1, 1, 1)),
        (2, (), (1, 4, 1)),
        (5, (), (2, 1, 6)),
        (6, (2, 3), (1, 2, 2)),
        (7, (4, 1), (2, 1, 6)),
    ],
)
def test_parameters_expand(mask: int, groups: tuple[int, ...], shape: tuple[int, ...]) -> None:
    dims = (2, 4, 6)
    parameters = np.arange(np.prod(shape))
    full = expand(parameters, dims, ScaleSpec(mask, groups, DataType.f32))
    assert full.shape == dims
    for index in np.ndindex(*dims):
        at = tuple(i * have // extent for i, have, extent in zip(index, shape, dims, strict=True))
        assert full[index] == parameters.reshape(shape)[at]
