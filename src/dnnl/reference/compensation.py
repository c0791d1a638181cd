"""Compensation: sums of quantized weights, which correct a convolution for its source.

C = -128 * sum(w) for s8s8, Z = -sum(w) for zero points, in s32: modulo 2**32, as the sums of a
convolution that they are added to.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FACTORS = {"s8s8": -128, "zero_points": -1}


def compensation(kind: str, weights: ArrayLike, mask: int) -> NDArray[np.int32]:
    """The sums ``kind`` of the weights as they are stored.

    Bit ``d`` of ``mask`` retains dimension ``d``; the others are summed over and have size 1.
    """
    stored = np.asarray(weights).astype(np.int64)
    axes = tuple(axis for axis in range(stored.ndim) if not mask >> axis & 1)
    sums = FACTORS[kind] * stored.sum(axis=axes, keepdims=True)
    wrapped: NDArray[np.int32] = np.asarray(sums).astype(np.int32)
    return wrapped
