"""One primitive for arrays: made once for each problem, then run on all that have its shapes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.ops.arrays import Array, Out, Result, address_of, arrays_of, same_kind, written
from dnnl.ops.promotion import is_number
from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.runtime.engine import first_cpu
from dnnl.runtime.storage import allocating, check_capacity
from dnnl.runtime.stream import Stream
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_CAPACITY = 1024  # problems whose primitives are cached


@dataclass(frozen=True)
class Problem:
    """What a call computes: a description, the argument of each array, and the result's shape.

    Arrays are converted to the types that the description has. ``result`` is the type of the result
    where dst has another one, whose elements are then cast: integers wrap around. Without
    a description each element of the result is ``fill``.
    """

    desc: Desc | None
    arguments: tuple[int, ...]
    shape: tuple[int, ...]
    attr: PrimitiveAttr | None = None
    result: DataType | None = None
    fill: float = 0.0


Describe = Callable[..., Problem]
"""The problem of a list of descriptors, one for each array, and of parameters."""

_Kind = tuple[tuple[int, ...], tuple[int, ...], np.dtype]
"""The shape, the strides in bytes and the type of an array."""


@dataclass(frozen=True)
class _Call:
    """A primitive; ``order`` has for each of its arguments the number of the array, dst the last.

    ``in_place``: the numbers of arrays that dst may be. ``casts`` are the types that arrays are
    converted to, none where no array is. The result has ``dtype``, and dst, where it is another
    array, ``held``. Without a primitive each element is ``fill``.
    """

    primitive: Primitive | None
    order: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    in_place: frozenset[int] = frozenset()
    casts: tuple[np.dtype, ...] = ()
    held: np.dtype | None = None
    fill: float = 0.0

    def run(self, given: Sequence[Array], result: Array) -> None:
        """Compute ``result``."""
        if self.primitive is None:
            result.fill(self.fill)
            return
        if self.casts:
            pairs = zip(given, self.casts, strict=True)
            given = [
                np.asarray(array, dtype, order="C") if array.dtype != dtype else array
                for array, dtype in pairs
            ]
        dst = result if self.held is None else np.empty(self.shape, self.held)
        addresses = [address_of(array) for array in (*given, dst)]
        self.primitive.execute_at(_stream(), [addresses[place] for place in self.order])
        if dst is not result:
            np.copyto(result, dst, casting="unsafe")


@allocating
def call(
    describe: Describe,
    arrays: Sequence[ArrayLike],
    params: tuple[Hashable, ...],
    out: Out = None,
    names: tuple[str, ...] = ("x",),
) -> Result:
    """The result for arrays, in ``out`` if that is given, else in a new array of the first's kind.

    ``params`` are hashable, and ``names`` are what the arrays are called in errors.
    """
    given: list[Array] = []
    for array in arrays:
        if type(array) is not np.ndarray or not array.flags.c_contiguous:
            given = arrays_of(arrays, names)
            break
        given.append(array)
    if out is None:
        made = _made(describe, names, _kinds(given), None, params)
        result = np.empty(made.shape, made.dtype)
    else:
        result = written(out)
        made, given = _into(result, describe, names, given, params)
    made.run(given, result)
    if out is not None:
        return out
    if type(arrays[0]) is np.ndarray:
        return result
    return same_kind(result, next((each for each in arrays if not is_number(each)), None))


def present(
    arrays: Mapping[str, ArrayLike], **optional: ArrayLike | None
) -> tuple[list[ArrayLike], tuple[str, ...]]:
    """Arrays by name and those of the optional ones that are given, as `call` takes them: the
    arrays, their names."""
    given = {name: array for name, array in optional.items() if array is not None}
    return [*arrays.values(), *given.values()], (*arrays, *given)


def dense(dims: Sequence[int], like: MemoryDesc) -> MemoryDesc:
    """A row-major tensor of the type of another."""
    return MemoryDesc(dims, like.data_type)


def expanded(desc: MemoryDesc, ndims: int) -> MemoryDesc:
    """The tensor with dimensions of size 1 in front, as NumPy broadcasts."""
    return desc.reshape((*(1,) * (ndims - desc.ndims), *desc.dims))


@cache
def _stream() -> Stream:
    return Stream(first_cpu())


@lru_cache(_CAPACITY)
def _made(
    describe: Describe,
    names: tuple[str, ...],
    kinds: tuple[_Kind, ...],
    out: _Kind | None,
    params: tuple[Hashable, ...],
) -> _Call:
    descs = [_described(name, *kind) for name, kind in zip(names, kinds, strict=True)]
    problem = describe(descs, None, *params)
    if out is not None:
        if out[0] != problem.shape:
            raise InvalidArguments("out", out[0], f"the result has the shape {problem.shape}")
        problem = describe(descs, _described("out", *out), *params)
    dtype = None if out is None else out[2]
    if problem.desc is None:
        assert problem.result is not None, "it says what is filled"
        return _Call(None, (), problem.shape, dtype or problem.result.numpy, fill=problem.fill)
    pd = PrimitiveDesc(problem.desc, first_cpu(), problem.attr)
    held = pd.dst_desc.data_type.numpy
    dtype = dtype or (held if problem.result is None else problem.result.numpy)
    if out is None:
        check_capacity(pd.dst_desc.size)
    primitive = Primitive(pd)
    taken = tuple(pd.arg_desc(argument).data_type.numpy for argument in problem.arguments)
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
        dtype,
        frozenset(in_place),
        () if taken == tuple(kind[2] for kind in kinds) else taken,
        None if held == dtype else held,
    )


def _kinds(given: Sequence[Array]) -> tuple[_Kind, ...]:
    return tuple([(array.shape, array.strides, array.dtype) for array in given])


def _into(
    result: Array,
    describe: Describe,
    names: tuple[str, ...],
    given: Sequence[Array],
    params: tuple[Hashable, ...],
) -> tuple[_Call, list[Array]]:
    """What writes ``result``, and the arrays: copies of those that share memory with it, where they
    are not element for element what a primitive may overwrite."""
    (out,) = _kinds([result])
    shared = {place for place, array in enumerate(given) if np.may_share_memory(array, result)}
    same = {place for place in shared if _same(given[place], result)}
    apart = _copied(given, shared - same)
    made = _made(describe, names, _kinds(apart), out, params)
    if same <= made.in_place:
        return made, apart
    apart = _copied(apart, same - made.in_place)
    return _made(describe, names, _kinds(apart), out, params), apart


def _same(array: Array, out: Array) -> bool:
    return address_of(array) == address_of(out) and array.strides == out.strides


def _copied(given: Sequence[Array], places: set[int]) -> list[Array]:
    """The arrays, those at ``places`` as copies, in the order of their strides."""
    return [array.copy("K") if place in places else array for place, array in enumerate(given)]


def _described(
    name: str, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype
) -> MemoryDesc:
    # Of a dimension of size 1 NumPy allows any stride.
    steps = [abs(stride) // dtype.itemsize for stride in strides]
    try:
        return MemoryDesc(shape, DataType.from_numpy(dtype), steps)
    except InvalidArguments as error:
        rule = f"{error.argument}: {error.rule}"
        raise InvalidArguments(name, f"{dtype} of {shape}", rule, error.hint) from None
