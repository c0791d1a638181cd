"""Buffers of bytes: allocation, and views of memory that belongs to somebody else."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
from numpy.typing import NDArray

from dnnl.errors import OutOfMemory

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


def allocate(nbytes: int) -> NDArray[np.uint8]:
    """``nbytes`` uninitialised bytes, aligned to `ALIGNMENT`.

    Raises `OutOfMemory` where the system refuses. An empty buffer has an address too.
    """
    room = nbytes + ALIGNMENT
    try:
        if room > sys.maxsize:
            raise MemoryError
        raw = np.empty(room, np.uint8)
    except MemoryError:
        raise OutOfMemory(f"cannot allocate {nbytes} bytes ({nbytes / 2**30:.3g} GiB)") from None
    start = -address_of(raw) % ALIGNMENT
    return raw[start : start + nbytes]


def address_of(data: NDArray[np.uint8]) -> int:
    """Where writable bytes lie; three times as fast as ``data.ctypes.data``."""
    return ctypes.addressof(ctypes.c_byte.from_buffer(data.data)) if data.size else data.ctypes.data


def bytes_at(address: int, nbytes: int, owner: object) -> NDArray[np.uint8]:
    """Memory at an address as writable bytes. The array keeps ``owner`` alive, which keeps it."""
    return np.asarray(_Lent(address, nbytes, owner))


class _Lent:
    """Memory as NumPy's array interface describes it."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
        }
