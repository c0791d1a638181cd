"""Scales and zero points: a stored x stands for scale * (x - zero_point)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.types.attr import ScaleSpec


def expand(parameters: ArrayLike, dims: Sequence[int], spec: ScaleSpec) -> Array:
    """Scales or zero points of a tensor of ``dims``, one for each of its elements.

    ``parameters`` are those of the execution argument: row-major, of ``spec.shape(dims)``.
    """
    shape = spec.shape(dims)
    values = f64(parameters).reshape(shape)
    for axis, (extent, have) in enumerate(zip(dims, shape, strict=True)):
        values = np.repeat(values, extent // have if have else 1, axis=axis)
    return values


def dequantize(stored: ArrayLike, scale: ArrayLike = 1.0, zero_point: ArrayLike = 0.0) -> Array:
    """scale * (stored - zero_point), all broadcast."""
    return f64(scale) * (f64(stored) - f64(zero_point))


def quantize(values: ArrayLike, scale: ArrayLike = 1.0, zero_point: ArrayLike = 0.0) -> Array:
    """values / scale + zero_point, all broadcast; ``conversions.convert`` then rounds."""
    return f64(values) / f64(scale) + f64(zero_point)
