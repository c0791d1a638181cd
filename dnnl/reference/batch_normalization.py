"""Batch normalization: dst = scale * (src - mean) / sqrt(variance + epsilon) + shift."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.tolerance import Tolerance

TOLERANCE = Tolerance(ulps=8, floor=None)


def batch_normalization(
    src: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    scale: ArrayLike | None = None,
    shift: ArrayLike | None = None,
    *,
    epsilon: float,
    fuse_relu: bool = False,
) -> Array:
    """With given statistics: ``src`` [N, C, spatial...], all others [C]."""
    data = f64(src)
    per_channel = (1, -1, *[1] * (data.ndim - 2))
    deviation = np.sqrt(f64(variance) + epsilon).reshape(per_channel)
    dst: Array = (data - f64(mean).reshape(per_channel)) / deviation
    if scale is not None:
        dst = dst * f64(scale).reshape(per_channel)
    if shift is not None:
        dst = dst + f64(shift).reshape(per_channel)
    return np.maximum(dst, 0.0) if fuse_relu else dst
