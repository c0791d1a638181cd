"""Element by element operations on two tensors that broadcast both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64, name_of
from dnnl.reference.tolerance import EXACT
from dnnl.types.kinds import Alg

TOLERANCE = EXACT  # one IEEE operation, comparisons included

_FUNCTIONS: dict[str, Callable[[Array, Array], Any]] = {
    "binary_add": np.add,
    "binary_sub": np.subtract,
    "binary_mul": np.multiply,
    "binary_div": np.divide,
    "binary_max": np.maximum,
    "binary_min": np.minimum,
    "binary_ge": np.greater_equal,
    "binary_gt": np.greater,
    "binary_le": np.less_equal,
    "binary_lt": np.less,
    "binary_eq": np.equal,
    "binary_ne": np.not_equal,
}
ALGS = (*_FUNCTIONS, "binary_select")


def binary(
    alg: Alg | str, src0: ArrayLike, src1: ArrayLike, src2: ArrayLike | None = None
) -> Array:
    """``src0 alg src1``; a comparison gives 1 or 0, ``select`` gives ``src2 ? src0 : src1``.

    The sources have the same rank and a dimension of 1 broadcasts; ``src2`` has the result's dims.
    """
    name = name_of(alg)
    left, right = f64(src0), f64(src1)
    if name == "binary_select":
        if src2 is None:
            raise TypeError("binary_select needs src2")
        return np.where(np.asarray(src2) != 0, left, right)
    with np.errstate(all="ignore"):
        return f64(_FUNCTIONS[name](left, right))
