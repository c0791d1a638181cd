"""Requests that run at the same time, as the pool of threads must know them to divide the cpus.

A request, such as a run of a session, executes one primitive after the other. Between two of them
it is in Python and invisible to the pool, which would give its cpu to somebody else just then.
"""

from __future__ import annotations

import ctypes
import threading

from dnnl import forks
from dnnl.runtime.threads import available_cpus


class _Cells(ctypes.Structure):
    """What the pool reads at every phase, `engines.cpu_pool_ir`."""

    _fields_ = (("requests", ctypes.c_int64), ("cpus", ctypes.c_int64))


_cells = _Cells()


class _Running:
    """The threads that have a request."""

    def __init__(self) -> None:
        # A thread that an interrupt has kept from leaving is put in order by its next request.
        self._threads: dict[int, None] = {}
        self._lock = forks.Lock()
        forks.renew(self)

    def enter(self) -> None:
        """Count the calling thread as one that needs a cpu, until `leave`: once, however often."""
        with self._lock.own:
            self._threads[threading.get_ident()] = None
            _cells.requests = len(self._threads)

    def leave(self) -> None:
        """The end of the thread's request. Nothing happens where there is none."""
        with self._lock.own:
            self._threads.pop(threading.get_ident(), None)
            _cells.requests = len(self._threads)

    def after_fork(self) -> None:
        own = threading.get_ident()
        self._threads = {own: None} if own in self._threads else {}
        _cells.requests = len(self._threads)


_running = _Running()
enter, leave = _running.enter, _running.leave


def requests() -> int:
    """How many threads have a request now."""
    return int(_cells.requests)


def cells_address() -> int:
    """The address of two int64: how many requests there are, and how many cpus for them."""
    _cells.cpus = available_cpus()
    return ctypes.addressof(_cells)
