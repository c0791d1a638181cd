"""Gradients of poolings, of resampling and of padding.

Along each axis these are products with a matrix, but for maxima: the gradient is the product with
that transposed. The function on an identity gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from dnnl import ops
from dnnl.errors import InvalidArguments
from dnnl.ops.reading import many, spread
from dnnl.torch.derivatives.rules import Arguments, Counterpart, Gradients, Rule
from dnnl.torch.functions import pooling
from dnnl.types.layout_input import read_float

Tensor = torch.Tensor


def _transposed(
    g: Tensor, a: Arguments, axes: Sequence[int], function: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """The gradient, by what ``function`` makes of an image [1, rows, ..., size, ...] along an axis,
    which counts from the last."""
    wide = g if g.dtype is torch.float64 else g.float()
    for axis in axes:
        size = a.x.shape[axis]
        ones = [1] * len(axes)
        ones[axis] = size
        identity = torch.eye(size, dtype=wide.dtype).reshape(1, size, *ones)
        with torch.no_grad():
            matrix = function(identity, axis).reshape(size, g.shape[axis])
        wide = ops.matmul(wide.movedim(axis, -1), matrix.mT).movedim(-1, axis)
    return wide


def _of_adaptive_mean(count: int, g: Tensor, a: Arguments) -> Tensor:
    function = getattr(ops, f"adaptive_avg_pool{count}d")

    def along(image: Tensor, axis: int) -> Tensor:
        sizes: list[int | None] = [None] * count
        sizes[axis] = g.shape[axis]
        found: Tensor = function(image, sizes)
        return found

    return _transposed(g, a, range(-count, 0), along)


def _adaptive_max(count: int, x: Tensor, output_size: Any) -> Tensor:
    given = output_size if isinstance(output_size, list | tuple) else [output_size]
    spatial = x.shape[-count:]
    sizes = [
        n if own is None else own
        for own, n in zip(given * (count if len(given) == 1 else 1), spatial, strict=True)
    ]
    if any(n % own for own, n in zip(sizes, spatial, strict=True)):
        name = f"torch.nn.functional.adaptive_max_pool{count}d"
        rule = (
            f"windows of x, of the sizes {tuple(spatial)}, that differ in length have no gradient"
        )
        raise InvalidArguments("output_size", output_size, rule, f"use {name}, or x.detach()")
    window = [n // own for own, n in zip(sizes, spatial, strict=True)]
    found: Tensor = getattr(pooling, f"max_pool{count}d")(x, window)
    return found


def _averaged(count: int, divisor_override: int | None = None, **given: Any) -> Tensor:
    if divisor_override is not None:
        name = f"torch.nn.functional.avg_pool{count}d"
        rule = "has no gradient here"
        hint = f"use {name}, or x.detach()"
        raise InvalidArguments("divisor_override", divisor_override, rule, hint)
    found: Tensor = getattr(pooling, f"avg_pool{count}d")(**given)
    return found


def _of_interpolated(g: Tensor, a: Arguments) -> Tensor:
    count, factors = g.dim() - 2, None
    if a.scale_factor is not None:
        factors = spread("scale_factor", many("scale_factor", a.scale_factor, read_float), count)

    def along(image: Tensor, axis: int) -> Tensor:
        if factors is None:
            sizes = [1] * count
            sizes[axis] = g.shape[axis]
            found: Tensor = ops.interpolate(image, sizes, mode=a.mode)
        else:
            scales = [1.0] * count
            scales[axis] = factors[axis]
            found = ops.interpolate(image, scale_factor=scales, mode=a.mode)
        return found

    return _transposed(g, a, range(-count, 0), along)


def _of_padded(g: Tensor, a: Arguments) -> Tensor:
    if a.mode == "constant":
        found: Tensor = ops.pad(g, [-number for number in a.pad])
        return found
    for place in range(0, len(a.pad), 2):
        pair = tuple(a.pad[place : place + 2])
        axis = -1 - place // 2
        size = a.x.shape[axis]
        wide = g if g.dtype is torch.float64 else g.float()
        with torch.no_grad():
            matrix = ops.pad(torch.eye(size, dtype=wide.dtype), pair, a.mode)
        g = ops.matmul(wide.movedim(axis, -1), matrix.mT).movedim(-1, axis)
    return g


TABLE: Mapping[str, Gradients] = {
    **{f"max_pool{n}d": Counterpart(getattr(pooling, f"max_pool{n}d")) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": Counterpart(partial(_averaged, n)) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": {"x": Rule(partial(_of_adaptive_mean, n))} for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": Counterpart(partial(_adaptive_max, n)) for n in (1, 2, 3)},
    "interpolate": {"x": Rule(_of_interpolated)},
    "pad": {"x": Rule(_of_padded)},
}
