"""Normalizations of arrays whose normalized dimensions are not one row in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from dnnl import ops as typed_ops
from tests.torch.differentiating import check_gradients

ops: Any = typed_ops
ORDERS = ((0, 3, 1, 2), (3, 2, 1, 0), (0, 2, 1, 3))
SHAPE = (3, 4, 5, 6)
SIZES = (4, 5, 6)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def drawn(shape: Sequence[int], order: Sequence[int]) -> torch.Tensor:
    """Random numbers, of which dimension ``order[d]`` has the steps of dimension d."""
    whole = torch.randn([shape[axis] for axis in np.argsort(order)])
    return whole.permute(*order)


def pair(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function on arrays and PyTorch's, of x and of parameters, all with one eps."""
    own, expected = getattr(ops, name), getattr(functional, name)
    return partial(_called, own), partial(_called, expected)


def _called(function: Callable[..., Any], x: Any, *parameters: Any) -> Any:
    return function(x, SIZES, *parameters, eps=1e-5)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("order", ORDERS)
def test_any_strides(name: str, order: tuple[int, ...]) -> None:
    own, expected = pair(name)
    x = drawn(SHAPE, order)
    weight = drawn(SIZES, (2, 0, 1))
    for given in ((x,), (x, weight), (x.contiguous(), weight)):
        want = expected(*given)
        torch.testing.assert_close(own(*given), want)
        again = own(*(2 * each for each in given))  # with the strides of each one
        torch.testing.assert_close(again, expected(*(2 * each for each in given)))
        arrays = [each.numpy() for each in given]
        np.testing.assert_allclose(own(*arrays), want.numpy(), rtol=1e-5, atol=1e-5)
        check_gradients(own, expected, *given)
    small = x.bfloat16()
    torch.testing.assert_close(own(small), expected(small), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("order", ORDERS)
def test_results_of_any_strides(order: tuple[int, ...]) -> None:
    x = drawn(SHAPE, order)
    want = functional.layer_norm(x, SIZES)
    for source in (x, x.contiguous()):
        out = torch.full_like(x, torch.nan)
        assert ops.layer_norm(source, SIZES, out=out) is out
        torch.testing.assert_close(out, want)
    ops.layer_norm(x, SIZES, out=x)
    torch.testing.assert_close(x, want)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_epsilon_of_a_type(dtype: torch.dtype) -> None:
    x = (torch.randn(3, 40) * 1e-4).to(dtype)  # of whose squares it is a part
    x[0] = torch.randn(40) * 1e-9
    own: Any = partial(ops.rms_norm, normalized_shape=40)
    expected: Any = partial(functional.rms_norm, normalized_shape=(40,))
    tolerance = 4 * torch.finfo(dtype).eps if dtype.itemsize < 4 else 1e-5
    want = expected(x)
    torch.testing.assert_close(own(x), want, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(ops.rms_norm(x, 40, None, None), own(x))
    if dtype is not torch.bfloat16:
        got = torch.from_numpy(own(x.numpy()))
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    if dtype.itemsize > 2:
        check_gradients(own, expected, x)
