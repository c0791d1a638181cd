"""Gradients of reductions, of running sums and of normalizations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from dnnl import ops
from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Result
from dnnl.ops.promotion import TORCH
from dnnl.ops.reading import read_axes, read_axis
from dnnl.torch.derivatives.rules import Arguments, Counterpart, Gradients, Rule
from dnnl.torch.functions import normalizing
from dnnl.torch.functions.softmax import backward

Tensor = torch.Tensor


def _axes(a: Arguments) -> tuple[int, ...]:
    return read_axes(a.axis, a.dim).of(a.x.dim(), TORCH)


def _whole(reduced: Tensor, a: Arguments) -> Tensor:
    """What a reduction gives, with the dimensions that it left out, of size 1."""
    axes = _axes(a)
    return reduced.reshape([1 if d in axes else n for d, n in enumerate(a.x.shape)])


def _of_sum(g: Tensor, a: Arguments) -> Tensor:
    return _whole(g, a).expand(a.x.shape)


def _of_mean(g: Tensor, a: Arguments) -> Tensor:
    count = a.x.numel() // max(1, g.numel())
    return _of_sum(ops.divide(g, float(max(1, count))), a)


def _of_extreme(g: Tensor, a: Arguments) -> Result:
    """Elements that are equal have equal parts."""
    chosen = (a.x.detach() == _whole(a.result.detach(), a)).to(g.dtype)
    counts = ops.sum(chosen, _axes(a) or (), keepdims=True)
    return ops.multiply(chosen, ops.divide(_whole(g, a), counts))


def _of_product(g: Tensor, a: Arguments) -> Result:
    """The products of the elements before each one, times those of the elements behind it."""
    axes = _axes(a)
    if not axes:
        return g
    last = list(range(-len(axes), 0))
    moved = a.x.movedim(axes, last)
    rows = moved.reshape(*moved.shape[: -len(axes)], -1).to(g.dtype)
    others = ops.multiply(_before(rows), _before(rows.flip(-1)).flip(-1))
    return ops.multiply(others.reshape(moved.shape).movedim(last, axes), _whole(g, a))


def _before(rows: Tensor) -> Tensor:
    """The product of the elements before each one."""
    ones = rows.new_ones((*rows.shape[:-1], 1))
    products: Tensor = ops.cumprod(ops.concatenate([ones, rows[..., :-1]], -1), -1)
    return products


def _of_running_sum(g: Tensor, a: Arguments) -> Result:
    if a.axis is None and a.dim is None:
        rows, axis = g, 0
    elif a.x.dim() == 0:
        return g
    else:
        rows, (axis,) = g, read_axis(a.axis, a.dim, 0).of(a.x.dim())
    return ops.cumsum(rows.flip(axis), axis).flip(axis).reshape(a.x.shape)


def _of_shares(alg: str, g: Tensor, a: Arguments) -> Tensor:
    axes = read_axis(a.axis, a.dim, -1).of(a.x.dim(), TORCH)
    return backward(g, a.result, alg, *axes) if axes else torch.zeros_like(g)


def _rows(a: Arguments, x: Tensor) -> Tensor:
    """The normalized dimensions in one, in f32 or more."""
    given = a.normalized_shape
    count = len(given) if isinstance(given, list | tuple) else 1
    rows = x.reshape(*x.shape[: x.dim() - count], -1)
    return rows if rows.dtype is torch.float64 else rows.float()


def _scaled(a: Arguments) -> tuple[Tensor, Tensor]:
    """The rows by their root mean square, and the factors."""
    rows = _rows(a, a.x)
    squares = ops.mean(ops.square(rows), -1, keepdims=True)
    eps = torch.finfo(rows.dtype).eps if a.eps is None else a.eps
    factors = ops.divide(1.0, ops.sqrt(ops.add(squares, eps)))
    return ops.multiply(rows, factors), factors


def _of_rms_norm(g: Tensor, a: Arguments) -> Result:
    rows, factors = _scaled(a)
    gradient = _rows(a, g)
    if a.weight is not None:
        gradient = ops.multiply(gradient, a.weight.reshape(-1))
    along = ops.mean(ops.multiply(gradient, rows), -1, keepdims=True)
    found = ops.multiply(factors, ops.subtract(gradient, ops.multiply(rows, along)))
    return found.reshape(a.x.shape)


def _of_rms_weight(g: Tensor, a: Arguments) -> Result:
    rows, _ = _scaled(a)
    return ops.multiply(rows, _rows(a, g)).reshape(a.x.shape)


def _of_normalized(g: Tensor, a: Arguments) -> Result:
    """Of norms above ``eps``, which is a constant for others."""
    axis = read_axis(a.axis, a.dim, 1).of(a.x.dim(), TORCH)
    if a.p == 2:
        norms = ops.sqrt(ops.sum(ops.square(a.x), axis, keepdims=True))
    else:
        norms = ops.sum(a.x.abs().pow(a.p), axis, keepdims=True).pow(1 / a.p)
    divisors = ops.maximum(norms, float(a.eps))
    shares = ops.divide(a.x, divisors)
    slopes = shares if a.p == 2 else shares.detach().sign() * shares.abs().pow(a.p - 1)
    along = ops.divide(ops.sum(ops.multiply(g, shares), axis, keepdims=True), divisors)
    along = ops.where(norms.detach() > a.eps, along, 0.0)
    return ops.subtract(ops.divide(g, divisors), ops.multiply(along, slopes))


def _batch_norm(training: bool, **given: Any) -> Tensor:
    if training:
        rule = "statistics of the batch are not computed here"
        raise InvalidArguments("training", training, rule, "use dnnl.torch.batch_norm")
    for name in ("running_mean", "running_var"):
        if getattr(given[name], "requires_grad", False):
            rule = "requires a gradient, which statistics do not have"
            raise InvalidArguments(name, "a tensor", rule, f"pass {name}.detach()")
    return normalizing.batch_norm(**given)


TABLE: Mapping[str, Gradients] = {
    "sum": {"x": Rule(_of_sum)},
    "mean": {"x": Rule(_of_mean)},
    "prod": {"x": Rule(_of_product, ("x",))},
    "amax": {"x": Rule(_of_extreme, ("x", "result"))},
    "amin": {"x": Rule(_of_extreme, ("x", "result"))},
    "cumsum": {"x": Rule(_of_running_sum)},
    "softmax": {"x": Rule(partial(_of_shares, "softmax_accurate"), ("result",))},
    "log_softmax": {"x": Rule(partial(_of_shares, "softmax_log"), ("result",))},
    "layer_norm": Counterpart(normalizing.layer_norm),
    "group_norm": Counterpart(normalizing.group_norm),
    "batch_norm": Counterpart(_batch_norm),
    "rms_norm": {
        "x": Rule(_of_rms_norm, ("x", "weight")),
        "weight": Rule(_of_rms_weight, ("x",)),
    },
    "normalize": {"x": Rule(_of_normalized, ("x",))},
}
