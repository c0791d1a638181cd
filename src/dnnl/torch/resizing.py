"""Resampling as an operator of graphs whose sizes only a run knows.

PyTorch's own ones have no types for such sizes: it writes them as gathers of elements. Bilinear, by
2, these took 3 times as long as eager, and their gradients, sums at indices, 40 times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from dnnl.torch import private
from dnnl.torch.functions.gradients import only_once
from dnnl.torch.functions.operators import operator

NEAREST = tuple(
    f"{name}{n}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)
)
INTERPOLATED = (
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
)  # fmt: skip
"""The operators of ATen."""

_EXACT = 2**8
"""Products of sizes with fractions of smaller integers have no rounding."""


@operator("resize")
def resize(
    x: torch.Tensor, size: list[int], method: str, align_corners: bool, scales: list[float]
) -> torch.Tensor:
    """``x`` [N, C, ...] with ``size`` by an operator of ATen, ``method``. Scales of 0 are those of
    the sizes."""
    found: torch.Tensor = _called(method, (x, size), align_corners, scales)
    return found


@resize.register_fake
def _(x: torch.Tensor, size: list[int], *_method: Any) -> torch.Tensor:
    return _like(x, (*x.shape[:2], *size))


@operator("resize_backward")
def _backward(
    gradient: torch.Tensor,
    shape: list[int],
    method: str,
    align_corners: bool,
    scales: list[float],
) -> torch.Tensor:
    """The gradient of x, which has this ``shape``."""
    sizes = list(gradient.shape[2:]), shape
    found: torch.Tensor = _called(f"{method}_backward", (gradient, *sizes), align_corners, scales)
    return found


@_backward.register_fake
def _(gradient: torch.Tensor, shape: list[int], *_method: Any) -> torch.Tensor:
    return _like(gradient, shape)


only_once(_backward, "interpolate")


def _like(x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A new tensor of these sizes, its axes in memory in the order of those of ``x``."""
    order = private.format_of_results(x)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=order)


def _called(
    name: str, args: tuple[Any, ...], align_corners: bool, scales: Sequence[float]
) -> torch.Tensor:
    corners = () if name.removesuffix("_backward") in NEAREST else (align_corners,)
    found: torch.Tensor = getattr(torch.ops.aten, name)(*args, *corners, *scales)
    return found


def _saved(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, _, *ctx.method = inputs
    ctx.shape = list(x.shape)


def _gradient(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return _backward(gradient, ctx.shape, *ctx.method), None, None, None, None


resize.register_autograd(_gradient, setup_context=_saved)


def _times(size: Any, factor: float) -> Any:
    """Their product, rounded down: of integers, where neither rounds, so that it is a size that a
    plan computes."""
    above, below = factor.as_integer_ratio()
    whole: Any = torch.sym_int
    return size * above // below if max(above, below) < _EXACT else whole(size * factor)


def _written(
    method: str,
    x: torch.Tensor,
    size: Sequence[int] | None,
    align_corners: bool,
    factors: Sequence[float] | None,
) -> torch.Tensor:
    """What PyTorch calls for `functional.interpolate`, as `resize`."""
    if size is None:
        assert factors is not None, "PyTorch asks for one of both"
        size = [_times(n, factor) for n, factor in zip(x.shape[2:], factors, strict=True)]
    found: torch.Tensor = resize(x, list(size), method, align_corners, list(factors or ()))
    return found


def _nearest(
    method: str, x: torch.Tensor, size: Sequence[int] | None, factors: Sequence[float] | None
) -> torch.Tensor:
    return _written(method, x, size, False, factors)


WRITTEN: Mapping[Any, Callable[..., torch.Tensor]] = {
    **{getattr(torch.ops.aten, own).vec: partial(_nearest, own) for own in NEAREST},
    **{getattr(torch.ops.aten, own).vec: partial(_written, own) for own in INTERPOLATED},
}
"""How the operators that `functional.interpolate` calls are written."""
