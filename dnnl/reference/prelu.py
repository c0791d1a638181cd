"""Parametric relu: dst = src where src > 0, else src * weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.tolerance import EXACT

TOLERANCE = EXACT  # one multiplication


def prelu(src: ArrayLike, weights: ArrayLike) -> Array:
    """``weights`` has the rank of ``src``, each dimension 1 or that of ``src``."""
    data = f64(src)
    return np.where(data > 0, data, data * f64(weights))
