"""Stochastic rounding: to one of the two neighbours of a narrower float, at random."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.dropout import random_bits
from dnnl.types.dtype import DataType

_LEAST = {
    DataType.bf16: 2.0**-126, DataType.f16: 2.0**-14, DataType.f8_e5m2: 2.0**-14,
    DataType.f8_e4m3: 2.0**-6,
}  # fmt: skip


def rounded(values: ArrayLike, data_type: DataType, seed: int) -> Array:
    """The values, in f32, as a float of the type: random digits are added to those that it drops,
    which then are dropped. What is beyond the largest number becomes that, what would be denormal
    zero. Other types have no effect."""
    result = f64(values)
    if data_type not in _LEAST:
        return result
    single = result.astype(np.float32)
    dropped = np.uint32((1 << DataType.f32.digits - data_type.digits) - 1)
    bits = random_bits(single.size, seed).reshape(single.shape).astype(np.uint32)
    codes = (single.view(np.uint32) + (bits & dropped)) & ~dropped
    made = np.clip(f64(codes.view(np.float32)), -data_type.max, data_type.max)
    made = np.where(np.abs(made) < _LEAST[data_type], 0.0, made)
    return np.where(np.isnan(result), result, made)
