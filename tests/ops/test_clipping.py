"""Bounds of `clip` of any kind and in any order, beside NumPy's and PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dnnl import ops as typed_ops
from tests.torch.differentiating import check_gradients

ops: Any = typed_ops
BOUNDS = ("number", "of each", "of columns", "of rows", "without dimensions")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def bound(kind: str, near: float) -> torch.Tensor | float:
    """A bound of rows of 5 elements."""
    if kind == "number":
        return near
    shapes = {"of each": (4, 5), "of columns": (5,), "of rows": (4, 1)}
    return torch.randn(shapes.get(kind, ())) * 0.5 + near


@pytest.mark.parametrize("low", BOUNDS)
@pytest.mark.parametrize("high", BOUNDS)
def test_bounds(low: str, high: str) -> None:
    x = torch.randn(4, 5)
    for shift in (0.5, -0.5):  # for the most part in order, then for the most part not
        least, most = bound(low, -shift), bound(high, shift)
        own = least, most
        tensors = [each for each in own if isinstance(each, torch.Tensor)]
        wide = [torch.as_tensor(each) for each in own]

        def filled(given: tuple[torch.Tensor, ...], plain: tuple[Any, ...]) -> list[Any]:
            rest = iter(given)
            return [next(rest) if isinstance(each, torch.Tensor) else each for each in plain]

        def clipped(x: torch.Tensor, *given: torch.Tensor, own: Any = own) -> Any:
            return ops.clip(x, *filled(given, own))

        def expected(
            x: torch.Tensor, *given: torch.Tensor, own: Any = own, wide: Any = wide
        ) -> torch.Tensor:
            pairs = zip(own, filled(given, own), wide, strict=True)
            return torch.clamp(x, *(b if isinstance(a, torch.Tensor) else c for a, b, c in pairs))

        check_gradients(clipped, expected, x, *tensors)
        arrays: list[Any] = [
            each.numpy() if isinstance(each, torch.Tensor) else each for each in own
        ]
        got, want = ops.clip(x.numpy(), *arrays), np.clip(x.numpy(), *arrays)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
        for name, limit in zip(("min", "max"), own, strict=True):
            same = torch.clamp(x, **{name: torch.as_tensor(limit)})
            torch.testing.assert_close(ops.clip(x, **{name: limit}), same)
            out = torch.empty(4, 5)
            assert ops.clip(x, **{name: limit}, out=out) is out
            torch.testing.assert_close(out, same)


@pytest.mark.parametrize("dtype", ["int8", "int64", "float64", "float16"])
def test_types_and_shapes(dtype: str) -> None:
    x = np.random.default_rng(1).integers(-9, 9, (4, 5)).astype(dtype)
    for low, high in ((5, -5), (np.arange(5), 3), ([0, 1, 2, 3, 4], None), (None, np.float64(2))):
        bounds: list[Any] = [
            np.asarray(own) if isinstance(own, list) else own for own in (low, high)
        ]
        got, want = ops.clip(x, *bounds), np.clip(x, *bounds)
        np.testing.assert_array_equal(got, want)
    arrays: list[Any] = [np.zeros((2, 1, 5), dtype), np.full((2, 4, 1), 3, dtype)]
    np.testing.assert_array_equal(ops.clip(x, *arrays), np.clip(x, *arrays))
    tensors = [torch.from_numpy(own) for own in (x, *arrays)]
    torch.testing.assert_close(ops.clip(*tensors), torch.clamp(*tensors))
    assert np.isnan(ops.clip(np.array([np.nan]), 2, 1)).all()


def test_bounds_of_a_number() -> None:
    def clipped(low: torch.Tensor, high: torch.Tensor) -> Any:
        return ops.clip(0.25, low, high)

    def expected(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        return torch.clamp(torch.tensor(0.25), low, high)

    check_gradients(clipped, expected, torch.randn(9), torch.randn(9))
