"""Concatenation along one dimension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.tolerance import EXACT

TOLERANCE = EXACT


def concat(srcs: Sequence[ArrayLike], axis: int) -> Array:
    """The sources agree in every dimension but ``axis``."""
    return np.concatenate([f64(src) for src in srcs], axis=axis)
