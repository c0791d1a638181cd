"""Local response normalization: dst = src * w^-beta, w = k + alpha / n * sum of src^2.

The sum runs over a window around each element: along the channels (``lrn_across_channels``) or
along all spatial dimensions (``lrn_within_channel``). It reaches (local_size - 1) / 2 elements, in
whole numbers, to either side and is clipped at the borders; ``n`` is the full volume everywhere,
local_size to the number of the window's dimensions.

So an even size sums one element less per dimension than it divides by, as in oneDNN. PyTorch and
ONNX, which have windows along the channels alone, sum local_size elements then: one more before and
one more behind, respectively. Odd sizes agree. A source without spatial dimensions has windows of
one element within the channel, with n = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dnnl.errors import InvalidArguments
from dnnl.reference.arrays import Array, f64, name_of
from dnnl.reference.fill import generator, integers
from dnnl.reference.rule import Rule, core_eps
from dnnl.reference.specification import Description, Specification, Values, zero_limit
from dnnl.reference.tolerance import Tolerance
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg

# The exponent beta * ln(w) is rounded before it is used. length: the volume of the window.
TOLERANCE = Tolerance(ulps=16, growth=1, floor=2.0**-100)
BACKWARD_TOLERANCE = Tolerance(ulps=32, growth=2, floor=None)


@np.errstate(all="ignore")
def lrn(
    src: ArrayLike, alg: Alg | str, *, local_size: int, alpha: float, beta: float, k: float
) -> Array:
    """``src`` [N, C, spatial...]."""
    data = f64(src)
    axes = _window_axes(alg, data.ndim)
    return np.asarray(data * _base(data, axes, local_size, alpha, k) ** -beta)


@np.errstate(all="ignore")
def lrn_backward(
    src: ArrayLike,
    diff_dst: ArrayLike,
    alg: Alg | str,
    *,
    local_size: int,
    alpha: float,
    beta: float,
    k: float,
) -> Array:
    """Return diff_src; all tensors [N, C, spatial...].

    An element moves its own result and, through w, all results whose windows contain it. Windows
    reach equally far to both sides, so those are the results in its own window.
    """
    data, gradient = f64(src), f64(diff_dst)
    axes = _window_axes(alg, data.ndim)
    base = _base(data, axes, local_size, alpha, k)
    through_base = _window_sum(gradient * data * base ** (-beta - 1), axes, local_size)
    slope = 2 * alpha * beta / local_size ** len(axes)
    return np.asarray(gradient * base**-beta - slope * data * through_base)


@np.errstate(all="ignore")
def lrn_workspace(
    src: ArrayLike, alg: Alg | str, *, local_size: int, alpha: float, beta: float, k: float
) -> Array:
    """What the forward pass stores for its gradient: src * w^(-beta - 1), as ``src``."""
    data = f64(src)
    axes = _window_axes(alg, data.ndim)
    return np.asarray(data * _base(data, axes, local_size, alpha, k) ** (-beta - 1))


def _window_axes(alg: Alg | str, ndims: int) -> tuple[int, ...]:
    match name_of(alg):
        case "lrn_across_channels":
            return (1,)
        case "lrn_within_channel":
            return tuple(range(2, ndims))
        case name:
            raise InvalidArguments("alg", name, "expected a local response normalization")


def _base(data: Array, axes: tuple[int, ...], local_size: int, alpha: float, k: float) -> Array:
    """What is raised to the power -beta."""
    volume = local_size ** len(axes)
    return np.asarray(k + alpha / volume * _window_sum(data**2, axes, local_size))


def _window_sum(values: Array, axes: tuple[int, ...], local_size: int) -> Array:
    """The sum over the window around each element; elements outside are 0."""
    half = (local_size - 1) // 2
    for axis in axes:
        widths = [(half, half) if a == axis else (0, 0) for a in range(values.ndim)]
        padded, inside = np.pad(values, widths), np.arange(values.shape[axis])
        values = np.zeros_like(values)
        for offset in range(2 * half + 1):
            values = values + padded.take(inside + offset, axis)
    return values


class _Lrn(Specification):
    """Small whole numbers, whose squares add up exactly."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Whole numbers, and what the forward pass made of them."""
        dims = desc.src_desc.dims
        src = integers(generator("lrn", dims), dims, -8, 7)
        if desc.propagation.is_forward:
            return {Arg.SRC: src}
        return {
            Arg.SRC: src,
            Arg.DIFF_DST: integers(generator("lrn", dims, "diff_dst"), dims, -8, 7),
            Arg.WORKSPACE: lrn_workspace(src, desc.alg_kind, **_numbers(desc)),
        }

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The normalization with its workspace, or the gradient."""
        src, numbers = values[Arg.SRC], _numbers(desc)
        if desc.propagation.is_forward:
            return {
                Arg.DST: lrn(src, desc.alg_kind, **numbers),
                Arg.WORKSPACE: lrn_workspace(src, desc.alg_kind, **numbers),
            }
        gradient = lrn_backward(src, values[Arg.DIFF_DST], desc.alg_kind, **numbers)
        return {Arg.DIFF_SRC: gradient}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Rounded once, behind a few epsilons for each term; relative to the terms that
        cancel in gradients. The workspace is divided by w once more, the square of a root."""
        kind, axes = (
            desc.desc_of(argument).data_type,
            _window_axes(desc.alg_kind, desc.src_desc.ndims),
        )
        terms = desc.local_size ** len(axes)
        size = None
        if not desc.propagation.is_forward:
            parts = np.abs(values[Arg.DIFF_DST] * values[Arg.WORKSPACE])
            share = _window_sum(parts, axes, desc.local_size) * np.abs(values[Arg.SRC])
            slope = 2 * abs(desc.alpha * desc.beta) / terms
            size = np.abs(values[Arg.DIFF_DST]) + slope * share
        steps = 6 if argument == Arg.WORKSPACE else 3
        return Rule(steps * (kind.eps / 2 + core_eps(kind) * terms), zero_limit(kind), size=size)


def _numbers(desc: Description) -> dict[str, Any]:
    return {name: getattr(desc, name) for name in ("local_size", "alpha", "beta", "k")}


SPECIFICATION = _Lrn()
