"""The short path of a call on arrays that look like those of an earlier one: no checks, no DLPack.

The *look* of an array is what a few of its attributes say: for NumPy and PyTorch that is all that a
primitive depends on. The first call with certain looks goes the long path, in `call`, and leaves in
a `Slot` how the next ones are executed."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from dnnl.ops.arrays import Array, Result, address_of, differentiating
from dnnl.ops.place import HOST
from dnnl.ops.problem import Call
from dnnl.ops.promotion import is_tensor
from dnnl.types.dtype import DataType

_CAPACITY = 1024  # slots: functions with their parameters and looks
_NUMBERS = (float, int, bool)

Limits = tuple[float, float]


def _half(kind: DataType) -> Callable[[Any], Any]:
    """What makes of a number the bits of a float of 16 bits, which ctypes does not have."""
    dtype = kind.numpy

    def form(number: float) -> Any:
        return ctypes.c_uint16(int(np.asarray(number, dtype).view(np.uint16)))

    return form


#: How a Python number is passed, by its type and that of the array that it becomes, and within
#: which limits: others may be no exact integers there, or no finite numbers, as the long path says.
_PASSED: dict[tuple[type, DataType], tuple[Callable[[Any], Any], Limits | None]] = {
    (float, DataType.f32): (ctypes.c_float, None),
    (float, DataType.f64): (ctypes.c_double, None),
    (float, DataType.f16): (_half(DataType.f16), (-65504.0, 65504.0)),
    (float, DataType.bf16): (_half(DataType.bf16), (-3e38, 3e38)),
    (int, DataType.f32): (ctypes.c_float, (-(2**24), 2**24)),
    (int, DataType.f64): (ctypes.c_double, (-(2**53), 2**53)),
    (int, DataType.f16): (_half(DataType.f16), (-(2**11), 2**11)),
    (int, DataType.bf16): (_half(DataType.bf16), (-(2**8), 2**8)),
    (int, DataType.s8): (ctypes.c_int8, (-(2**7), 2**7 - 1)),
    (int, DataType.u8): (ctypes.c_uint8, (0, 2**8 - 1)),
    (int, DataType.s16): (ctypes.c_int16, (-(2**15), 2**15 - 1)),
    (int, DataType.s32): (ctypes.c_int32, (-(2**31), 2**31 - 1)),
    (int, DataType.s64): (ctypes.c_int64, (-(2**63), 2**63 - 1)),
}

Again: TypeAlias = Callable[[Sequence[Any]], Result]
"""Executes a call on other arrays of the same looks; None where these are not what they seem."""


class Slot:
    """What calls with equal looks and parameters share: ``again``, once the long path found it."""

    __slots__ = ("again",)

    def __init__(self) -> None:
        self.again: Again | None = None


def slot_of(
    describe: Callable[..., object], arrays: Sequence[Any], params: tuple[Hashable, ...]
) -> Slot | None:
    """The slot of a call; None where an array's look does not say all."""
    looks: list[Any] = [describe, params]
    tensors = False
    for array in arrays:
        kind = type(array)
        if kind is np.ndarray:
            looks += array.shape, array.strides, array.dtype
        elif kind in _NUMBERS:
            looks.append(kind)
        elif is_tensor(kind) and array.is_cpu and not array.is_neg():
            if array.requires_grad and sys.modules["torch"].is_grad_enabled():
                return None
            tensors = True
            try:
                looks += array.shape, array.stride(), array.dtype
            except RuntimeError:  # nested and some sparse tensors have no strides
                return None
        else:
            return None
    # Within forward-mode differentiation a tensor may have a tangent.
    return None if tensors and differentiating() else _slot(*looks)


@lru_cache(_CAPACITY)
def _slot(*_key: Hashable) -> Slot:
    return Slot()


def learn(
    slot: Slot, made: Call, arrays: Sequence[Any], given: Sequence[Array], result: Result
) -> None:
    """Leave in the slot how the call is repeated that took ``arrays`` as ``given``, if these are
    the arrays' own memory and the primitive reads them as they are."""
    if made.primitive is None or made.casts or made.held is not None or 0 in made.shape:
        return
    readers: list[Callable[[Any], int]] = []
    numbers: list[tuple[int, Callable[[Any], Any], Limits | None]] = []
    for place, (array, own) in enumerate(zip(arrays, given, strict=True)):
        if type(array) in _NUMBERS:
            passed = _PASSED.get((type(array), DataType.from_numpy(own.dtype)))
            if passed is None:
                return
            numbers.append((place, *passed))
            readers.append(ctypes.addressof)
        elif type(array) is np.ndarray:
            if own is not array:
                return
            readers.append(address_of)
        else:
            if own.ctypes.data != array.data_ptr():
                return
            readers.append(type(array).data_ptr)
    slot.again = _repeated(made, readers, numbers, arrays, result)


def _repeated(
    made: Call,
    readers: Sequence[Callable[[Any], int]],
    numbers: Sequence[tuple[int, Callable[[Any], Any], Limits | None]],
    arrays: Sequence[Any],
    result: Result,
) -> Again:
    assert made.primitive is not None
    execute, order = made.primitive.execute_at, made.order
    empty, address = _maker(result, arrays)
    in_order = order == tuple(range(len(readers) + 1))
    alike = readers[0] if len(set(readers)) == 1 else None

    def again(arrays: Sequence[Any]) -> Result:
        if numbers:
            arrays = list(arrays)
            for place, form, limits in numbers:
                number = arrays[place]
                if limits is not None and not limits[0] <= number <= limits[1]:
                    return None
                arrays[place] = form(number)
        try:
            new = empty(arrays)
            if alike is not None:
                found = [*map(alike, arrays), address(new)]
            else:
                pairs = zip(readers, arrays, strict=True)
                found = [*(read(array) for read, array in pairs), address(new)]
        except (MemoryError, RuntimeError):  # no memory, or a tensor without, as within torch.vmap
            return None
        if 0 in found:  # which has no memory, as within FakeTensorMode
            return None
        execute(HOST.stream(), found if in_order else [found[number] for number in order])
        return new

    return again


def _maker(
    result: Result, arrays: Sequence[Any]
) -> tuple[Callable[[Sequence[Any]], Result], Callable[[Any], int]]:
    """What makes a new array like a result, and what reads its address."""
    shape, dtype = result.shape, result.dtype
    if type(result) is np.ndarray:
        empty = np.empty
        return lambda _: empty(shape, dtype), address_of
    torch = sys.modules["torch"]
    plain, like, cpu, sizes = torch.empty, torch.empty_like, torch.device("cpu"), tuple(shape)
    for place, array in enumerate(arrays):
        same = is_tensor(type(array)) and (array.shape, array.dtype) == (shape, dtype)
        if same and array.is_contiguous():  # which is twice as fast as by a shape
            return partial(_like, like, place), type(result).data_ptr
    return lambda _: plain(sizes, dtype=dtype, device=cpu), type(result).data_ptr


def _like(make: Callable[[Any], Result], place: int, arrays: Sequence[Any]) -> Result:
    return make(arrays[place])
