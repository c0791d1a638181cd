"""Batch normalization: dst = scale * (src - mean) / sqrt(variance + epsilon) + shift.

Each channel has its own mean and variance, over the batch and the spatial dimensions. A fused relu
follows, before which a second source may be added.

The workspace of a fused relu has the dims of dst and the type u8: 1 where the relu passed the
result, 0 where it put 0 instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import drawn, generator, integers, stored
from dnnl.reference.normalization import moments, through_statistics
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values, inputs, zero_limit
from dnnl.reference.tolerance import PRODUCT_SUM, Tolerance
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import NormFlags
from dnnl.types.memory_desc import MemoryDesc

# With given statistics, those in memory included that the same kernel computed; length: 1.
TOLERANCE = Tolerance(ulps=8, floor=None)
# length: the number of elements of a channel.
STATISTICS_TOLERANCE = PRODUCT_SUM
# Of dst where the kernel does not return its statistics. The error of the mean counts in units of
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
    """The workspace of a fused relu with the result ``dst``, before post-ops; it passes NaN."""
    dropped = f64(dst) <= 0
    return (~dropped).astype(np.uint8)


def relu_gradient(diff_dst: ArrayLike, workspace: ArrayLike) -> Array:
    """``diff_dst`` where the fused relu passed the result, else 0.

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


_THRESHOLD, _SUM_THRESHOLD = 6e-7, 5e-6
# Of statistics of the batch: where they are shared out, sums are of differences from the means of
# parts, which are not exact.
_STATISTICS = Tolerance(ulps=4, growth=0.25)
# Below so much of its terms a result of the normalization may have any sign.
_CANCELLED = 1e-5
_POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)
# What there is with a flag alone.
_FLAGS = {
    Arg.SCALE: NormFlags.use_scale,
    Arg.SHIFT: NormFlags.use_shift,
    Arg.SRC_1: NormFlags.fuse_norm_add_relu,
}


class _BatchNormalization(Specification):
    """Channels whose statistics are exact."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Deviations in pairs around a mean that is a power of two; gradients that are whole. For
        a backward pass, what its forward pass alone reads as well."""
        src = desc.src_desc
        rng = generator("bnorm", src.dims)
        mean, variance, scale, shift = (drawn(rng, _POWERS, src.dims[1:2]) for _ in range(4))
        deviation = _paired(rng, src.dims)
        if src.data_type.is_integer:
            mean, variance, deviation = 4 * mean, variance / 4, 4 * deviation
        data = _per_channel(mean, deviation) + deviation
        added, gradient = (
            integers(rng, src.dims, 1, 8) * rng.choice([-1, 1], src.dims) for _ in range(2)
        )
        if not desc.propagation.is_forward and NormFlags.use_global_stats not in desc.flags:
            mean, variance = (stored(values, DataType.f32) for values in statistics(data))
        values = {
            int(Arg.SRC): data,
            int(Arg.DIFF_DST): gradient,
            int(Arg.MEAN): mean,
            int(Arg.VARIANCE): variance,
        }
        optional = {Arg.SCALE: scale, Arg.SHIFT: shift, Arg.SRC_1: added}
        values |= {int(a): optional[a] for a, flag in _FLAGS.items() if flag in desc.flags}
        if desc.fused_relu and not desc.propagation.is_forward:
            values[Arg.WORKSPACE] = f64(relu_workspace(_before_relu(desc, values)))
        wanted = {argument for argument, _ in inputs(desc)}
        if not desc.propagation.is_forward:
            wanted |= values.keys() & {Arg.SHIFT, Arg.SRC_1}
        return {argument: values[argument] for argument in wanted}

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """Forward with the statistics, given or computed, and the workspace; or the gradients."""
        if not desc.propagation.is_forward:
            return self._gradients(desc, values)
        known = _with_statistics(values)
        dst = _before_relu(desc, known)
        outputs = {
            Arg.DST: np.maximum(dst, 0.0) if desc.fused_relu else dst,
            Arg.MEAN: known[Arg.MEAN],
            Arg.VARIANCE: known[Arg.VARIANCE],
            Arg.WORKSPACE: f64(relu_workspace(dst)),
        }
        return {tensor.argument: outputs[Arg(tensor.argument)] for tensor in desc.outputs}

    @staticmethod
    def _gradients(desc: Description, values: Values) -> dict[int, Array]:
        workspace, gradient = values.get(Arg.WORKSPACE), values[Arg.DIFF_DST]
        diff_src, diff_scale, diff_shift = batch_normalization_backward(
            values[Arg.SRC],
            gradient,
            values[Arg.MEAN],
            values[Arg.VARIANCE],
            values.get(Arg.SCALE),
            epsilon=desc.epsilon,
            global_stats=NormFlags.use_global_stats in desc.flags,
            workspace=workspace,
        )
        passed = gradient if workspace is None else relu_gradient(gradient, workspace)
        outputs = {
            Arg.DIFF_SRC: diff_src,
            Arg.DIFF_SCALE: diff_scale,
            Arg.DIFF_SHIFT: diff_shift,
            Arg.DIFF_SRC_1: passed,
        }
        return {tensor.argument: outputs[Arg(tensor.argument)] for tensor in desc.outputs}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """A few units of the least precise digit, relative to the terms that cancel."""
        kind = desc.desc_of(argument).data_type
        unit = 2.0 ** (24 - min(map(_digits, (desc.src_desc.data_type, kind))))
        if argument in (Arg.MEAN, Arg.VARIANCE):
            # The variance of a single element is zero, and no mean is.
            alone = argument == Arg.VARIANCE and _channel_size(desc.src_desc) < 2
            return Rule(_statistics_threshold(desc, kind), zeros=100 if alone else 0)
        if argument in (Arg.DIFF_SCALE, Arg.DIFF_SHIFT):
            size = _terms(desc, values)[argument == Arg.DIFF_SCALE]
            return Rule(_SUM_THRESHOLD * unit, zeros=100, size=size)
        zeros = 65 if desc.fused_relu else zero_limit(kind)
        if not desc.propagation.is_forward:
            return Rule(_THRESHOLD * unit, zeros=zeros, size=_terms(desc, values)[2])
        dst, size = _before_relu(desc, _with_statistics(values)), _size(desc, values)
        if argument == Arg.WORKSPACE:
            return Rule(0.0, zeros=100, anything_at=np.abs(dst) <= _CANCELLED * size)
        threshold = _THRESHOLD * unit
        if NormFlags.use_global_stats not in desc.flags:
            threshold += _statistics_threshold(desc, kind)
        return Rule(threshold, zeros=zeros, size=size)


def _digits(kind: DataType) -> int:
    """Those of a float, and those that integers are computed with."""
    return kind.digits if kind.is_float else DataType.f32.digits


def _paired(rng: np.random.Generator, dims: Sequence[int]) -> Array:
    """Quarters that come in pairs of both signs in each channel; one without a partner is 0."""
    batch, channels, *space = dims
    count = batch * prod(space)
    values = integers(rng, (channels, count), 1, 7) / 4
    half = count // 2
    values[:, half : 2 * half] = -values[:, :half]
    values[:, 2 * half :] = 0
    mixed = rng.permuted(values, axis=1).reshape(channels, batch, *space)
    return np.moveaxis(mixed, 0, 1)


def _before_relu(desc: Description, values: Values) -> Array:
    """The result of the forward pass with the statistics among ``values``, without its relu."""
    scale, shift, added = (values.get(argument) for argument in _FLAGS)
    return batch_normalization(
        values[Arg.SRC],
        values[Arg.MEAN],
        values[Arg.VARIANCE],
        scale,
        shift,
        epsilon=desc.epsilon,
        added=added,
    )


def _with_statistics(values: Values) -> Values:
    """``values``, and where statistics are not among them, those of src."""
    mean, variance = statistics(values[Arg.SRC])
    return {Arg.MEAN: mean, Arg.VARIANCE: variance, **values}


def _size(desc: Description, values: Values) -> Array:
    """How large the largest term of the result of the forward pass is, where the mean that was
    subtracted is one that was not known exactly."""
    known = _with_statistics(values)
    data = values[Arg.SRC]
    deviation = np.sqrt(known[Arg.VARIANCE] + desc.epsilon)
    factor = _per_channel(np.abs(known.get(Arg.SCALE, 1.0)) / deviation, data)
    mean = _per_channel(known[Arg.MEAN], data)
    size = np.abs(data - mean)
    if NormFlags.use_global_stats not in desc.flags:
        size = np.maximum(size, np.abs(mean))
    return np.maximum(factor * size, np.abs(known.get(Arg.SRC_1, 0.0)))


def _statistics_threshold(desc: Description, kind: DataType) -> float:
    """What is accepted of statistics of the batch, or of a result of ``kind`` made with them."""
    return _STATISTICS(kind, _channel_size(desc.src_desc)).relative


def _channel_size(src: MemoryDesc) -> int:
    """How many elements a channel has."""
    return src.nelems() // max(1, src.dims[1])


def _terms(desc: Description, values: Values) -> tuple[Array, Array, Array]:
    """The total magnitude of the terms that the gradients of shift, scale and src are sums of."""
    data, gradient = values[Arg.SRC], np.abs(values[Arg.DIFF_DST])
    normalized = np.abs(_normalized(data, values[Arg.MEAN], values[Arg.VARIANCE], desc.epsilon))
    axes, count = _channel_axes(data), max(1, data.size // max(1, data.shape[1]))
    by_shift, by_scale = gradient.sum(axes), (gradient * normalized).sum(axes)
    factor = np.abs(values.get(Arg.SCALE, 1.0)) / np.sqrt(values[Arg.VARIANCE] + desc.epsilon)
    along = normalized * _per_channel(by_scale / count, data)
    inner = gradient + _per_channel(by_shift / count, data) + along
    return by_shift, by_scale, inner * _per_channel(factor, data)


SPECIFICATION = _BatchNormalization()
