"""Operators of ATen as others, for exported programs: torch.compile leaves these to PyTorch, which
computes them in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_Tensor = torch.Tensor
_aten: Any = torch.ops.aten
_KNOWN = (torch.int32, torch.int64)
"""The integers whose extremes are known."""


def _of_floats(function: Callable[[_Tensor], _Tensor]) -> Callable[[_Tensor], _Tensor]:
    """A function that small floats and integers are converted for."""

    def write(x: _Tensor) -> _Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        return function(x.to(wide)).to(x.dtype if x.is_floating_point() else wide)

    return write


def _log1p(x: _Tensor) -> _Tensor:
    """ln(1 + x), by the share of x that 1 + x has after rounding."""
    above = x + 1
    step, log = above - 1, above.log()
    found = torch.where(step == x, log, log * x / step)
    return torch.where(step == 0, x, found)


def _expm1(x: _Tensor) -> _Tensor:
    """e^x - 1, near 0 by the share of x that the logarithm of e^x has after rounding."""
    power = x.exp()
    near = torch.where(power == 1, x, (power - 1) * x / power.log())
    return torch.where(x.abs() < 0.5, near, power - 1)


def _softplus(x: _Tensor, beta: float = 1, threshold: float = 20) -> Any:
    """ln(1 + e^(beta x)) / beta, of which that for 1 is known."""
    if beta == 1 or threshold < 20:
        return NotImplemented
    return torch.nn.functional.softplus(x * beta) / beta


def _zeros(size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> _Tensor:
    return torch.full(size, 0, dtype=dtype or torch.get_default_dtype())


def _zeros_permuted(size: Sequence[int], _order: Sequence[int], **keywords: Any) -> _Tensor:
    return _zeros(size, **keywords)


def _extreme(name: str) -> Callable[..., Any]:
    """`amax` or `amin` of short integers, as wider ones; `max` or `min` of all elements too."""

    def write(x: _Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
        if x.is_floating_point() or x.dtype in (*_KNOWN, torch.bool):
            return NotImplemented
        return getattr(x.to(torch.int32), name)(dim, keepdim).to(x.dtype)

    return write


def _place(name: str) -> Callable[..., Any]:
    """`argmax` or `argmin` of integers: the first one that is equal to the extreme."""

    def write(x: _Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        if x.is_floating_point() or x.dtype == torch.bool or not x.dim():
            return NotImplemented
        extreme = getattr(x, name)(() if dim is None else dim, keepdim=True)
        return (x == extreme).float().argmax(dim, keepdim)

    return write


def _extreme_and_place(name: str, place: str) -> Callable[..., Any]:
    """`max.dim` or `min.dim` of integers."""

    def write(x: _Tensor, dim: int, keepdim: bool = False) -> Any:
        if x.is_floating_point() or x.dtype == torch.bool or not x.dim():
            return NotImplemented
        return getattr(x, name)(dim, keepdim), getattr(x, place)(dim, keepdim)

    return write


DECOMPOSITIONS: Mapping[Any, Callable[..., Any]] = {
    _aten.log1p.default: _of_floats(_log1p),
    _aten.expm1.default: _of_floats(_expm1),
    _aten.softplus.default: _softplus,
    _aten.empty.memory_format: _zeros,
    _aten.empty_permuted.default: _zeros_permuted,
    _aten.amax.default: _extreme("amax"),
    _aten.amin.default: _extreme("amin"),
    _aten.max.default: _extreme("amax"),
    _aten.min.default: _extreme("amin"),
    _aten.argmax.default: _place("amax"),
    _aten.argmin.default: _place("amin"),
    _aten.max.dim: _extreme_and_place("amax", "argmax"),
    _aten.min.dim: _extreme_and_place("amin", "argmin"),
}
"""What writes each operator; NotImplemented is where a call stays."""
