"""What storing a value in a data type gives.

A value that is computed is first rounded to the type of the computation, its *core*: f32 nearly
always. One that is only converted is not, so that it is rounded once. Then
- to a float: to nearest, ties to even; overflow becomes infinity in f16, bf16 and f8_e5m2, NaN in
  f8_e4m3, and the largest magnitude in f4_e2m1, where infinity and NaN go too;
- to an integer: saturate, then round to nearest, ties to even. Which integer a NaN becomes is
  unspecified; here it is 0;
- to boolean: 0 for zero, 1 for everything else;
- to e8m0: the power of two at or below the magnitude, at least 2^-127; NaN from 2^128 on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dnnl.reference.arrays import Array, f64
from dnnl.types.dtype import DataType
from dnnl.types.kinds import coerce

_F4_MAX = 6.0


def convert(
    values: ArrayLike | np.ndarray, dst: DataType | str, core: DataType | str = DataType.f32
) -> Array:
    """The values, as float64, that ``values`` become when they are stored as ``dst``."""
    data_type = coerce(DataType, dst, "dst")
    data = f64(values)
    with np.errstate(all="ignore"):
        if coerce(DataType, core, "core") is DataType.f32:
            data = data.astype(np.float32).astype(np.float64)
        if data_type.is_integer:
            return _to_integer(data, data_type)
        if data_type is DataType.f4_e2m1:
            return _to_f4_e2m1(data, data_type)
        if data_type is DataType.e8m0:
            return _to_e8m0(data)
        if data_type in (DataType.f32, DataType.f64):
            return f64(data.astype(data_type.numpy))
        return f64(_to_odd_f32(data).astype(data_type.numpy))


def exactly(values: np.ndarray, dst: DataType | str) -> np.ndarray:
    """Integers of any NumPy type, of which f64 may not hold all, as elements of ``dst``."""
    data_type = coerce(DataType, dst, "dst")
    if data_type in (DataType.f32, DataType.f64):
        return values.astype(data_type.numpy)
    if data_type.is_float:
        return convert(_to_odd_f64(values), data_type, DataType.f64).astype(data_type.numpy)
    if data_type is DataType.boolean:
        return np.asarray(values != 0)
    low, high = int(data_type.min), int(data_type.max)
    bounded = [min(max(int(value), low), high) for value in np.ravel(values)]
    return np.array(bounded, object).astype(data_type.numpy).reshape(np.shape(values))


def _to_odd_f32(data: Array) -> NDArray[np.float32]:
    """f32 whose last bit is set where they are not ``data``, so that what is rounded afterwards
    to fewer digits is rounded as ``data`` are."""
    nearest = data.astype(np.float32)
    toward = np.nextafter(nearest, np.float32(0))
    cut = np.where(np.abs(f64(nearest)) > np.abs(data), toward, nearest)
    lost = np.isfinite(data) & (f64(nearest) != data)
    return np.asarray((cut.view(np.uint32) | lost).view(np.float32))


def _to_odd_f64(values: np.ndarray) -> Array:
    """The same of integers and f64: those of more than 53 bits lose the last 11."""

    def cut(value: int) -> int:
        return value if abs(value) < 1 << 53 else value >> 11 << 11 | (value % 2048 > 0) << 11

    return np.array([float(cut(int(each))) for each in np.ravel(values)]).reshape(np.shape(values))


def _to_integer(data: Array, data_type: DataType) -> Array:
    if data_type is DataType.boolean:
        return f64(data != 0)
    clamped = np.clip(data, float(data_type.min), float(data_type.max))
    return np.where(np.isnan(clamped), 0.0, np.rint(clamped))


def _to_f4_e2m1(data: Array, data_type: DataType) -> Array:
    finite = np.where(np.isnan(data), np.copysign(_F4_MAX, data), data)
    return f64(_to_odd_f32(np.clip(finite, -_F4_MAX, _F4_MAX)).astype(data_type.numpy))


def _to_e8m0(data: Array) -> Array:
    magnitude = np.clip(np.abs(data), DataType.e8m0.min, DataType.e8m0.max)
    _, exponent = np.frexp(magnitude)
    return np.where(np.abs(data) < 2 * DataType.e8m0.max, np.ldexp(1.0, exponent - 1), np.nan)
