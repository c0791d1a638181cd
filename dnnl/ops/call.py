"""One primitive for arrays: made once for each problem, then run on all that have its shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Array, address_of, lent, same_kind, written
from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.runtime.engine import first_cpu
from dnnl.runtime.stream import Stream
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_KEPT = 1024  # problems whose primitives are at hand


@dataclass(frozen=True)
class Problem:
    """What a call computes: a description, the argument of each array, and the result's shape."""

    desc: Desc
    arguments: tuple[int, ...]
    shape: tuple[int, ...]
    attr: PrimitiveAttr | None = None


Describe = Callable[..., Problem]
"""The problem of a list of descriptors, one for each array, and of parameters."""

_Kind = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any]]


@dataclass(frozen=True)
class _Call:
    """A primitive; ``order`` has for each of its arguments the number of the array, dst the last.

    ``in_place``: the numbers of arrays that dst may be.
    """

    primitive: Primitive
    order: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    in_place: frozenset[int]


def call(
    describe: Describe, arrays: Sequence[Any], params: tuple[Any, ...], out: Any = None
) -> Any:
    """The result for arrays, in ``out`` if that is given, else in a new array of the first's kind.

    ``params`` are hashable.
    """
    given = [a if type(a) is np.ndarray and a.flags.c_contiguous else lent(a) for a in arrays]
    kinds = tuple([(array.shape, array.strides, array.dtype) for array in given])
    if out is None:
        made = _made(describe, kinds, None, params)
        result = np.empty(made.shape, made.dtype)
    else:
        result = written(out)
        made = _made(describe, kinds, (result.shape, result.strides, result.dtype), params)
        given = [_apart(a, result, place in made.in_place) for place, a in enumerate(given)]
    addresses = [address_of(array) for array in (*given, result)]
    made.primitive.execute_at(_stream(), [addresses[place] for place in made.order])
    if out is not None:
        return out
    return result if type(arrays[0]) is np.ndarray else same_kind(result, arrays[0])


def dense(dims: Sequence[int], like: MemoryDesc) -> MemoryDesc:
    """A row-major tensor of the type of another."""
    return MemoryDesc(dims, like.data_type)


def expanded(desc: MemoryDesc, ndims: int) -> MemoryDesc:
    """The tensor with dimensions of size 1 in front, as NumPy broadcasts."""
    return desc.reshape((*(1,) * (ndims - desc.ndims), *desc.dims))


@cache
def _stream() -> Stream:
    return Stream(first_cpu())


@lru_cache(_KEPT)
def _made(
    describe: Describe, kinds: tuple[_Kind, ...], out: _Kind | None, params: tuple[Any, ...]
) -> _Call:
    descs = [_described(*kind) for kind in kinds]
    problem = describe(descs, None, *params)
    if out is not None:
        if out[0] != problem.shape:
            raise InvalidArguments("out", out[0], f"the result has the shape {problem.shape}")
        problem = describe(descs, _described(*out), *params)
    pd = PrimitiveDesc(problem.desc, first_cpu(), problem.attr)
    primitive = Primitive(pd)
    places = (*problem.arguments, int(Arg.DST))
    same = {source for output, source in pd.desc.operation.in_place if output == Arg.DST}
    in_place = {
        number
        for number, argument in enumerate(problem.arguments)
        if argument in same and pd.arg_desc(argument) == pd.dst_desc
    }
    return _Call(
        primitive,
        tuple(places.index(argument) for argument in primitive.arguments),
        problem.shape,
        np.dtype(pd.dst_desc.data_type.numpy),
        frozenset(in_place),
    )


def _described(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
) -> MemoryDesc:
    steps = [stride // dtype.itemsize for stride in strides]
    return MemoryDesc(shape, DataType.from_numpy(dtype), steps)


def _apart(array: Array, out: Array, in_place: bool) -> Array:
    """The array, or a copy where ``out`` shares memory with it and must not."""
    if not np.may_share_memory(array, out):
        return array
    same = (array.ctypes.data, array.strides) == (out.ctypes.data, out.strides)
    return array if in_place and same else array.copy()
