"""Refusals in the name of the argument that a caller passed, not of what computes with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dnnl import InvalidArguments
from dnnl import ops as typed_ops

ops: Any = typed_ops


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def refused(argument: str, text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidArguments, match=text) as found:
        call()
    assert found.value.argument == argument


@pytest.mark.parametrize("shape", [(3,), (2, 1), ()])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_bias_of_another_shape(shape: tuple[int, ...], count: int) -> None:
    x, bias = torch.randn(2, 4, *(5,) * count), torch.randn(shape)
    for name, channels in (("conv", (2, 2)), ("conv_transpose", (4, 1))):
        weight = torch.randn(*channels, *(1,) * count)
        function = getattr(ops, f"{name}{count}d")
        refused("bias", "expected the shape", lambda: function(x, weight, bias, groups=2))  # noqa: B023
        arrays = (own.numpy() for own in (x, weight, bias))
        refused("bias", "expected the shape", lambda: function(*arrays, groups=2))  # noqa: B023
    refused("bias", "expected the shape", lambda: ops.linear(x, torch.randn(2, 5), bias))
    if shape == (3,):
        bytes_ = (np.ones(own, np.int8) for own in ((2, 4), (2, 4), shape))
        refused("bias", "cannot be broadcast", lambda: ops.linear(*bytes_))


def test_an_out_whose_elements_share_memory() -> None:
    x = torch.randn(2, 3)
    text = "its elements share memory"
    for out in (torch.randn(1, 3).expand(2, 3), torch.randn(()).expand(2, 3)):
        refused("out", text, lambda: ops.relu(x, out=out))  # noqa: B023
        refused("out", text, lambda: ops.add(x, x, out=out))  # noqa: B023
        refused("out", text, lambda: ops.where(x > 0, x, x, out=out))  # noqa: B023
    empty = torch.randn(1, 0).expand(2, 0)
    assert ops.relu(x[:, :0], out=empty) is empty


def test_lists_of_tensors_with_gradients() -> None:
    x = torch.randn(3, requires_grad=True)
    refused("x", "no array of numbers", lambda: ops.relu([x, x]))
    refused("y", "no array of numbers", lambda: ops.add(x.detach(), [x, x]))
    refused("y", "a list of tensors has no gradient", lambda: ops.add(x, [x, x]))
    assert ops.relu([x.detach(), x.detach()]).shape == (2, 3)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_windows_within_the_padding(kind: str, count: int) -> None:
    name, x = f"{kind}_pool{count}d", torch.randn(1, 2, *(6,) * count)
    own, expected = getattr(ops, name), getattr(torch.nn.functional, name)
    for window, padding in ((1, 1), (3, 2), (3, (0,) * (count - 1) + (2,))):
        with pytest.raises(RuntimeError, match="half"):
            expected(x, window, 1, padding)
        refused("padding", "at most half of kernel_size", lambda: own(x, window, 1, padding))  # noqa: B023
        refused("padding", "at most half", lambda: own(x.numpy(), window, 1, padding))  # noqa: B023
    torch.testing.assert_close(own(x, 4, 1, 2), expected(x, 4, 1, 2))
