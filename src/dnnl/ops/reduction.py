"""Dimensions reduced to one number, and running totals along one.

``dim`` and ``keepdim`` are PyTorch's names of ``axis`` and ``keepdims``."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

from dnnl.errors import InvalidArguments
from dnnl.ops import reading
from dnnl.ops.arrays import Out, Result
from dnnl.ops.call import Problem, call
from dnnl.ops.promotion import Rules, as_real, as_type, read_type, rules_of, target, widened
from dnnl.ops.reading import either, read_axes, read_axis
from dnnl.primitives.cumulative import CumulativeDesc
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
    alg: Alg,
    x: ArrayLike,
    axes: reading.Axes,
    keepdims: bool | None,
    keepdim: bool | None,
    out: Out,
    dtype: object = None,
) -> Result:
    name = "keepdims" if keepdim is None else "keepdim"
    given = either("keepdims", keepdims, "keepdim", keepdim)
    stays = given is not None and read_bool(name, given)
    return call(_problem, (x,), (alg, axes, stays, read_type(dtype), rules_of(x)), out)


def _problem(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    alg: Alg,
    axes: reading.Axes,
    keepdims: bool,
    dtype: DataType | None,
    rules: Rules,
) -> Problem:
    (src,) = descs
    gone = set(axes.of(src.ndims, rules))
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
        if kind is DataType.boolean:
            src = as_type(src, kind)
        elif src.data_type.is_float:
            src = as_type(src, held)
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
    keepdims: bool | None = None,
    out: Out = None,
    *,
    dim: Axes = None,
    keepdim: bool | None = None,
    dtype: object = None,
) -> Result:
    """The sum over one axis, several, or all, in ``dtype``.

    By default that is the type of x, of integers the one of 64 bits, as in NumPy; sums wrap. The
    sum of no elements is 0.

    >>> sum(np.ones((2, 3), np.float32), axis=1)
    array([3., 3.], dtype=float32)
    """
    return _reduced(Alg.reduction_sum, x, read_axes(axis, dim), keepdims, keepdim, out, dtype)


def mean(
    x: ArrayLike,
    axis: Axes = None,
    keepdims: bool | None = None,
    out: Out = None,
    *,
    dim: Axes = None,
    keepdim: bool | None = None,
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
    return _reduced(Alg.reduction_mean, x, read_axes(axis, dim), keepdims, keepdim, out, dtype)


def amax(
    x: ArrayLike,
    axis: Axes = None,
    keepdims: bool | None = None,
    out: Out = None,
    *,
    dim: Axes = None,
    keepdim: bool | None = None,
) -> Result:
    """The maximum over one axis, several, or all; NaN where there is one.

    >>> amax(np.array([[1.0, 3.0], [4.0, 2.0]], np.float32), axis=1)
    array([3., 4.], dtype=float32)
    """
    return _reduced(Alg.reduction_max, x, read_axes(axis, dim), keepdims, keepdim, out)


def amin(
    x: ArrayLike,
    axis: Axes = None,
    keepdims: bool | None = None,
    out: Out = None,
    *,
    dim: Axes = None,
    keepdim: bool | None = None,
) -> Result:
    """The minimum over one axis, several, or all; NaN where there is one.

    >>> amin(np.array([[1.0, 3.0], [4.0, 2.0]], np.float32), axis=1)
    array([1., 2.], dtype=float32)
    """
    return _reduced(Alg.reduction_min, x, read_axes(axis, dim), keepdims, keepdim, out)


def prod(
    x: ArrayLike,
    axis: Axes = None,
    keepdims: bool | None = None,
    out: Out = None,
    *,
    dim: Axes = None,
    keepdim: bool | None = None,
    dtype: object = None,
) -> Result:
    """The product over one axis, several, or all, in ``dtype``, by default that of `sum`.

    The product of no elements is 1.

    >>> prod(np.array([[1.0, 3.0], [4.0, 2.0]], np.float32), axis=1)
    array([3., 8.], dtype=float32)
    """
    return _reduced(Alg.reduction_mul, x, read_axes(axis, dim), keepdims, keepdim, out, dtype)


def cumsum(
    x: ArrayLike,
    axis: int | None = None,
    out: Out = None,
    *,
    dim: int | None = None,
    dtype: object = None,
) -> Result:
    """The sums of the elements up to each one along ``axis``, by default of all in their order, in
    ``dtype``, by default that of `sum`.

    >>> cumsum(np.array([[1.0, 3.0], [4.0, 2.0]], np.float32), axis=1)
    array([[1., 4.],
           [4., 6.]], dtype=float32)
    """
    return _running("sum", x, axis, dim, out, dtype)


def cumprod(
    x: ArrayLike,
    axis: int | None = None,
    out: Out = None,
    *,
    dim: int | None = None,
    dtype: object = None,
) -> Result:
    """The products of the elements up to each one along ``axis``, by default of all in their order,
    in ``dtype``, by default that of `sum`.

    >>> cumprod(np.array([1.0, 3.0, 4.0], np.float32), axis=0)
    array([ 1.,  3., 12.], dtype=float32)
    """
    return _running("product", x, axis, dim, out, dtype)


def _running(
    function: str, x: ArrayLike, axis: int | None, dim: int | None, out: Out, dtype: object
) -> Result:
    every = axis is None and dim is None
    along = reading.Axes(None) if every else read_axis(axis, dim, 0)
    if (kind := read_type(dtype)) is DataType.boolean:
        raise InvalidArguments("dtype", str(kind), "running totals are numbers", "try 's64'")
    return call(_cumulative, (x,), (function, along, kind, rules_of(x)), out)


def _cumulative(
    descs: Sequence[MemoryDesc],
    dst: MemoryDesc | None,
    function: str,
    along: reading.Axes,
    dtype: DataType | None,
    rules: Rules,
) -> Problem:
    (src,) = descs
    kind = dtype or widened(rules.total(src.data_type), dst)
    number = along.numbers is not None and not src.ndims
    axis, shape = 0, tuple[int, ...]()
    if number and along.numbers in ((0,), (-1,)):  # PyTorch's numbers have one dimension here
        src = src.reshape((1,))
    elif along.numbers is None:
        shape = (src.nelems(),)
        src = _flat(as_type(src, kind))
    else:
        (axis,) = along.of(src.ndims)
        shape = src.dims
    src = as_type(src, kind)
    left = target(dst, shape, kind)
    desc = CumulativeDesc(function, src, left.reshape(src.dims), axis)
    return Problem(desc, (Arg.SRC,), shape, result=kind)


def _flat(src: MemoryDesc) -> MemoryDesc:
    """The elements of a tensor in one dimension."""
    try:
        return src.reshape((src.nelems(),))
    except InvalidArguments:
        rule = "its rows have gaps, so that they are no single axis"
        raise InvalidArguments("x", src.dims, rule, "pass an axis, or a contiguous array") from None
