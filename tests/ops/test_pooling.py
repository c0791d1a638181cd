"""Poolings of any window against PyTorch, which rounds sizes up by rules of its own."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import InvalidArguments, ops
from dnnl.reference import pooling as reference
from tests.check import assert_close


def drawn_window(rng: random.Random, rank: int) -> tuple[list[int], list[int], list[int]]:
    """A kernel, strides and a padding of at most half of the kernel."""
    kernel = [rng.randint(1, 4) for _ in range(rank)]
    return kernel, [rng.randint(1, 4) for _ in kernel], [rng.randint(0, k // 2) for k in kernel]


def drawn_image(rng: random.Random, rank: int) -> np.ndarray:
    dims = 2, 3, *(rng.randint(5, 9) for _ in range(rank))
    values = np.random.default_rng(rng.randint(0, 10**6)).standard_normal(dims)
    return values.astype(np.float32)


def agree(name: str, x: np.ndarray, bound: Any, *args: Any, **named: Any) -> None:
    got = getattr(ops, name)(x, *args, **named)
    want = getattr(F, name)(torch.from_numpy(x), *args, **named)
    assert got.shape == tuple(want.shape)
    assert_close(got, want.numpy(), bound)


@pytest.mark.parametrize("seed", range(12))
def test_averages_as_torch(seed: int) -> None:
    """Most of them with windows that may reach beyond the padding."""
    rng = random.Random(seed)
    rank = 1 + seed % 3
    window, x = drawn_window(rng, rank), drawn_image(rng, rank)
    named: dict[str, Any] = {"ceil_mode": rng.random() < 0.8}
    named["count_include_pad"] = rng.random() < 0.7
    if rank > 1 and seed % 4 == 0:
        named["divisor_override"] = rng.choice([1, 3, 7, -2])
    bound = reference.TOLERANCE["pooling_avg_include_padding"]("f32", math.prod(window[0]))
    agree(f"avg_pool{rank}d", np.abs(x), bound, *window, **named)


@pytest.mark.parametrize("seed", range(12))
def test_maxima_as_torch(seed: int) -> None:
    rng = random.Random(100 + seed)
    rank = 1 + seed % 3
    window, x = drawn_window(rng, rank), drawn_image(rng, rank)
    x[x > 1.8] = np.nan
    x[x < 0] = -np.inf
    dilation = [rng.randint(1, 2) for _ in range(rank)]
    bound = reference.TOLERANCE["pooling_max"]("f32", 1)
    agree(f"max_pool{rank}d", x, bound, *window, dilation, rng.random() < 0.7)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_window_that_hangs_over_the_image_divides_by_what_it_has(rank: int) -> None:
    x = np.ones((1, 1, *[3] * rank), np.float32)
    got = getattr(ops, f"avg_pool{rank}d")(x, 2, ceil_mode=True)
    np.testing.assert_array_equal(got, np.ones((1, 1, *[2] * rank)))


def test_a_divisor_is_an_integer_and_not_zero() -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    with pytest.raises(InvalidArguments, match="divisor_override = 0: sums are not divided by 0"):
        ops.avg_pool2d(x, 2, divisor_override=0)
    with pytest.raises(InvalidArguments, match=r"divisor_override = 0\.5"):
        ops.avg_pool2d(x, 2, divisor_override=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_windows_of_a_given_number(rank: int, dtype: torch.dtype) -> None:
    """Of PyTorch's lengths, into more and fewer results than elements; NaN stays in its windows."""
    x = torch.from_numpy(drawn_image(random.Random(rank), rank)).to(dtype)
    x[0, 0].view(-1)[0], x[1, 2].view(-1)[-1] = math.nan, math.inf
    names = f"adaptive_avg_pool{rank}d", f"adaptive_max_pool{rank}d"
    sizes: list[Any] = [1, 3, 4, 12, [None, 3, 2][:rank]]
    for name in names:
        for size in sizes if rank > 1 else sizes[:-1]:
            for image in (x, x[0], x.transpose(0, 1)):
                got = getattr(ops, name)(image, size)
                want = getattr(F, name)(image.double(), size).to(dtype)
                assert got.dtype is dtype
                eps = 2 * torch.finfo(dtype).eps
                torch.testing.assert_close(got, want, rtol=eps, atol=eps, equal_nan=True)
                out = torch.empty_like(want)
                assert getattr(ops, name)(image, size, out=out) is out
                torch.testing.assert_close(out, got, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_images_without_a_batch(rank: int) -> None:
    x = drawn_image(random.Random(rank), rank)[0]
    for named in ({}, {"stride": 1, "padding": 1, "ceil_mode": True}, {"stride": 2}):
        for name in (f"max_pool{rank}d", f"avg_pool{rank}d"):
            bound = reference.TOLERANCE["pooling_avg_include_padding"]("f32", 3**rank)
            agree(name, x, bound, 3, **named)
            want = getattr(ops, name)(x, 3, **named)
            out = np.empty_like(want)
            assert getattr(ops, name)(x, 3, **named, out=out) is out
            np.testing.assert_array_equal(out, want)
