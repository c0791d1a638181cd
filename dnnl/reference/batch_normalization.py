"""Batch normalization: dst = scale * (src - mean) / sqrt(variance + epsilon) + shift.

Each channel has its own mean and variance, over the batch and the spatial dimensions. A fused relu
follows, before which a second source may be added.

The workspace of a fused relu has the dims of dst and the type u8: 1 where the relu kept the
result, 0 where it put 0 instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import drawn, generator, integers
from dnnl.reference.normalization import moments, through_statistics
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Specification, Values, inputs
from dnnl.reference.tolerance import PRODUCT_SUM, Tolerance
from dnnl.types.arg import Arg
from dnnl.types.kinds import NormFlags

# With given statistics, those in memory included that the same kernel computed; length: 1.
TOLERANCE = Tolerance(ulps=8, floor=None)
# length: the number of elements of a channel.
STATISTICS_TOLERANCE = PRODUCT_SUM
# Of dst where the kernel keeps its statistics to itself. The error of the mean counts in units of
# the deviation, so the mean must not be many times as large.
TRAINING_TOLERANCE = TOLERANCE.after(STATISTICS_TOLERANCE)
# With the statistics in memory, rounded. The gradient of two or three elements cancels wholly.
DIFF_SRC_TOLERANCE = Tolerance(ulps=32, growth=2, floor=None)
DIFF_SCALE_TOLERANCE = Tolerance(ulps=8, growth=2, floor=None)


@np.errstate(all="ignore")
def statistics(src: ArrayLike) -> tuple[Array, Array]:
    """The mean [C] and the population variance [C] of ``src`` [N, C, spatial...]."""
    data = f64(src)
    mean, variance = moments(data, _channel_axes(data))
    return mean.reshape(-1), variance.reshape(-1)


@np.errstate(all="ignore")
def batch_normalization(
    src: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    scale: ArrayLike | None = None,
    shift: ArrayLike | None = None,
    *,
    epsilon: float,
    fuse_relu: bool = False,
    added: ArrayLike | None = None,
) -> Array:
    """``src`` and ``added`` [N, C, spatial...], all others [C].

    The statistics are those of :func:`statistics`, or given ones. ``added`` is the second source.
    """
    data = f64(src)
    dst = _normalized(data, mean, variance, epsilon)
    if scale is not None:
        dst = dst * _per_channel(scale, data)
    if shift is not None:
        dst = dst + _per_channel(shift, data)
    if added is not None:
        dst = dst + f64(added)
    return np.maximum(dst, 0.0) if fuse_relu else dst


def relu_workspace(dst: ArrayLike) -> NDArray[np.uint8]:
    """The workspace of a fused relu with the result ``dst``, before post-ops; it keeps NaN."""
    dropped = f64(dst) <= 0
    return (~dropped).astype(np.uint8)


def relu_gradient(diff_dst: ArrayLike, workspace: ArrayLike) -> Array:
    """``diff_dst`` where the fused relu kept the result, else 0.

    This is what the normalization passes back to the second source: diff_src_1.
    """
    return np.where(np.asarray(workspace) != 0, f64(diff_dst), 0.0)


@np.errstate(all="ignore")
def batch_normalization_backward(
    src: ArrayLike,
    diff_dst: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    scale: ArrayLike | None = None,
    *,
    epsilon: float,
    global_stats: bool = False,
    workspace: ArrayLike | None = None,
) -> tuple[Array, Array, Array]:
    """Return diff_src [N, C, spatial...], diff_scale [C] and diff_shift [C].

    The statistics are functions of ``src``, or constants with ``global_stats``. ``workspace`` is
    that of a fused relu.
    """
    data = f64(src)
    axes = _channel_axes(data)
    normalized = _normalized(data, mean, variance, epsilon)
    gradient = f64(diff_dst) if workspace is None else relu_gradient(diff_dst, workspace)
    diff_scale = np.sum(gradient * normalized, axis=axes)
    diff_shift = np.sum(gradient, axis=axes)
    if scale is not None:
        gradient = gradient * _per_channel(scale, data)
    if not global_stats:
        gradient = through_statistics(gradient, normalized, axes, centred=True)
    deviation = np.sqrt(_per_channel(variance, data) + epsilon)
    return np.asarray(gradient / deviation), diff_scale, diff_shift


def _normalized(data: Array, mean: ArrayLike, variance: ArrayLike, epsilon: float) -> Array:
    deviation = np.sqrt(_per_channel(variance, data) + epsilon)
    return np.asarray((data - _per_channel(mean, data)) / deviation)


def _channel_axes(data: Array) -> tuple[int, ...]:
    """All axes but that of the channels."""
    return (0, *range(2, data.ndim))


def _per_channel(values: ArrayLike, data: Array) -> Array:
    """``values`` [C] along the channels of ``data``."""
    return f64(values).reshape(1, -1, *[1] * (data.ndim - 2))


_THRESHOLD = 6e-7
_POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)


class _BatchNormalization(Specification):
    """Channels whose statistics are exact."""

    def fill(self, desc: Any) -> dict[int, Array]:
        """Deviations in pairs around a mean that is a power of two."""
        src = desc.src_desc
        channels = src.dims[1:2]
        rng = generator("bnorm", src.dims)
        mean = drawn(rng, _POWERS, channels)
        deviation = integers(rng, src.dims, 1, 7) * rng.choice([-1, 1], src.dims) / 4
        deviation.reshape(-1)[1::2] = -deviation.reshape(-1)[: deviation.size - 1 : 2]
        data = mean.reshape(1, -1, *[1] * (src.ndims - 2)) + deviation
        drawn_ones = {
            Arg.VARIANCE: drawn(rng, _POWERS, channels),
            Arg.SCALE: drawn(rng, _POWERS, channels),
            Arg.SHIFT: drawn(rng, _POWERS, channels),
        }
        values = {
            int(Arg.SRC): np.rint(data) if src.data_type.is_integer else data,
            int(Arg.MEAN): mean,
            **{int(argument): numbers for argument, numbers in drawn_ones.items()},
        }
        return {argument: values[argument] for argument, _ in inputs(desc)}

    def compute(self, desc: Any, values: Values) -> dict[int, Array]:
        """The normalization by the given statistics."""
        dst = batch_normalization(
            values[Arg.SRC], values[Arg.MEAN], values[Arg.VARIANCE],
            values.get(Arg.SCALE), values.get(Arg.SHIFT),
            epsilon=desc.epsilon, fuse_relu=NormFlags.fuse_norm_relu in desc.flags,
        )  # fmt: skip
        return {Arg.DST: dst}

    def rule(
        self, desc: Any, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """A few units of the least precise digit, relative to what the shift is added to."""
        threshold = _THRESHOLD * 2.0 ** (24 - desc.src_desc.data_type.digits)
        relu = NormFlags.fuse_norm_relu in desc.flags
        offset = None
        if Arg.SHIFT in values:
            rank = desc.src_desc.ndims
            offset = values[Arg.SHIFT].reshape(1, -1, *[1] * (rank - 2))
        return Rule(threshold, zeros=65 if relu else 30, offset=offset)


SPECIFICATION = _BatchNormalization()
