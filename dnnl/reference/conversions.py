"""What storing a value in a data type gives.

A value is first rounded to the type that the computation has, its *core*: f32 nearly always. Then
- to a float: to nearest, ties to even; overflow becomes infinity in f16, bf16 and f8_e5m2, NaN in
  f8_e4m3, and the largest magnitude in f4_e2m1, where infinity and NaN go too;
- to an integer: saturate, then round to nearest, ties to even; in an f32 core s32 saturates at the
  largest f32 below 2^31. Which integer a NaN becomes is unspecified; here it is 0;
- to e8m0: the power of two at or below the magnitude, at least 2^-127; infinity and NaN become NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dnnl.reference.arrays import Array, f64
from dnnl.types.dtype import DataType
from dnnl.types.kinds import coerce

# Types whose values do not all fit in f32; they pass into each other without it.
_WIDE = frozenset({DataType.f64, DataType.s32, DataType.s64, DataType.u32, DataType.u64})
# The largest f32 below 2^31.
S32_CLAMP = 2147483520.0
_F4_MAX = 6.0
_E8M0_MIN = 2.0**-127


def core_type(src: DataType | str, dst: DataType | str) -> DataType:
    """The type that a bare conversion between ``src`` and ``dst`` passes through."""
    pair = {coerce(DataType, src, "src"), coerce(DataType, dst, "dst")}
    exact = pair <= _WIDE or all(kind.is_integer for kind in pair)
    return DataType.f64 if exact else DataType.f32


def convert(
    values: ArrayLike | NDArray[Any], dst: DataType | str, core: DataType | str = DataType.f32
) -> Array:
    """The values, as float64, that ``values`` become when they are stored as ``dst``."""
    data_type = coerce(DataType, dst, "dst")
    data = f64(values)
    with np.errstate(all="ignore"):
        if coerce(DataType, core, "core") is DataType.f32:
            data = data.astype(np.float32).astype(np.float64)
        if data_type.is_integer:
            return _to_integer(data, data_type, core)
        if data_type is DataType.f4_e2m1:
            return _to_f4_e2m1(data, data_type)
        if data_type is DataType.e8m0:
            return _to_e8m0(data)
        return f64(data.astype(data_type.numpy))


def _to_integer(data: Array, data_type: DataType, core: DataType | str) -> Array:
    highest = float(data_type.max)
    if data_type is DataType.s32 and coerce(DataType, core, "core") is DataType.f32:
        highest = S32_CLAMP
    clamped = np.clip(data, float(data_type.min), highest)
    return np.where(np.isnan(clamped), 0.0, np.rint(clamped))


def _to_f4_e2m1(data: Array, data_type: DataType) -> Array:
    finite = np.where(np.isnan(data), np.copysign(_F4_MAX, data), data)
    return f64(np.clip(finite, -_F4_MAX, _F4_MAX).astype(data_type.numpy))


def _to_e8m0(data: Array) -> Array:
    magnitude = np.maximum(np.abs(data), _E8M0_MIN)
    _, exponent = np.frexp(magnitude)
    power = np.ldexp(1.0, np.where(np.isfinite(magnitude), exponent - 1, 0))
    return np.where(np.isfinite(magnitude), power, np.nan)
