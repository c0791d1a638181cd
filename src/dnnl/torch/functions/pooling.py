"""Maxima and averages of windows."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from dnnl.errors import InvalidArguments
from dnnl.primitives.pooling import PoolingDesc
from dnnl.torch.functions.checks import (
    Sizes,
    check_source,
    empty_like,
    format_of,
    packed,
    read_sizes,
    refuse,
)
from dnnl.torch.functions.execution import Descs, run
from dnnl.torch.functions.gradients import only_once
from dnnl.torch.functions.operators import operator
from dnnl.types.arg import Arg

_MAX = "pooling_max"
_MARKED = 255  # so many places of a window have numbers in u8


@operator("pooling")
def _pooling(
    x: torch.Tensor,
    alg: str,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    spatial: list[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and which places of windows have the maxima: empty of averages."""
    made = _made(x, alg, kernel, spatial)
    result, places = made
    operands: dict[int, torch.Tensor | None] = {
        Arg.SRC: packed(x),
        Arg.DST: result,
        Arg.WORKSPACE: places if alg == _MAX else None,
    }
    run(_forward, operands, alg, *_window(x, kernel, stride, padding, dilation, spatial))
    return made


@_pooling.register_fake
def _(
    x: torch.Tensor, alg: str, kernel: list[int], *window: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    return _made(x, alg, kernel, window[-1])


def _made(
    x: torch.Tensor, alg: str, kernel: list[int], spatial: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    result = empty_like(x, (*x.shape[:2], *spatial))
    if alg != _MAX:
        return result, torch.empty((0,), dtype=torch.uint8, device=x.device)
    dtype = torch.uint8 if prod(kernel) <= _MARKED else torch.int32
    return result, torch.empty_like(result, dtype=dtype)


@operator("pooling_backward")
def _pooling_backward(
    gradient: torch.Tensor,
    places: torch.Tensor,
    x: torch.Tensor,
    alg: str,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    spatial: list[int],
) -> torch.Tensor:
    """The gradient of x, of which the sizes and the layout count."""
    result = empty_like(x, x.shape)
    operands: dict[int, torch.Tensor | None] = {
        Arg.DIFF_DST: gradient.contiguous(memory_format=format_of(x)),
        Arg.WORKSPACE: places if alg == _MAX else None,
        Arg.DIFF_SRC: result,
    }
    run(_backward, operands, alg, *_window(x, kernel, stride, padding, dilation, spatial))
    return result


@_pooling_backward.register_fake
def _(_gradient: Any, _places: Any, x: torch.Tensor, *_params: Any) -> torch.Tensor:
    return empty_like(x, x.shape)


only_once(_pooling_backward, "poolings")


def _saved(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, *ctx.params = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1], x)


def _gradient(ctx: Any, gradient: torch.Tensor | None, _places: Any) -> tuple[Any, ...]:
    data = None
    if gradient is not None:
        data = _pooling_backward(gradient, *ctx.saved_tensors, *ctx.params)
    return data, *[None] * 6


_pooling.register_autograd(_gradient, setup_context=_saved)


def _window(
    x: torch.Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    spatial: list[int],
) -> tuple[tuple[int, ...], ...]:
    """Strides, kernel, paddings before and behind, and dilations as descriptions have them."""
    rows = zip(x.shape[2:], kernel, stride, padding, dilation, spatial, strict=True)
    behind = tuple((o - 1) * s + (k - 1) * d + 1 - i - p for i, k, s, p, d, o in rows)
    dilations = tuple(own - 1 for own in dilation)
    return tuple(stride), tuple(kernel), tuple(padding), behind, dilations


def _forward(descs: Descs, alg: str, *window: Any) -> PoolingDesc:
    return PoolingDesc.forward("forward_training", alg, descs[Arg.SRC], descs[Arg.DST], *window)


def _backward(descs: Descs, alg: str, *window: Any) -> PoolingDesc:
    return PoolingDesc.backward(alg, descs[Arg.DIFF_SRC], descs[Arg.DIFF_DST], *window)


def _places(extent: int, reach: int, stride: int, padding: int, ceil_mode: bool) -> int:
    free = extent + 2 * padding - reach
    if not ceil_mode:
        return free // stride + 1
    number = -(-free // stride) + 1
    # A window must not begin in the padding behind.
    return number - 1 if (number - 1) * stride >= extent + padding else number


def _pooled(
    count: int,
    alg: str,
    x: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> torch.Tensor:
    if check_source("x", x).dim() not in (count + 1, count + 2):
        rule = f"expected {count + 2} dimensions, or {count + 1} without a batch"
        raise InvalidArguments("x", tuple(x.shape), rule)
    if x.dim() == count + 1:
        given = kernel_size, stride, padding, dilation, ceil_mode
        return _pooled(count, alg, x[None], *given)[0]
    kernel = read_sizes("kernel_size", kernel_size, count, 1)
    strides = kernel if stride is None else read_sizes("stride", stride, count, 1)
    paddings = read_sizes("padding", padding, count, 0)
    dilations = read_sizes("dilation", dilation, count, 1)
    if any(2 * p > k for p, k in zip(paddings, kernel, strict=True)):
        raise InvalidArguments("padding", padding, f"at most half of kernel_size = {kernel_size}")
    reaches = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    rows = zip(x.shape[2:], reaches, strides, paddings, strict=True)
    spatial = [_places(*row, ceil_mode) for row in rows]
    if min(spatial) < 1:
        rule = f"windows must fit into x, whose shape is {tuple(x.shape)}, and its padding"
        raise InvalidArguments("kernel_size", kernel_size, rule)
    if alg == "pooling_avg_include_padding" and ceil_mode:
        behind = _window(x, kernel, strides, paddings, dilations, spatial)[3]
        if any(own > p for own, p in zip(behind, paddings, strict=True)):
            rule = "windows reach beyond the padding, which count_include_pad=True counts"
            raise refuse("ceil_mode", ceil_mode, rule)
    result: torch.Tensor = _pooling(x, alg, kernel, strides, paddings, dilations, spatial)[0]
    return result


def _averaged(
    count: int,
    x: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
) -> torch.Tensor:
    # Without padding both are the same, and windows that hang over are divided by what is inside.
    includes = count_include_pad and any(read_sizes("padding", padding, count, 0))
    alg = f"pooling_avg_{'include' if includes else 'exclude'}_padding"
    return _pooled(count, alg, x, kernel_size, stride, padding, 1, ceil_mode)


def max_pool1d(
    x: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> torch.Tensor:
    """The maxima of windows of [N, C, W] or [C, W]; see `max_pool2d`."""
    return _pooled(1, _MAX, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    x: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> torch.Tensor:
    """The maxima of windows of images [N, C, H, W] or [C, H, W] as torch has them.

    Floats, row-major or channels-last; the result is as x is. Raises InvalidArguments where the
    window does not fit.
    """
    return _pooled(2, _MAX, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool3d(
    x: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
) -> torch.Tensor:
    """The maxima of windows of [N, C, D, H, W] or [C, D, H, W]; see `max_pool2d`."""
    return _pooled(3, _MAX, x, kernel_size, stride, padding, dilation, ceil_mode)


def avg_pool1d(
    x: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> torch.Tensor:
    """The averages of windows of [N, C, W] or [C, W]; see `avg_pool2d`."""
    return _averaged(1, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    x: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> torch.Tensor:
    """The averages of windows of images [N, C, H, W] or [C, H, W] as torch has them.

    Floats, row-major or channels-last; the result is as x is. Raises InvalidArguments where the
    window does not fit, and Unimplemented where windows reach beyond a padding that is counted.
    """
    return _averaged(2, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool3d(
    x: torch.Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> torch.Tensor:
    """The averages of windows of [N, C, D, H, W] or [C, D, H, W]; see `avg_pool2d`."""
    return _averaged(3, x, kernel_size, stride, padding, ceil_mode, count_include_pad)
