"""Dimensions reduced to one number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dnnl.errors import InvalidArguments
from dnnl.ops.call import Problem, call, dense
from dnnl.ops.reading import placed, read_axes
from dnnl.primitives.reduction import ReductionDesc
from dnnl.types.arg import Arg
from dnnl.types.kinds import Alg
from dnnl.types.layout_input import read_bool
from dnnl.types.memory_desc import MemoryDesc

Axes = int | Sequence[int] | None


def _reduced(alg: Alg, x: Any, axis: Any, keepdims: bool, out: Any) -> Any:
    params = alg, read_axes(axis), read_bool("keepdims", keepdims)
    return call(_problem, (x,), params, out)


def _problem(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    alg: Alg,
    axes: tuple[int, ...] | None,
    keepdims: bool,
) -> Problem:
    (src,) = descs
    every = range(src.ndims) if axes is None else [placed(axis, src.ndims) for axis in axes]
    gone = set(every)
    if len(gone) < len(every):
        raise InvalidArguments("axis", axes, "expected each axis once")
    whole = tuple(1 if dim in gone else size for dim, size in enumerate(src.dims))
    left = tuple(size for dim, size in enumerate(src.dims) if dim not in gone)
    shape = whole if keepdims else left
    target = dense(whole, src) if dst is None else dst.reshape(whole)
    return Problem(ReductionDesc(alg, src, target, 1.0), (Arg.SRC,), shape)


def sum(x: Any, axis: Axes = None, keepdims: bool = False, out: Any = None) -> Any:
    """The sum over one axis, several, or all; sums of integers saturate.

    >>> sum(np.ones((2, 3), np.float32), axis=1)
    array([3., 3.], dtype=float32)
    """
    return _reduced(Alg.reduction_sum, x, axis, keepdims, out)


def mean(x: Any, axis: Axes = None, keepdims: bool = False, out: Any = None) -> Any:
    """The mean over one axis, several, or all.

    >>> mean(np.ones((2, 3), np.float32), axis=0, keepdims=True)
    array([[1., 1., 1.]], dtype=float32)
    """
    return _reduced(Alg.reduction_mean, x, axis, keepdims, out)


def amax(x: Any, axis: Axes = None, keepdims: bool = False, out: Any = None) -> Any:
    """The maximum over one axis, several, or all; NaN where there is one.

    >>> amax(np.array([[1.0, 3.0], [4.0, 2.0]], np.float32), axis=1)
    array([3., 4.], dtype=float32)
    """
    return _reduced(Alg.reduction_max, x, axis, keepdims, out)


def amin(x: Any, axis: Axes = None, keepdims: bool = False, out: Any = None) -> Any:
    """The minimum over one axis, several, or all; NaN where there is one.

    >>> amin(np.array([[1.0, 3.0], [4.0, 2.0]], np.float32), axis=1)
    array([1., 2.], dtype=float32)
    """
    return _reduced(Alg.reduction_min, x, axis, keepdims, out)


def prod(x: Any, axis: Axes = None, keepdims: bool = False, out: Any = None) -> Any:
    """The product over one axis, several, or all.

    >>> prod(np.array([[1.0, 3.0], [4.0, 2.0]], np.float32), axis=1)
    array([3., 8.], dtype=float32)
    """
    return _reduced(Alg.reduction_mul, x, axis, keepdims, out)
