"""Sum: dst = sum over i of scales[i] * srcs[i]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.tolerance import Tolerance

TOLERANCE = Tolerance(ulps=2, growth=1, floor=None)  # length: the number of sources


def sum_(srcs: Sequence[ArrayLike], scales: Sequence[float] | None = None) -> Array:
    """All sources have the same dims; ``scales`` defaults to ones."""
    factors = [1.0] * len(srcs) if scales is None else scales
    dst = np.zeros(np.shape(srcs[0]))
    for src, factor in zip(srcs, factors, strict=True):
        dst = dst + factor * f64(src)
    return dst
