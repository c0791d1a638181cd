"""Elements that indices choose: rows of a table, and places along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Array, Out, Result
from dnnl.ops.call import Problem, call
from dnnl.ops.device import taken
from dnnl.ops.place import HOST, Place, Placed
from dnnl.ops.promotion import target
from dnnl.primitives.exact import ExactDesc
from dnnl.primitives.gather import GatherDesc
from dnnl.runtime.storage import allocating, check_capacity
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.layout_input import read_int
from dnnl.types.memory_desc import MemoryDesc

_TABLE = ("weight", "x")
_NUMBERS = 40  # bytes for each element along an axis, with what computes its number


@allocating
def embedding(
    x: ArrayLike, weight: ArrayLike, padding_idx: int | None = None, out: Out = None
) -> Result:
    """The rows of ``weight`` [rows, features] that the integers of x choose, in the shape of x with
    the features behind.

    ``padding_idx`` is a row whose gradient PyTorch leaves out; here it is only checked. On a device
    the integers are not: one out of range takes the nearest row.

    >>> embedding(np.array([1, 1, 0]), np.array([[1.0], [2.0]], np.float32))
    array([[2.],
           [2.],
           [1.]], dtype=float32)
    """
    given = _listed(x) if isinstance(x, list | tuple) and x else x
    place, (table, numbers) = taken((weight, given), _TABLE, out)
    if len(table.shape) != 2:
        raise InvalidArguments("weight", table.shape, "expected a matrix: rows, features")
    count = table.shape[0]
    if padding_idx is not None and not -count <= read_int("padding_idx", padding_idx) < count:
        rule = f"expected one of {-count}..{count - 1}, the rows of weight"
        raise InvalidArguments("padding_idx", padding_idx, rule)
    if numbers.dtype.kind not in "iu":
        raise InvalidArguments("x", str(numbers.dtype), "expected integers", "convert it")
    if place is HOST and numbers.size:
        for number in (int(numbers.min()), int(numbers.max())):
            if not 0 <= number < count:
                rule = f"expected numbers of 0..{count - 1}, the rows of weight"
                raise InvalidArguments("x", number, rule)
    if not _is_index(numbers):
        numbers = place.converted(numbers, np.dtype(np.int64))
    result = call(_rows, (table, numbers), (), out, _TABLE)
    return place.returned(result, (weight, x), out)


def _listed(x: Sequence[object]) -> Array:
    try:
        return np.asarray(x)
    except (TypeError, ValueError) as error:
        raise InvalidArguments("x", x, f"no array of numbers: {error}") from None


def _is_index(numbers: Placed) -> bool:
    """Whether the primitive reads them as they are: a row-major array of s32 or s64."""
    step = numbers.dtype.itemsize
    for size, stride in zip(reversed(numbers.shape), reversed(numbers.strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return numbers.dtype in (np.int32, np.int64)


def _rows(descs: Sequence[MemoryDesc], dst: MemoryDesc | None) -> Problem:
    table, numbers = descs
    shape, kind = (*numbers.dims, table.dims[1]), table.data_type
    count = numbers.nelems()
    left = target(dst, shape, kind).reshape((count, shape[-1]))
    desc = GatherDesc(table, numbers.reshape((count,)), left, 0)
    return Problem(desc, (Arg.SRC, Arg.SRC_1), shape, result=kind)


def check_elements(shape: Sequence[int], dtype: np.dtype) -> None:
    """Raise `OutOfMemory` where neither a result of this shape nor the numbers of what it takes
    along each axis fit, before these are written down."""
    check_capacity(max(prod(shape) * dtype.itemsize, sum(shape) * _NUMBERS))


def copied(descs: Sequence[MemoryDesc], dst: MemoryDesc | None) -> Problem:
    """The elements as they are, for the result of steps."""
    (src,) = descs
    kind = src.data_type
    desc = ExactDesc("cast", [src], target(dst, src.dims, kind))
    return Problem(desc, (Arg.MULTIPLE_SRC,), src.dims, result=kind)


def chosen(
    place: Place[Placed], array: Placed, numbers: Array, axis: int, out: Out = None
) -> Placed:
    """The slices along an axis with these numbers, for functions that are computed in steps."""
    indices = place.constant(numbers.astype(np.int64, copy=False))
    return call(_slices, (array, indices), (axis,), out, ("x", "numbers"))


def _slices(descs: Sequence[MemoryDesc], dst: MemoryDesc | None, axis: int) -> Problem:
    src, indices = descs
    shape = (*src.dims[:axis], *indices.dims, *src.dims[axis + 1 :])
    desc = GatherDesc(src, indices, target(dst, shape, src.data_type), axis)
    return Problem(desc, (Arg.SRC, Arg.SRC_1), shape, result=src.data_type)
