"""Parametric relu: dst = src where src > 0, else src * weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.tolerance import EXACT, PRODUCT_SUM

TOLERANCE = EXACT  # one multiplication
DIFF_SRC_TOLERANCE = EXACT
# length: the number of elements that share a weight.
DIFF_WEIGHTS_TOLERANCE = PRODUCT_SUM


def prelu(src: ArrayLike, weights: ArrayLike) -> Array:
    """``weights`` has the rank of ``src``, each dimension 1 or that of ``src``."""
    data = f64(src)
    return np.where(data > 0, data, data * f64(weights))


def prelu_backward(src: ArrayLike, weights: ArrayLike, diff_dst: ArrayLike) -> tuple[Array, Array]:
    """Return diff_src and diff_weights, which have the dims of ``src`` and of ``weights``.

    A weight collects src * diff_dst of those of its elements that are not positive.
    """
    data, factors, gradient = f64(src), f64(weights), f64(diff_dst)
    diff_src = np.where(data > 0, gradient, gradient * factors)
    shares = np.where(data > 0, 0.0, data * gradient)
    shared = tuple(axis for axis, extent in enumerate(factors.shape) if extent == 1)
    return diff_src, np.sum(shares, axis=shared, keepdims=True)
