"""Matrix product: dst[.., m, n] = bias + sum over k of src[.., m, k] * weights[.., k, n]."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.tolerance import PRODUCT_SUM

TOLERANCE = PRODUCT_SUM  # length: K


def matmul(src: ArrayLike, weights: ArrayLike, bias: ArrayLike | None = None) -> Array:
    """All operands have the same rank; batch dimensions of 1 broadcast, both ways.

    Each dimension of ``bias`` is 1 or that of the result.
    """
    dst: Array = np.matmul(f64(src), f64(weights))
    return dst if bias is None else dst + f64(bias)
