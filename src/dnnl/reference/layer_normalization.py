"""Layer normalization: dst = scale * (src - mean) / sqrt(variance + epsilon) + shift.

Each row along the last dimension has its own mean and variance. Of the root mean square kind
(``rms``) no mean is subtracted and the variance is the mean of the squares.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import drawn, generator, integers
from dnnl.reference.normalization import mean_over, moments, paired, through_statistics
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values, inputs, zero_limit
from dnnl.reference.tolerance import PRODUCT_SUM, Tolerance
from dnnl.types.arg import Arg
from dnnl.types.kinds import NormFlags

# With given statistics, those in memory included that the same kernel computed; length: 1.
TOLERANCE = Tolerance(ulps=8, floor=None)
# length: the extent of a row.
STATISTICS_TOLERANCE = PRODUCT_SUM
# Of dst where the kernel does not return its statistics. The error of the mean counts in units of
# the deviation, so the mean must not be many times as large.
TRAINING_TOLERANCE = TOLERANCE.after(STATISTICS_TOLERANCE)
# With the statistics in memory, rounded. The gradient of two or three elements cancels wholly.
DIFF_SRC_TOLERANCE = Tolerance(ulps=32, growth=2, floor=None)
# length: the number of rows.
DIFF_SCALE_TOLERANCE = Tolerance(ulps=8, growth=2, floor=None)

_ROW = (-1,)


@np.errstate(all="ignore")
def statistics(src: ArrayLike, *, rms: bool = False) -> tuple[Array, Array]:
    """The mean and the population variance of each row: the dims of ``src`` without the last.

    With ``rms`` the mean, which nothing uses, is 0, and the variance is the mean of the squares.
    """
    data = f64(src)
    mean, variance = moments(data, _ROW)
    if rms:
        mean, variance = np.zeros_like(mean), mean_over(data**2, _ROW)
    return mean[..., 0], variance[..., 0]


@np.errstate(all="ignore")
def layer_normalization(
    src: ArrayLike,
    mean: ArrayLike | None,
    variance: ArrayLike,
    scale: ArrayLike | None = None,
    shift: ArrayLike | None = None,
    *,
    epsilon: float,
    rms: bool = False,
) -> Array:
    """``src`` [..., C], ``mean`` and ``variance`` [...], ``scale`` and ``shift`` [C].

    The statistics are those of :func:`statistics`, or given ones. ``rms`` ignores ``mean``.
    """
    dst = _normalized(src, mean, variance, epsilon, rms)
    if scale is not None:
        dst = dst * f64(scale)
    if shift is not None:
        dst = dst + f64(shift)
    return dst


@np.errstate(all="ignore")
def layer_normalization_backward(
    src: ArrayLike,
    diff_dst: ArrayLike,
    mean: ArrayLike | None,
    variance: ArrayLike,
    scale: ArrayLike | None = None,
    *,
    epsilon: float,
    global_stats: bool = False,
    rms: bool = False,
) -> tuple[Array, Array, Array]:
    """Return diff_src [..., C], diff_scale [C] and diff_shift [C].

    The statistics are functions of ``src``, or constants with ``global_stats``.
    """
    normalized = _normalized(src, mean, variance, epsilon, rms)
    gradient = f64(diff_dst)
    rows = tuple(range(gradient.ndim - 1))
    diff_scale = np.sum(gradient * normalized, axis=rows)
    diff_shift = np.sum(gradient, axis=rows)
    if scale is not None:
        gradient = gradient * f64(scale)
    if not global_stats:
        gradient = through_statistics(gradient, normalized, _ROW, centred=not rms)
    return gradient / _deviation(variance, epsilon), diff_scale, diff_shift


def _normalized(
    src: ArrayLike, mean: ArrayLike | None, variance: ArrayLike, epsilon: float, rms: bool
) -> Array:
    centre = 0.0 if rms or mean is None else f64(mean)[..., np.newaxis]
    return np.asarray((f64(src) - centre) / _deviation(variance, epsilon))


def _deviation(variance: ArrayLike, epsilon: float) -> Array:
    return np.asarray(np.sqrt(f64(variance) + epsilon)[..., np.newaxis])


_THRESHOLD, _SUM_THRESHOLD = 5e-7, 5e-6
_POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)
_LARGEST = 7
_ARGUMENTS = (Arg.SRC, Arg.MEAN, Arg.VARIANCE, Arg.SCALE, Arg.SHIFT)
_DIGITS = 8
"""Fewer do not hold quarters with a mean of 4."""


class _LayerNormalization(Specification):
    """Rows whose statistics are exact in types of `_DIGITS` digits."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Deviations in pairs, and three at an odd end, around a mean that is a power of two."""
        src = desc.src_desc
        rng = generator("lnorm", src.dims)
        deviation = paired(rng, src.dims, _LARGEST)
        if src.data_type.is_integer:
            data = deviation + _LARGEST + 1
        else:
            data = deviation / 4 + drawn(rng, _POWERS, (*src.dims[:-1], 1))
        mean, variance = statistics(data, rms=NormFlags.rms_norm in desc.flags)
        values = {
            int(Arg.SRC): data,
            int(Arg.MEAN): mean,
            int(Arg.VARIANCE): variance,
            int(Arg.SCALE): drawn(rng, _POWERS, src.dims[-1:]),
            int(Arg.SHIFT): drawn(rng, _POWERS, src.dims[-1:]),
            int(Arg.DIFF_DST): integers(rng, src.dims, -_LARGEST, _LARGEST) / 4,
        }
        return {argument: values[argument] for argument, _ in inputs(desc)}

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The result with the statistics that it was made of, or all gradients."""
        src, mean, variance, scale, shift = (values.get(argument) for argument in _ARGUMENTS)
        assert src is not None
        rms = NormFlags.rms_norm in desc.flags
        if not desc.propagation.is_forward:
            gradients = layer_normalization_backward(
                src,
                values[Arg.DIFF_DST],
                mean,
                values[Arg.VARIANCE],
                scale,
                epsilon=desc.epsilon,
                global_stats=NormFlags.use_global_stats in desc.flags,
                rms=rms,
            )
            return dict(zip((Arg.DIFF_SRC, Arg.DIFF_SCALE, Arg.DIFF_SHIFT), gradients, strict=True))
        if variance is None:
            mean, variance = statistics(src, rms=rms)
        dst = layer_normalization(src, mean, variance, scale, shift, epsilon=desc.epsilon, rms=rms)
        made = {int(Arg.DST): dst, int(Arg.VARIANCE): variance}
        return made if mean is None else {**made, Arg.MEAN: mean}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """A few units of the least precise digit: of dst relative to the shift, which may cancel,
        of gradients relative to the terms of which they are made. Statistics are exact where
        src holds what it is filled with."""
        if argument in (Arg.MEAN, Arg.VARIANCE):
            src = desc.src_desc
            if not src.data_type.is_float or src.data_type.digits >= _DIGITS:
                return Rule(0.0)
            return Rule(STATISTICS_TOLERANCE("f32", src.dims[-1]).relative)
        data_type = desc.desc_of(argument).data_type
        coarse = 2.0 ** (24 - data_type.digits) if data_type.is_float else 1.0
        if argument == Arg.DST:
            shift = values.get(Arg.SHIFT)
            size = None if shift is None else np.abs(shift)
            return Rule(_THRESHOLD * coarse, zeros=zero_limit(data_type), size=size)
        gradient = values[Arg.DIFF_DST]
        if argument == Arg.DIFF_SRC:
            size = np.abs(gradient * values.get(Arg.SCALE, 1.0))
            size = size / _deviation(values[Arg.VARIANCE], desc.epsilon)
            return Rule(_THRESHOLD * coarse, size=size + mean_over(size, _ROW))
        if argument == Arg.DIFF_SCALE:
            mean, rms = values.get(Arg.MEAN), NormFlags.rms_norm in desc.flags
            variance = values[Arg.VARIANCE]
            normalized = _normalized(values[Arg.SRC], mean, variance, desc.epsilon, rms)
            gradient = gradient * normalized
        rows = tuple(range(gradient.ndim - 1))
        return Rule(_SUM_THRESHOLD * coarse, size=np.sqrt(np.sum(gradient**2, axis=rows)))


SPECIFICATION = _LayerNormalization()
