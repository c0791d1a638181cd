"""Scales and zero points: a stored x means scale * (x - zero_point)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.conversions import convert
from dnnl.types.dtype import DataType
from dnnl.types.kinds import QuantizationMode
from dnnl.types.scales import ScaleSpec


def expand(parameters: ArrayLike, dims: Sequence[int], spec: ScaleSpec) -> Array:
    """Scales or zero points of a tensor of ``dims``, one for each of its elements.

    ``parameters`` are those of the execution argument: row-major, of ``spec.shape(dims)``.
    """
    shape = spec.shape(dims)
    values = f64(parameters).reshape(shape)
    for axis, (extent, have) in enumerate(zip(dims, shape, strict=True)):
        values = np.repeat(values, extent // have if have else 1, axis=axis)
    return values


def computed_scales(values: ArrayLike, spec: ScaleSpec, data_type: DataType) -> Array:
    """The scales, of ``spec.shape``, that an execution computes for a dst of ``data_type``."""
    dims = np.shape(values)
    size = spec.groups[-1]
    magnitudes = np.abs(convert(values, DataType.f32)).reshape(*dims[:-1], dims[-1] // size, size)
    largest = np.fmin(np.fmax.reduce(magnitudes, axis=-1, initial=0.0), float(DataType.f32.max))
    if spec.mode is QuantizationMode.dynamic_mx:
        return convert(largest / 2.0 ** np.floor(np.log2(data_type.max)), DataType.e8m0)
    quotients = np.fmin(largest / data_type.max, float(spec.data_type.max))
    return convert(quotients, spec.data_type)


def quantize_computed(values: ArrayLike, scale: ArrayLike, data_type: DataType) -> Array:
    """values / scale within the limits of ``data_type``; 0 where a scale is 0."""
    limit, scales = float(data_type.max), f64(scale)
    with np.errstate(all="ignore"):
        return np.where(scales == 0, 0.0, np.clip(f64(values) / scales, -limit, limit))


def dequantize(stored: ArrayLike, scale: ArrayLike = 1.0, zero_point: ArrayLike = 0.0) -> Array:
    """scale * (stored - zero_point), all broadcast."""
    with np.errstate(over="ignore"):
        return f64(scale) * (f64(stored) - f64(zero_point))


def quantize(values: ArrayLike, scale: ArrayLike = 1.0, zero_point: ArrayLike = 0.0) -> Array:
    """values / scale + zero_point, all broadcast; ``conversions.convert`` then rounds."""
    with np.errstate(over="ignore"):
        return f64(values) / f64(scale) + f64(zero_point)
