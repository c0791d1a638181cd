"""Executable memory of Linux: pages of a few large mappings, given out and taken back.

Pages are written before anybody knows them and can be executed after that: never both at a time.
Neighbours with equal rights are one mapping to the system, so that thousands of kernels take a few.
A child of a fork has its own copy of all.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
import weakref
from collections import deque
from functools import cache

from dnnl.errors import Error, OutOfMemory
from dnnl.runtime.engines.cpu_code import Code, lock
from dnnl.runtime.engines.cpu_elf import Object

_PAGE = mmap.PAGESIZE
_ARENA = 1024  # pages of a mapping, unless one object needs more


class Pages(Code):
    """An object in pages of its own, which are given back when nobody holds this any more."""

    @classmethod
    def supported(cls) -> bool:
        # A 32-bit process on a 64-bit kernel has other objects.
        return sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 2**32

    def __init__(self, code: bytes, symbols: tuple[str, ...], *, variables: bool = False) -> None:
        parsed = Object(code, variables=variables)
        missing = [symbol for symbol in symbols if symbol not in parsed.symbols]
        if missing:
            raise Error(f"cannot load object code ({len(code)} bytes): no symbol {missing[0]!r}")
        count = -(-parsed.size // _PAGE)
        with lock:
            arena, first = _free_pages(count)
            pages = slice(first, first + count)
            # Whoever runs is interrupted by this, perhaps in `_free_pages`: it only sets a flag.
            weakref.finalize(self, _released.append, (arena, pages)).atexit = False
            start = arena.address + first * _PAGE
            arena.write(pages, parsed.at(start), parsed.variables)
        self.addresses = tuple(start + parsed.symbols[symbol] for symbol in symbols)
        self.nbytes = count * _PAGE


class _Arena:
    """A mapping and which of its pages are in use.

    It is unmapped by `close` alone, not when the process ends: threads may still execute then.
    """

    def __init__(self, pages: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        rights = mmap.PROT_READ | mmap.PROT_EXEC
        found = _libc().mmap(None, pages * _PAGE, rights, flags, -1, 0)
        if found == ctypes.c_void_p(-1).value:
            raise OutOfMemory(f"no {pages * _PAGE} bytes of executable memory: {_reason()}")
        self.address: int = found
        self.used = bytearray(pages)

    def take(self, first: int, count: int) -> None:
        """Note that pages are in use."""
        self.used[first : first + count] = b"\x01" * count

    def write(self, pages: slice, content: bytes, variables: int = 0) -> None:
        """Fill pages that are in use by nobody else. The first bytes, as far as they are
        ``variables``, stay writable and are never executable."""
        start, nbytes = self.address + pages.start * _PAGE, (pages.stop - pages.start) * _PAGE
        _protect(start, nbytes, mmap.PROT_WRITE)
        ctypes.memmove(start, content, len(content))
        _protect(start + variables, nbytes - variables, mmap.PROT_EXEC)

    def close(self) -> None:
        """Unmap it."""
        _libc().munmap(self.address, len(self.used) * _PAGE)


def _protect(start: int, nbytes: int, rights: int) -> None:
    if _libc().mprotect(start, nbytes, mmap.PROT_READ | rights):
        raise OutOfMemory(f"no rights to {nbytes} bytes of executable memory: {_reason()}")


# Guarded by `lock`, but for the appending to `_released`, which needs none.
_arenas: list[_Arena] = []
_released: deque[tuple[_Arena, slice]] = deque()
_choosing = False


def _free_pages(count: int) -> tuple[_Arena, int]:
    """Free pages in one piece, from now on in use: their mapping, and the number of the first.

    A signal handler may come here while its thread chooses: it gets a mapping of its own.
    """
    global _choosing  # noqa: PLW0603 - guarded as the mappings are
    if not _choosing:
        _choosing = True
        try:
            _take_back()
            for arena in _arenas:
                first = arena.used.find(bytes(count))
                if first >= 0:
                    arena.take(first, count)
                    return arena, first
        finally:
            _choosing = False
    arena = _Arena(max(_ARENA, count))
    arena.take(0, count)
    _arenas.append(arena)
    return arena, 0


def _take_back() -> None:
    """Free what was released, and unmap the mappings that are empty now, all but one."""
    while _released:
        arena, pages = _released.popleft()
        arena.used[pages] = bytes(pages.stop - pages.start)
    for arena in _arenas[1:]:
        if not any(arena.used):
            _arenas.remove(arena)
            arena.close()


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = (address, size, number, number, number, ctypes.c_long)
    libc.mmap.restype = address
    libc.mprotect.argtypes = (address, size, number)
    libc.munmap.argtypes = (address, size)
    return libc


def _reason() -> str:
    return os.strerror(ctypes.get_errno())
