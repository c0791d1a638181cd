"""Somebody else's buffer as the bytes of a tensor: what it must be, and why it is refused."""

from __future__ import annotations

from math import prod
from typing import NamedTuple, TypeAlias, TypeGuard

import numpy as np
from numpy import typing as npt
from numpy.typing import NDArray

from dnnl.errors import InvalidArguments
from dnnl.runtime import dlpack
from dnnl.runtime.elements import plain_strides
from dnnl.runtime.storage import array_at, bytes_at
from dnnl.types.memory_desc import MemoryDesc

_USER_DEFINED = 2  # `numpy.dtype.isbuiltin` of the types of ml_dtypes


ArrayLike: TypeAlias = npt.ArrayLike | dlpack.Exporter
"""An array of any library, or numbers: whatever NumPy or DLPack can read."""


class Described(NamedTuple):
    """Somebody else's memory, which ``owner`` keeps alive; ``strides`` in bytes."""

    owner: object
    address: int
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    readonly: bool

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def is_flat(self) -> bool:
        """Whether it is one run of bytes without a shape to speak of."""
        return len(self.shape) <= 1 and self.strides in ((), (self.dtype.itemsize,))


def wrap(desc: MemoryDesc, buffer: object) -> NDArray[np.uint8]:
    """The ``desc.size`` bytes of ``buffer``, not copied; they keep its owner alive.

    A buffer with one axis and no gaps counts as plain bytes. Any other must have the shape and
    strides of ``desc``. Raises `InvalidArguments` where it does not. The bytes are read-only if the
    buffer is.
    """
    found = _describe(buffer)
    check_fit(desc, found)
    return bytes_at(found.address, desc.size, found.owner, readonly=found.readonly)


def check_fit(desc: MemoryDesc, found: Described) -> None:
    """Raise `InvalidArguments` where a buffer does not have the elements of ``desc``."""
    _check_type(desc, found)
    if not found.is_flat:
        _check_shape(desc, found)
    elif found.nbytes != desc.size:
        rule = f"the buffer has {found.nbytes} bytes, {desc} needs {desc.size}"
        # Those of a part of a tensor end with its last element.
        hint = f"pass the first of them: memory.data[:{desc.size}]"
        hint = hint if found.nbytes > desc.size else ""
        raise InvalidArguments("buffer", _name(found), rule, hint)


def array_of(source: ArrayLike, argument: str = "array") -> np.ndarray:
    """What NumPy or DLPack can read as an array; not copied where it need not be.

    Raises `InvalidArguments` for anything else.
    """
    try:
        array = np.asarray(source)
        if array.dtype.kind in "OSU":
            raise TypeError(f"these are no numbers, but NumPy's {array.dtype}")
        return array
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        if isinstance(source, np.ndarray) or not hasattr(source, "__dlpack__"):
            rule = f"NumPy cannot read it: {error}"
            raise InvalidArguments(argument, type(source).__name__, rule) from error
    found = _describe_dlpack(source, argument)  # a tensor of a type that NumPy lacks
    return array_at(
        found.address, found.dtype, found.shape, found.strides, found.owner, readonly=found.readonly
    )


def _describe(buffer: object) -> Described:
    if not isinstance(buffer, np.ndarray):
        try:
            buffer = np.asarray(memoryview(buffer))  # type: ignore[arg-type]
        except TypeError:
            return _describe_dlpack(buffer, "buffer")
        except ValueError as error:
            rule = f"its element format has no NumPy type: {error}"
            raise InvalidArguments("buffer", type(buffer).__name__, rule) from error
    return Described(
        buffer,
        buffer.__array_interface__["data"][0],
        buffer.dtype,
        buffer.shape,
        buffer.strides,
        not buffer.flags.writeable,
    )


def _describe_dlpack(exporter: object, argument: str) -> Described:
    if not exports(exporter):
        rule = "expected a buffer or an object with __dlpack__"
        hint = "NumPy arrays, bytearray, memoryview, mmap, ctypes arrays and tensors are such"
        raise InvalidArguments(argument, type(exporter).__name__, rule, hint)
    tensor = dlpack.read(exporter, argument)
    strides = tuple(stride * tensor.dtype.itemsize for stride in tensor.strides)
    return Described(
        tensor.capsule, tensor.address, tensor.dtype, tensor.shape, strides, tensor.readonly
    )


def exports(source: object) -> TypeGuard[dlpack.Exporter]:
    return hasattr(source, "__dlpack__")


def _name(found: Described) -> str:
    return f"{found.dtype} buffer of shape {found.shape}"


def _check_type(desc: MemoryDesc, found: Described) -> None:
    """The elements must be of the tensor's type, or raw bits."""
    own = desc.data_type.numpy
    raw = found.dtype.kind in "uVSb" and found.dtype.isbuiltin != _USER_DEFINED
    # Who has bf16 and the like in a library without that type has the bits in integers.
    bits = own.isbuiltin == _USER_DEFINED and found.dtype.kind in "iu"
    if found.dtype != own and not raw and not bits:
        rule = f"the buffer's elements are {found.dtype}, the tensor's are {desc.data_type}"
        hint = "pass unsigned integers for raw bits: array.view('u1')"
        raise InvalidArguments("buffer", _name(found), rule, hint)


def _check_shape(desc: MemoryDesc, found: Described) -> None:
    """A buffer with a shape must have its elements where the descriptor has them."""
    hint = "pass its bytes with one axis to have them taken as they are"
    if len(found.shape) == 1:  # and it has gaps, or it would count as bytes
        hint = "pass an array without gaps: numpy.ascontiguousarray"
    if found.shape != desc.dims:
        rule = f"the buffer's shape must be {desc.dims}"
        raise InvalidArguments("buffer", _name(found), rule, hint)
    if desc.size == 0:
        return
    strides = plain_strides(desc)
    own = strides and tuple(stride * desc.data_type.size for stride in strides)
    whole = desc.dims == desc.padded_dims and desc.offset0 == 0 and desc.data_type.bits >= 8
    whole = whole and desc.compensation is None
    if own is None or not whole or found.dtype.itemsize != desc.data_type.size:
        rule = f"an array with that shape does not have its elements as {desc} has them"
        raise InvalidArguments("buffer", _name(found), rule, hint)
    places = zip(found.strides, own, desc.dims, strict=True)
    if any(a != b for a, b, size in places if size > 1):
        rule = f"the buffer's strides in bytes must be {own}, they are {found.strides}"
        raise InvalidArguments("buffer", _name(found), rule, hint)
