"""One primitive for arrays: made once for each problem, then run on all that have its shapes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from dnnl.ops.arrays import A, Out, Result, lent
from dnnl.ops.device import taken, type_of
from dnnl.ops.place import HOST, Place, Placed
from dnnl.ops.problem import Call, Describe, Problem, kinds, prepared
from dnnl.ops.quick import Slot, learn, slot_of
from dnnl.runtime.storage import allocating
from dnnl.runtime.wrap import ArrayLike
from dnnl.types.memory_desc import MemoryDesc

__all__ = ["Problem", "call", "dense", "expanded", "present", "type_of"]


def call(
    describe: Describe,
    arrays: Sequence[object],
    params: tuple[Hashable, ...],
    out: Out = None,
    names: tuple[str, ...] = ("x",),
) -> Result:
    """The result for arrays, in ``out`` if that is given, else in a new array of the first's kind.

    ``params`` are hashable, and ``names`` are what the arrays are called in errors.
    """
    if out is not None:
        return _checked(describe, arrays, params, out, names, None)
    slot = slot_of(describe, arrays, params)
    if slot is not None and slot.again is not None:
        result = slot.again(arrays)
        if result is not None:
            return result
    return _checked(describe, arrays, params, None, names, slot)


@allocating
def _checked(
    describe: Describe,
    arrays: Sequence[object],
    params: tuple[Hashable, ...],
    out: Out,
    names: tuple[str, ...],
    slot: Slot | None,
) -> Result:
    """The long path of a call, from which a slot, if there is one, learns the short one."""
    place: Place[Placed] = HOST
    given: list[Placed] = []
    simple = out is None or type(out) is np.ndarray
    for array in arrays:
        if type(array) is not np.ndarray:
            simple = False
            break
        given.append(array if array.flags.c_contiguous else lent(array, names[len(given)]))
    if not simple:
        place, given = taken(arrays, names, out)
    if out is None:
        made = prepared(describe, names, kinds(given), None, params, place.engine)
        result = place.empty(made.shape, made.dtype)
    else:
        result = place.written(out)
        made, given = _into(place, result, describe, names, given, params)
    made.run(place, given, result)
    returned = place.returned(result, arrays, out)
    if slot is not None and place is HOST:
        learn(slot, made, arrays, given, returned)
    return returned


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


def _into(
    place: Place[A],
    result: A,
    describe: Describe,
    names: tuple[str, ...],
    given: Sequence[A],
    params: tuple[Hashable, ...],
) -> tuple[Call, list[A]]:
    """What writes ``result``, and the arrays: copies of those that share memory with it, where they
    are not element for element what a primitive may overwrite."""
    (out,) = kinds([result])
    shared = {number for number, array in enumerate(given) if place.overlap(array, result)}
    same = {
        number
        for number in shared
        if given[number].strides == result.strides and place.begin_together(given[number], result)
    }
    apart = _copied(place, given, shared - same)
    made = prepared(describe, names, kinds(apart), out, params, place.engine)
    if same <= made.in_place:
        return made, apart
    apart = _copied(place, apart, same - made.in_place)
    return prepared(describe, names, kinds(apart), out, params, place.engine), apart


def _copied(place: Place[A], given: Sequence[A], numbers: set[int]) -> list[A]:
    """The arrays, those with these numbers as copies."""
    if not numbers:
        return list(given)
    pairs = enumerate(given)
    return [place.copied(array) if number in numbers else array for number, array in pairs]
