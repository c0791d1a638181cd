"""Scales and zero points: a stored x stands for scale * (x - zero_point).

Parameters come in the form of an attribute: a mask whose bit d is set where they vary along logical
dimension d, and groups that the last two dimensions may be split into.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64


def parameter_dims(dims: Sequence[int], mask: int, groups: Sequence[int] = ()) -> tuple[int, ...]:
    """The dims of the parameter tensor: 1 where unmasked, the extent or its groups where masked."""
    sizes = [1] * (len(dims) - len(groups)) + list(groups)
    return tuple(
        extent // size if mask >> d & 1 else 1
        for d, (extent, size) in enumerate(zip(dims, sizes, strict=True))
    )


def expand(
    parameters: ArrayLike, dims: Sequence[int], mask: int, groups: Sequence[int] = ()
) -> Array:
    """The parameters as an array of full ``dims``, one for each element of the tensor."""
    shape = parameter_dims(dims, mask, groups)
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
