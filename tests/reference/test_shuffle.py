"""The shuffle reference against PyTorch, which wants the number of groups."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import Arg, DataType, MemoryDesc, ShuffleDesc
from dnnl.reference.rule import compare
from dnnl.reference.shuffle import SPECIFICATION, shuffle, shuffle_backward
from tests.reference.agreement import assert_agree, random, tensor


@pytest.mark.parametrize("group_size", [1, 2, 3, 4, 6, 12])
def test_channels(group_size: int) -> None:
    src, diff = random(1, 2, 12, 3, 2), random(2, 2, 12, 3, 2)
    leaf = tensor(src).requires_grad_()
    want = F.channel_shuffle(leaf, 12 // group_size)
    assert_agree(shuffle(src, 1, group_size), want, rtol=0)
    (gradient,) = torch.autograd.grad(want, [leaf], tensor(diff))
    assert_agree(shuffle_backward(diff, 1, group_size), gradient, rtol=0)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_axis(axis: int) -> None:
    dims = [2, 3, 5]
    dims[axis] = 12
    src = random(1, *dims)
    order = [u * 4 + v for v in range(4) for u in range(3)]
    np.testing.assert_array_equal(shuffle(src, axis, 4), src.take(order, axis))
    np.testing.assert_array_equal(shuffle_backward(shuffle(src, axis, 4), axis, 4), src)


def test_as_it_is_told() -> None:
    want = [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]
    np.testing.assert_array_equal(shuffle(np.arange(12), 0, 4), want)


def test_no_elements() -> None:
    for axis in (0, 1):
        none = np.zeros((0, 6))
        assert shuffle(none, axis, 3).shape == shuffle_backward(none, axis, 3).shape == (0, 6)


@pytest.mark.parametrize("data_type", ["f32", "s8", "u8"])
def test_another_direction_is_not_accepted(data_type: str) -> None:
    plain = MemoryDesc((2, 12, 3), data_type)
    desc = ShuffleDesc.forward("forward_inference", plain, plain, 1, 3)
    values = SPECIFICATION.fill(desc)
    want = SPECIFICATION.compute(desc, values)[Arg.DST]
    rule = SPECIFICATION.rule(desc, Arg.DST, values)
    wrong = shuffle(values[Arg.SRC], 1, 4)
    assert compare("dst", wrong, want, plain.data_type, DataType.f32, rule).errors > 0.7 * want.size
