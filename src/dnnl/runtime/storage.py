"""Buffers of bytes: allocation, and views of memory that belongs to somebody else."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache, wraps
from math import prod
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from dnnl.errors import OutOfMemory
from dnnl.types.size import Size

P = ParamSpec("P")
T = TypeVar("T")

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


def allocating(function: Callable[P, T]) -> Callable[P, T]:
    """The function; `OutOfMemory` also where what it allocates besides tensors does not fit."""

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except OutOfMemory:
            raise
        except MemoryError as error:
            raise OutOfMemory(str(error) or "the system refuses memory") from None

    return checked


def allocate(nbytes: int) -> NDArray[np.uint8]:
    """``nbytes`` uninitialised bytes, aligned to `ALIGNMENT`.

    Raises `OutOfMemory` where the machine has less or the system refuses. An empty buffer has an
    address too.
    """
    check_capacity(nbytes)
    try:
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError):
        raise OutOfMemory(f"cannot allocate {size_text(nbytes)}") from None
    start = -address_of(raw) % ALIGNMENT
    return raw[start : start + nbytes]


def allocate_array(dtype: np.dtype, dims: tuple[int, ...]) -> tuple[np.ndarray, int]:
    """An uninitialised array, its first element aligned to `ALIGNMENT`, and the address of that;
    whoever asks has checked the capacity."""
    raw = np.empty(prod(dims) * dtype.itemsize + ALIGNMENT, np.uint8)
    address = raw.__array_interface__["data"][0]
    start = -address % ALIGNMENT
    return np.ndarray(dims, dtype, raw, start), address + start


def check_capacity(nbytes: float) -> None:
    """Raise `OutOfMemory` for more bytes than the machine has: the system would grant many of
    them, and stop the process when they are touched. Of sizes that only an execution knows the
    typical ones count.
    """
    memory = physical_memory()
    if isinstance(nbytes, Size):
        nbytes = nbytes.typical
    if nbytes > memory:
        raise OutOfMemory(
            f"cannot allocate {size_text(nbytes)}: this machine has {size_text(memory)}"
        )


def size_text(nbytes: float) -> str:
    """A number of bytes as messages have it."""
    return f"{nbytes:.0f} bytes ({nbytes / 2**30:.3g} GiB)"


@cache
def physical_memory() -> float:
    """The bytes of memory of this machine; infinity where it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def address_of(data: NDArray[np.uint8]) -> int:
    """The address of bytes; three times as fast as ``data.ctypes.data`` if they are writable."""
    if data.size and data.flags.writeable:
        return ctypes.addressof(ctypes.c_byte.from_buffer(data.data))
    return data.ctypes.data


def bytes_at(
    address: int, nbytes: int, owner: object, *, readonly: bool = False
) -> NDArray[np.uint8]:
    """Memory at an address as bytes. The array keeps ``owner`` alive, which owns them."""
    return np.asarray(_Lent(owner, address, readonly, "|u1", (nbytes,), (1,)))


def bytes_of(array: np.ndarray, nbytes: int) -> NDArray[np.uint8]:
    """The bytes of an array, of which the last element ends at ``nbytes``; not copied."""
    if array.flags.c_contiguous:
        return array.reshape(-1).view(np.uint8)
    address, readonly = array.__array_interface__["data"]
    return bytes_at(address, nbytes, array, readonly=readonly)


def array_at(
    address: int,
    dtype: np.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    owner: object,
    *,
    readonly: bool,
) -> np.ndarray:
    """Memory at an address as an array of any type, ``strides`` in bytes; it holds ``owner``."""
    # The interface has no codes for the types of ml_dtypes.
    raw = np.asarray(_Lent(owner, address, readonly, f"|V{dtype.itemsize}", shape, strides))
    return raw.view(dtype)


class _Lent:
    """Memory as NumPy's array interface describes it."""

    def __init__(
        self,
        owner: object,
        address: int,
        readonly: bool,
        typestr: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (address, readonly),
            "typestr": typestr,
            "shape": shape,
            "strides": strides,
        }
