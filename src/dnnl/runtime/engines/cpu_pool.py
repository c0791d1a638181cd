"""The fork-join pool of Linux: workers wait in generated code, `cpu_pool_ir`, for parts of phases.

Python is only needed to set it up, to tell it about a fork and to choose how long a worker spins.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING

from dnnl import lazy
from dnnl.runtime import sharing, teams
from dnnl.runtime.engines.cpu_launch import RUN_IR, SERIAL_IR
from dnnl.runtime.engines.cpu_pages import Pages
from dnnl.runtime.engines.cpu_pool_ir import POOL_IR
from dnnl.runtime.threads import ThreadPool

if TYPE_CHECKING:
    from dnnl.runtime.engines import cpu_jit
else:
    cpu_jit = lazy.Module("dnnl.runtime.engines.cpu_jit")  # and with it LLVM

# How long a worker without work, or a caller whose workers are late, spins before it sleeps in
# the kernel. Waking a sleeper costs 5-50 us, and the gaps between the primitives of a network are
# about 10 us; beyond that spinning only takes the cpu from other processes.
SPIN_MICROSECONDS = 100

MAX_THREADS = 512  # more are not used: the table of workers has a fixed size


@dataclass(frozen=True)
class Machine:
    """What Linux calls on one architecture: numbers of system calls, the spin-wait hint."""

    futex: int
    gettid: int
    sched_setaffinity: int
    sched_getaffinity: int
    pause: str


_X86 = Machine(202, 186, 203, 204, "llvm.x86.sse2.pause()")
_AARCH64 = Machine(98, 178, 122, 123, "llvm.aarch64.hint(i32 1)")
MACHINES = {"x86_64": _X86, "aarch64": _AARCH64}


class NativePool(ThreadPool):
    """Workers that spin for a while and then sleep; made when an execution first needs them."""

    name = "native"

    @classmethod
    def supported(cls) -> bool:
        # A 32-bit process on a 64-bit kernel has other call numbers.
        return sys.platform == "linux" and platform.machine() in MACHINES and sys.maxsize > 2**32

    @staticmethod
    def offer(code: Mapping[str, bytes]) -> None:
        """Objects of `startup_code`, by their keys, of which one may be this pool."""
        _offered.update(code)

    @staticmethod
    def startup_code() -> dict[str, bytes]:
        """The object of this pool, by a key that changes with its text."""
        text = pool_ir(MACHINES[platform.machine()])
        return {_key(text): cpu_jit.assemble(text)}

    def entry(self) -> int:
        text = pool_ir(MACHINES[platform.machine()])
        code = _offered.get(_key(text)) or cpu_jit.assemble(text)
        symbols = ("run", "spin", "configure", "adopt", "forget")
        if Pages.supported():
            run, spin, configure, adopt, forget = _linked(code, symbols)
        else:
            run, spin, configure, adopt, forget = cpu_jit.link_forever(code, symbols)
        spins = _spins_in(SPIN_MICROSECONDS, ctypes.CFUNCTYPE(None, ctypes.c_int64)(spin))
        configure_with = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(configure)
        configure_with(spins, sharing.cells_address())
        adopted = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_uint64)(adopt)
        teams.expect(lambda team: adopted(*team, threading.main_thread().ident))
        # A child of fork has none of the threads: it forgets them and makes its own on demand.
        os.register_at_fork(after_in_child=ctypes.CFUNCTYPE(None)(forget))
        return run


_offered: dict[str, bytes] = {}
_kept: list[Pages] = []


def _key(text: str) -> str:
    return f"pool {platform.machine()} {hashlib.sha256(text.encode()).hexdigest()}"


def _linked(code: bytes, symbols: tuple[str, ...]) -> tuple[int, ...]:
    """The addresses of the symbols of an object that stays: threads are in it at any time."""
    pages = Pages(code, symbols, variables=True)
    _kept.append(pages)
    return pages.addresses


def pool_ir(machine: Machine) -> str:
    """The pool for a machine, as a whole module of LLVM IR text."""
    values = {**machine.__dict__, "workers": MAX_THREADS - 1, "limit": MAX_THREADS}
    return RUN_IR + SERIAL_IR + Template(POOL_IR).substitute(values)


def _spins_in(microseconds: float, spin: Callable[[int], object]) -> int:
    """How many spin-wait hints take that long; one takes 4 to 100 ns, by processor."""
    hints = 500
    best = float("inf")
    for _ in range(3):  # the least disturbed of three
        start = time.perf_counter_ns()
        spin(hints)
        best = min(best, time.perf_counter_ns() - start)
    return max(1, int(hints * microseconds * 1000 / max(best, 1.0)))
