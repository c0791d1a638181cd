"""Softmax and its logarithm along one axis, guarded by the row's maximum."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dnnl.errors import InvalidArguments
from dnnl.reference.arrays import Array, f64, name_of
from dnnl.reference.tolerance import Tolerance
from dnnl.types.kinds import Alg

# The exponent s - max is rounded before it is used, so the error of a small term is relative to
# the large ones beside it. length: the extent of the axis.
TOLERANCE = Tolerance(ulps=16, growth=1, floor=None)
BACKWARD_TOLERANCE = Tolerance(ulps=16, growth=2, floor=None)


def softmax(src: ArrayLike, axis: int, alg: Alg | str = "softmax_accurate") -> Array:
    """``softmax_accurate``: e^(s - max) / sum; ``softmax_log``: s - max - ln(sum).

    A row of nothing but -inf has the sum 0, which is replaced by 1.
    """
    name = name_of(alg)
    data = f64(src)
    peak = np.max(data, axis=axis, keepdims=True, initial=-np.inf)
    shifted = data - np.where(peak == -np.inf, 0.0, peak)
    exponentials = np.exp(shifted)
    total = np.sum(exponentials, axis=axis, keepdims=True)
    total = np.where(total == 0.0, 1.0, total)
    if name == "softmax_accurate":
        return exponentials / total
    if name == "softmax_log":
        return shifted - np.log(total)
    raise InvalidArguments("alg", name, "expected a softmax")


@np.errstate(all="ignore")
def softmax_backward(
    dst: ArrayLike, diff_dst: ArrayLike, axis: int, alg: Alg | str = "softmax_accurate"
) -> Array:
    """diff_src from the result ``dst`` of the forward pass.

    ``softmax_accurate``: dst * (diff_dst - sum of diff_dst * dst); ``softmax_log``:
    diff_dst - e^dst * sum of diff_dst.
    """
    name = name_of(alg)
    result, gradient = f64(dst), f64(diff_dst)
    if name == "softmax_accurate":
        total = np.sum(gradient * result, axis=axis, keepdims=True)
        return np.asarray(result * (gradient - total))
    if name == "softmax_log":
        total = np.sum(gradient, axis=axis, keepdims=True)
        return np.asarray(gradient - np.exp(result) * total)
    raise InvalidArguments("alg", name, "expected a softmax")
