"""What a call computes, and the primitive of each problem: made once, then run on all arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.ops.arrays import A, Shape, Shaped
from dnnl.ops.place import Place
from dnnl.primitives.changing import Sized, primitive_for
from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive import Primitive
from dnnl.runtime.engine import Engine, first_cpu
from dnnl.runtime.event import COMPLETE
from dnnl.runtime.storage import check_capacity
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_CAPACITY = 1024  # problems whose primitives are cached


@dataclass(frozen=True)
class Problem:
    """What a call computes: a description, the argument of each array, and the result's shape.

    Arrays are converted to the types that the description has, and those whose numbers ``copied``
    has to row-major ones; dst is behind the last. ``result`` is the type of the result where dst
    has another one, whose elements are then cast: integers wrap around. Without a description each
    element of the result is ``fill``.
    """

    desc: Desc | None
    arguments: tuple[int, ...]
    shape: tuple[int, ...]
    attr: PrimitiveAttr | None = None
    result: DataType | None = None
    fill: float = 0.0
    copied: frozenset[int] = frozenset()


Describe = Callable[..., Problem]
"""The problem of a list of descriptors, one for each array, and of parameters."""

Kind = tuple[Shape, Shape, np.dtype]
"""The shape, the strides in bytes and the type of an array."""


@dataclass(frozen=True)
class Call:
    """A primitive; ``order`` has for each of its arguments the number of the array, dst the last.

    ``in_place``: the numbers of arrays that dst may be. ``casts`` are the types that arrays are
    converted to, none where no array is, and ``copied`` the numbers of those that become row-major.
    The result has ``dtype``, and dst, where it is another array, ``held``. Without a primitive each
    element is ``fill``.
    """

    primitive: Primitive | Sized | None
    order: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    in_place: frozenset[int] = frozenset()
    casts: tuple[np.dtype, ...] = ()
    held: np.dtype | None = None
    fill: float = 0.0
    copied: frozenset[int] = frozenset()

    def run(self, place: Place[A], given: Sequence[A], result: A) -> None:
        """Compute ``result``."""
        if self.primitive is None:
            place.fill(result, self.fill)
            return
        if self.casts:
            pairs = enumerate(zip(given, self.casts, strict=True))
            given = [
                place.converted(array, dtype)
                if array.dtype != dtype or number in self.copied
                else array
                for number, (array, dtype) in pairs
            ]
        dst = result if self.held is None else place.scratch(self.shape, self.held)
        every, argument = (*given, dst), place.argument
        arguments = [argument(every[number]) for number in self.order]
        event = self.primitive.execute_at(place.stream(), arguments)
        if event is not COMPLETE:
            place.submitted(event)
        if dst is not result:
            place.put(result, dst)


def kinds(given: Sequence[Shaped]) -> tuple[Kind, ...]:
    """What arrays have in common that share a primitive."""
    return tuple([(array.shape, array.strides, array.dtype) for array in given])


@lru_cache(_CAPACITY)
def prepared(
    describe: Describe,
    names: tuple[str, ...],
    kinds: tuple[Kind, ...],
    out: Kind | None,
    params: tuple[Hashable, ...],
    engine: Engine | None,
) -> Call:
    """The call for arrays of these kinds, the result in one of the kind ``out`` if that is given;
    on an engine, None for that of the host."""
    descs = [_described(name, *own) for name, own in zip(names, kinds, strict=True)]
    problem = describe(descs, None, *params)
    if out is not None:
        if out[0] != problem.shape:
            raise InvalidArguments("out", out[0], f"the result has the shape {problem.shape}")
        kind = _type_of(problem)
        problem = describe(descs, _written(*out), *params)
    dtype = None if out is None else out[2]
    if problem.desc is None:
        assert problem.result is not None, "it says what is filled"
        return Call(None, (), problem.shape, dtype or problem.result.numpy, fill=problem.fill)
    try:
        primitive = primitive_for(problem.desc, engine or first_cpu(), problem.attr)
    except Unimplemented:
        if out is None or kind is DataType.from_numpy(out[2]):
            raise
        own, hint = str(DataType.from_numpy(out[2])), f"pass an out of {kind}"
        rule = f"a result of {kind} is not written in this type"
        raise InvalidArguments("out", own, rule, hint) from None
    pd = primitive.pd
    held = pd.dst_desc.data_type.numpy
    dtype = dtype or (held if problem.result is None else problem.result.numpy)
    if out is None and engine is None:
        check_capacity(pd.dst_desc.size)
    taken = tuple(pd.arg_desc(argument).data_type.numpy for argument in problem.arguments)
    places = (*problem.arguments, int(Arg.DST))
    same = {source for output, source in pd.desc.operation.in_place if output == Arg.DST}
    in_place = {
        number
        for number, argument in enumerate(problem.arguments)
        if argument in same and pd.arg_desc(argument) == pd.dst_desc
    }
    return Call(
        primitive,
        tuple(places.index(argument) for argument in primitive.arguments),
        problem.shape,
        dtype,
        frozenset(in_place),
        () if taken == tuple(kind[2] for kind in kinds) and not problem.copied else taken,
        None if held == dtype and len(descs) not in problem.copied else held,
        copied=problem.copied,
    )


def _type_of(problem: Problem) -> DataType:
    """The type of a new array for the result."""
    if problem.result is not None:
        return problem.result
    assert problem.desc is not None, "it says what is filled"
    return problem.desc.outputs[0].desc.data_type


def _written(shape: Shape, strides: Shape, dtype: np.dtype) -> MemoryDesc:
    """The descriptor of ``out``, whose elements are places of their own."""
    shared = any(size > 1 and not step for size, step in zip(shape, strides, strict=True))
    if shared and 0 not in shape:
        rule = "its elements share memory, as those of an expanded array"
        raise InvalidArguments("out", f"{dtype} of {shape}", rule, "pass a copy of it")
    return _described("out", shape, strides, dtype)


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
