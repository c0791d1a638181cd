"""Buffers of bytes: allocation, and views of memory that belongs to somebody else."""

from __future__ import annotations

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
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]
