"""Elements that are held between bounds."""

from __future__ import annotations

from math import inf
from typing import Any

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Out, Result
from dnnl.ops.call import type_of
from dnnl.ops.elementwise import binary, function
from dnnl.ops.promotion import is_loose
from dnnl.ops.reading import either
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.kinds import Alg
from dnnl.types.layout_input import read_float


def clip(
    x: ArrayLike,
    a_min: ArrayLike | None = None,
    a_max: ArrayLike | None = None,
    out: Out = None,
    *,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
) -> Result:
    """x, held between a_min and a_max, of which one may be None; ``min`` and ``max`` are PyTorch's
    names of them, and NumPy's as well.

    Both are numbers, or arrays that are broadcast. Where a_min is above a_max, the result is a_max.

    >>> clip(np.array([-4.0, 0.5, 4.0], np.float32), -1, 1)
    array([-1. ,  0.5,  1. ], dtype=float32)
    """
    names = "a_min" if min is None else "min", "a_max" if max is None else "max"
    low: Any = either("a_min", a_min, "min", min)
    high: Any = either("a_max", a_max, "max", max)
    if low is None and high is None:
        raise InvalidArguments("a_min", None, "expected a_min, a_max or both")
    arrays = _is_array(low), _is_array(high)
    least = -inf if low is None or arrays[0] else read_float(names[0], low)
    most = inf if high is None or arrays[1] else read_float(names[1], high)
    if not any(arrays) and type_of(x, "x").kind not in "biu":
        return function(x, Alg.eltwise_clip, out, least if least < most else most, most)
    raised = x
    if low is not None:
        raised = binary(x, low, Alg.binary_max, out if high is None else None, names[0])
    return raised if high is None else binary(raised, high, Alg.binary_min, out, names[1])


def _is_array(bound: object) -> bool:
    """Whether a bound is one for each element."""
    if bound is None or type(bound) in (float, int) or isinstance(bound, str | bytes):
        return False
    return isinstance(bound, list | tuple) or not is_loose(bound)


def hardtanh(x: ArrayLike, min_val: float = -1, max_val: float = 1, out: Out = None) -> Result:
    """x, held between min_val and max_val, as PyTorch calls `clip` with defaults.

    >>> hardtanh(np.array([-4.0, 0.5, 4.0], np.float32))
    array([-1. ,  0.5,  1. ], dtype=float32)
    """
    low, high = read_float("min_val", min_val), read_float("max_val", max_val)
    if high < low:
        raise InvalidArguments("max_val", high, f"must not be below min_val = {low}")
    return clip(x, min_val, max_val, out)


def relu6(x: ArrayLike, out: Out = None) -> Result:
    """x, held between 0 and 6.

    >>> relu6(np.array([-4.0, 0.5, 8.0], np.float32))
    array([0. , 0.5, 6. ], dtype=float32)
    """
    return clip(x, 0, 6, out)
