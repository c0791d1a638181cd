"""What every reference function shares: the array type and the reading of its arguments."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg, coerce

Array = NDArray[np.float64]


def f64(values: ArrayLike | np.ndarray) -> Array:
    """The values as float64, from any type that NumPy or ml_dtypes knows."""
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return np.asarray(values).astype(np.float64)


def overflowed(values: Array, core: DataType) -> Array:
    """The values as arithmetic of the float type ``core`` has them: infinite beyond its largest."""
    return np.where(np.abs(values) > core.max, np.copysign(np.inf, values), values)


def name_of(alg: Alg | str) -> str:
    """The name of an algorithm, given as the member or as the name itself."""
    return coerce(Alg, alg, "alg").name
