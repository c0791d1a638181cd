"""Group normalization: dst = scale * (src - mean) / sqrt(variance + epsilon) + shift.

The channels of each image form groups of equally many neighbours. Each group of each image has
its own mean and variance, over its channels and the spatial dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import drawn, generator, integers, stored
from dnnl.reference.normalization import mean_over, moments, paired, through_statistics
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values, inputs, zero_limit
from dnnl.reference.tolerance import PRODUCT_SUM, Tolerance
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import NormFlags

# With given statistics, those in memory included that the same kernel computed; length: 1.
TOLERANCE = Tolerance(ulps=8, floor=None)
# length: the number of elements of a group.
STATISTICS_TOLERANCE = PRODUCT_SUM
# Of dst where the kernel does not return its statistics. The error of the mean counts in units of
# the deviation, so the mean must not be many times as large.
TRAINING_TOLERANCE = TOLERANCE.after(STATISTICS_TOLERANCE)
# With the statistics in memory, rounded. The gradient of two or three elements cancels wholly.
DIFF_SRC_TOLERANCE = Tolerance(ulps=32, growth=2, floor=None)
# length: the number of elements of a channel.
DIFF_SCALE_TOLERANCE = Tolerance(ulps=8, growth=2, floor=None)

_GROUP = (2,)


@np.errstate(all="ignore")
def statistics(src: ArrayLike, groups: int) -> tuple[Array, Array]:
    """The mean [N, groups] and the population variance [N, groups] of ``src`` [N, C,
    spatial...]."""
    mean, variance = moments(_grouped(f64(src), groups), _GROUP)
    return mean[..., 0], variance[..., 0]


@np.errstate(all="ignore")
def group_normalization(
    src: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    scale: ArrayLike | None = None,
    shift: ArrayLike | None = None,
    *,
    epsilon: float,
) -> Array:
    """``src`` [N, C, spatial...], ``mean`` and ``variance`` [N, groups], ``scale`` and ``shift``
    [C].

    The statistics are those of :func:`statistics`, or given ones.
    """
    data = f64(src)
    dst = _normalized(data, f64(mean), f64(variance), epsilon)
    if scale is not None:
        dst = dst * _per_channel(scale, data)
    if shift is not None:
        dst = dst + _per_channel(shift, data)
    return dst


@np.errstate(all="ignore")
def group_normalization_backward(
    src: ArrayLike,
    diff_dst: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    scale: ArrayLike | None = None,
    *,
    epsilon: float,
    global_stats: bool = False,
) -> tuple[Array, Array, Array]:
    """Return diff_src [N, C, spatial...], diff_scale [C] and diff_shift [C].

    The statistics are functions of ``src``, or constants with ``global_stats``.
    """
    data, gradient, spread = f64(src), f64(diff_dst), f64(variance)
    groups, axes = spread.shape[1], (0, *range(2, data.ndim))
    normalized = _normalized(data, f64(mean), spread, epsilon)
    diff_scale = np.sum(gradient * normalized, axis=axes)
    diff_shift = np.sum(gradient, axis=axes)
    if scale is not None:
        gradient = gradient * _per_channel(scale, data)
    grouped = _grouped(gradient, groups)
    if not global_stats:
        grouped = through_statistics(grouped, _grouped(normalized, groups), _GROUP, centred=True)
    diff_src = grouped / np.sqrt(spread + epsilon)[..., np.newaxis]
    return diff_src.reshape(data.shape), diff_scale, diff_shift


def _grouped(data: Array, groups: int) -> Array:
    """The elements of each group along one dimension: [N, groups, elements]."""
    images, channels, *space = data.shape
    return data.reshape(images, groups, channels // groups * prod(space))


def _normalized(data: Array, mean: Array, variance: Array, epsilon: float) -> Array:
    grouped = _grouped(data, mean.shape[1]) - mean[..., np.newaxis]
    deviation = np.sqrt(variance + epsilon)[..., np.newaxis]
    return np.asarray((grouped / deviation).reshape(data.shape))


def _per_channel(values: ArrayLike, data: Array) -> Array:
    """``values`` [C] along the channels of ``data``."""
    return f64(values).reshape(1, -1, *[1] * (data.ndim - 2))


def _per_group(values: Array, data: Array) -> Array:
    """``values`` [N, groups] at each element of ``data``."""
    shape = _grouped(data, values.shape[1]).shape
    return np.broadcast_to(values[..., np.newaxis], shape).reshape(data.shape)


_THRESHOLD, _SUM_THRESHOLD = 6e-7, 5e-6
# Of statistics that are merged from parts: sums are of differences from the means of parts, which
# are not exact.
_STATISTICS = Tolerance(ulps=4, growth=0.25)
_POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)
_LARGEST = 7
_LEARNED = {Arg.SCALE: NormFlags.use_scale, Arg.SHIFT: NormFlags.use_shift}


class _GroupNormalization(Specification):
    """Groups whose statistics are exact."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Deviations in pairs, and three at an odd end, around a mean that is a power of two."""
        src = desc.src_desc
        dims, groups = src.dims, desc.groups
        rng = generator("gnorm", dims)
        shape = _grouped(np.empty(dims), groups).shape
        deviation = rng.permuted(paired(rng, shape, _LARGEST), axis=2)
        if src.data_type.is_integer:
            data = deviation + _LARGEST + 1
        else:
            data = deviation / 4 + drawn(rng, _POWERS, (*shape[:2], 1))
        data = data.reshape(dims)
        mean, variance = (stored(values, DataType.f32) for values in statistics(data, groups))
        values = {
            int(Arg.SRC): data,
            int(Arg.MEAN): mean,
            int(Arg.VARIANCE): variance,
            int(Arg.SCALE): drawn(rng, _POWERS, dims[1:2]),
            int(Arg.SHIFT): drawn(rng, _POWERS, dims[1:2]),
            int(Arg.DIFF_DST): integers(rng, dims, -_LARGEST, _LARGEST) / 4,
        }
        return {argument: values[argument] for argument, _ in inputs(desc)}

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The result with the statistics that it was made of, or all gradients."""
        src, scale = values[Arg.SRC], values.get(Arg.SCALE)
        mean, variance = _statistics(desc, values)
        if not desc.propagation.is_forward:
            gradients = group_normalization_backward(
                src,
                values[Arg.DIFF_DST],
                mean,
                variance,
                scale,
                epsilon=desc.epsilon,
                global_stats=NormFlags.use_global_stats in desc.flags,
            )
            return dict(zip((Arg.DIFF_SRC, Arg.DIFF_SCALE, Arg.DIFF_SHIFT), gradients, strict=True))
        dst = group_normalization(
            src, mean, variance, scale, values.get(Arg.SHIFT), epsilon=desc.epsilon
        )
        return {int(Arg.DST): dst, int(Arg.MEAN): mean, int(Arg.VARIANCE): variance}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """A few units of the least precise digit: of dst relative to the terms that may cancel, of
        gradients relative to those of which they are made."""
        src = values[Arg.SRC]
        size = src[:1, : src.shape[1] // desc.groups].size
        data_type = desc.desc_of(argument).data_type
        computed = _STATISTICS(data_type, size).relative
        if argument in (Arg.MEAN, Arg.VARIANCE):
            # The variance of a single element is zero, and no mean is.
            alone = argument == Arg.VARIANCE and size < 2
            return Rule(computed, zeros=100 if alone else 0)
        coarse = 2.0 ** (24 - data_type.digits) if data_type.is_float else 1.0
        mean, variance = _statistics(desc, values)
        factor = np.abs(_per_channel(values.get(Arg.SCALE, np.ones(src.shape[1])), src))
        factor = factor / np.sqrt(_per_group(variance, src) + desc.epsilon)
        if argument == Arg.DST:
            given, means = Arg.MEAN in values, _per_group(mean, src)
            largest = np.maximum(np.abs(src - means), 0.0 if given else np.abs(means)) * factor
            shift = np.abs(_per_channel(values.get(Arg.SHIFT, np.zeros(src.shape[1])), src))
            threshold = _THRESHOLD * coarse + (0.0 if given else computed)
            size = np.maximum(largest, shift)
            return Rule(threshold, zeros=zero_limit(data_type), size=size)
        gradient = np.abs(values[Arg.DIFF_DST])
        if argument == Arg.DIFF_SRC:
            terms_of = _grouped(gradient * factor, desc.groups)
            largest = terms_of + mean_over(terms_of, _GROUP)
            return Rule(_THRESHOLD * coarse, size=largest.reshape(src.shape))
        if argument == Arg.DIFF_SCALE:
            gradient = gradient * _normalized(src, mean, variance, desc.epsilon)
        axes = (0, *range(2, src.ndim))
        return Rule(_SUM_THRESHOLD * coarse, size=np.sqrt(np.sum(gradient**2, axis=axes)))


def _statistics(desc: Description, values: Values) -> tuple[Array, Array]:
    """Those among ``values``, or else those of src."""
    if Arg.MEAN in values:
        return values[Arg.MEAN], values[Arg.VARIANCE]
    return statistics(values[Arg.SRC], desc.groups)


SPECIFICATION = _GroupNormalization()
