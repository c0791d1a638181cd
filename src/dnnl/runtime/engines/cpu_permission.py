"""What Linux has to allow before a process may use it: tiles of x86-64 (AMX)."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

_TILES = "amx-tile"
_ARCH_PRCTL = 158
_REQUEST = 0x1023  # ARCH_REQ_XCOMP_PERM
_TILE_DATA = 18  # the number of the component of a thread's state


def permitted(flags: frozenset[str]) -> frozenset[str]:
    """The features of this processor without those that the system does not let this process use.

    What a process was allowed once, it may use in all its threads and after a fork.
    """
    if _TILES not in flags or _request_tiles():
        return flags
    return frozenset(flag for flag in flags if not flag.startswith("amx-"))


@cache
def _request_tiles() -> bool:
    """Ask for tiles. Each thread's state grows by 8 KiB when it first uses them, so that the system
    refuses where a stack for signals is too small for that."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    if sys.maxsize < 2**32:  # other numbers of calls
        return False
    call = ctypes.CDLL(None).syscall
    call.argtypes, call.restype = [ctypes.c_long] * 3, ctypes.c_long
    return bool(call(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
