"""Dimensions reduced to one number."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Out, Result
from dnnl.ops.call import Problem, call
from dnnl.ops.promotion import Rules, as_real, as_type, read_type, rules_of, target, widened
from dnnl.ops.reading import placed, read_axes
from dnnl.primitives.reduction import ReductionDesc
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.layout_input import read_bool
from dnnl.types.memory_desc import MemoryDesc

Axes = int | Sequence[int] | None


_OF_NOTHING = {Alg.reduction_sum: 0.0, Alg.reduction_mul: 1.0, Alg.reduction_mean: nan}


def _reduced(
    alg: Alg, x: ArrayLike, axis: Axes, keepdims: bool, out: Out, dtype: object = None
) -> Result:
    params = alg, read_axes(axis), read_bool("keepdims", keepdims), read_type(dtype), rules_of(x)
    return call(_problem, (x,), params, out)


def _problem(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    alg: Alg,
    axes: tuple[int, ...] | None,
    keepdims: bool,
    dtype: DataType | None,
    rules: Rules,
) -> Problem:
    (src,) = descs
    every = range(src.ndims) if axes is None else [placed(axis, src.ndims) for axis in axes]
    gone = set(every)
    if len(gone) < len(every):
        raise InvalidArguments("axis", axes, "expected each axis once")
    whole = tuple(1 if dim in gone else size for dim, size in enumerate(src.dims))
    remaining = tuple(size for dim, size in enumerate(src.dims) if dim not in gone)
    shape = whole if keepdims else remaining
    kind = dtype or widened(_type_of_result(alg, src.data_type, rules), dst)
    if any(src.dims[dim] == 0 for dim in gone):
        if alg not in _OF_NOTHING:
            rule = f"has no elements along axis {sorted(gone)}, and so no extreme there"
            raise InvalidArguments("x", src.dims, rule)
        return Problem(None, (), shape, result=kind, fill=_OF_NOTHING[alg])
    if kind.is_float:
        src, left = as_real(src, kind), dst or MemoryDesc(shape, kind)
    else:
        # Sums of 64 bits end with the bits of those that wrap earlier.
        held = DataType.s64 if alg in _OF_NOTHING and kind.bits < DataType.s64.bits else kind
        src = as_type(src, held) if src.data_type.is_float else src
        left = target(dst, shape, held)
    desc = ReductionDesc(alg, src, left.reshape(whole), 1.0)
    return Problem(desc, (Arg.SRC,), shape, result=kind)


def _type_of_result(alg: Alg, kind: DataType, rules: Rules) -> DataType:
    if alg is Alg.reduction_mean:
        return rules.mean(kind)
    return rules.total(kind) if alg in _OF_NOTHING else kind


def sum(
    x: ArrayLike,
    axis: Axes = None,
    keepdims: bool = False,
    out: Out = None,
    *,
    dtype: object = None,
) -> Result:
    """The sum over one axis, several, or all, in ``dtype``.

    By default that is the type of x, of integers the one of 64 bits, as in NumPy; sums wrap. The
    sum of no elements is 0.

    >>> sum(np.ones((2, 3), np.float32), axis=1)
    array([3., 3.], dtype=float32)
    """
    return _reduced(Alg.reduction_sum, x, axis, keepdims, out, dtype)


def mean(
    x: ArrayLike,
    axis: Axes = None,
    keepdims: bool = False,
    out: Out = None,
    *,
    dtype: object = None,
) -> Result:
    """The mean over one axis, several, or all, in ``dtype``.

    By default that is the type of x, of integers f64, as in NumPy; tensors of PyTorch that are
    integers need one. The mean of no elements is NaN.

    >>> mean(np.ones((2, 3), np.float32), axis=0, keepdims=True)
    array([[1., 1., 1.]], dtype=float32)
    """
    if (kind := read_type(dtype)) and not kind.is_float:
        raise InvalidArguments("dtype", str(kind), "a mean is a float", "try 'f32'")
    return _reduced(Alg.reduction_mean, x, axis, keepdims, out, dtype)


def amax(x: ArrayLike, axis: Axes = None, keepdims: bool = False, out: Out = None) -> Result:
    """The maximum over one axis, several, or all; NaN where there is one.

    >>> amax(np.array([[1.0, 3.0], [4.0, 2.0]], np.float32), axis=1)
    array([3., 4.], dtype=float32)
    """
    return _reduced(Alg.reduction_max, x, axis, keepdims, out)


def amin(x: ArrayLike, axis: Axes = None, keepdims: bool = False, out: Out = None) -> Result:
    """The minimum over one axis, several, or all; NaN where there is one.

    >>> amin(np.array([[1.0, 3.0], [4.0, 2.0]], np.float32), axis=1)
    array([1., 2.], dtype=float32)
    """
    return _reduced(Alg.reduction_min, x, axis, keepdims, out)


def prod(
    x: ArrayLike,
    axis: Axes = None,
    keepdims: bool = False,
    out: Out = None,
    *,
    dtype: object = None,
) -> Result:
    """The product over one axis, several, or all, in ``dtype``, by default that of `sum`.

    The product of no elements is 1.

    >>> prod(np.array([[1.0, 3.0], [4.0, 2.0]], np.float32), axis=1)
    array([3., 8.], dtype=float32)
    """
    return _reduced(Alg.reduction_mul, x, axis, keepdims, out, dtype)
