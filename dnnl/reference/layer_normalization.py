"""Layer normalization: dst = scale * (src - mean) / sqrt(variance + epsilon) + shift.

Each row along the last dimension has its own mean and variance. Of the root mean square kind
(``rms``) no mean is subtracted and the variance is the mean of the squares.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.normalization import mean_over, moments, through_statistics
from dnnl.reference.tolerance import PRODUCT_SUM, Tolerance

# With given statistics, those in memory included that the same kernel computed; length: 1.
TOLERANCE = Tolerance(ulps=8, floor=None)
# length: the extent of a row.
STATISTICS_TOLERANCE = PRODUCT_SUM
# Of dst where the kernel keeps its statistics to itself. The error of the mean counts in units of
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
