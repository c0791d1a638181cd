"""Buffers between two pages that nobody may touch: one byte too far ends the process."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from dnnl.primitives import scratchpads
from dnnl.runtime.engine import Engine
from dnnl.runtime.engines import cpu_launch
from dnnl.runtime.memory import Memory
from dnnl.types.memory_desc import MemoryDesc

End: TypeAlias = Literal["end", "start"]
RUNS: tuple[tuple[int, End], ...] = ((1, "end"), (2, "end"), (2, "start"))
"""The executions of a check: how many threads, and where the buffers lie."""
_PROT_NONE = 0


def guarded(nbytes: int, at: End = "end") -> NDArray[np.uint8]:
    """``nbytes`` zero bytes that end right before an inaccessible page, or start right after one.

    POSIX only. With ``at="end"`` the address is as aligned as ``nbytes`` is.
    """
    page = mmap.PAGESIZE
    inner = -(-max(nbytes, 1) // page) * page
    pages = mmap.mmap(-1, inner + 2 * page)
    whole = np.frombuffer(pages, np.uint8)  # keeps the map open
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    address = whole.ctypes.data
    for guard in (address, address + page + inner):
        if libc.mprotect(guard, page, _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    first = page + inner - nbytes if at == "end" else page
    return whole[first : first + nbytes]


def near(memory: Memory, at: End = "end") -> Memory:
    """A copy of a memory beside pages that nobody may touch, where there are such pages."""
    if memory.desc.encoding is not None:
        return Memory(memory.desc, memory.engine, [near(part, at) for part in memory.parts])
    if sys.platform == "win32":
        return Memory(memory.desc, memory.engine, memory.data.copy())
    buffer = guarded(memory.desc.size, at)
    buffer[:] = memory.data
    return Memory(memory.desc, memory.engine, buffer)


@contextmanager
def guarded_scratch() -> Iterator[None]:
    """The memory of threads, and the library's own scratchpads, end right before inaccessible
    pages."""
    if sys.platform == "win32":
        yield
        return

    def scratchpad(desc: MemoryDesc, engine: Engine) -> Memory:
        memory = Memory(desc, engine)
        return memory if memory.buffer.data is None else near(memory)

    with (
        patch.object(cpu_launch, "_idle", _NothingIdle()),
        patch.object(cpu_launch, "allocate", guarded),
        patch.object(scratchpads, "Memory", scratchpad),
    ):
        yield


class _NothingIdle:
    """Memory of threads is taken anew for each execution, as large as it has to be."""

    @property
    def data(self) -> None:
        return None

    @data.setter
    def data(self, _: tuple[NDArray[np.uint8], int]) -> None:
        pass
