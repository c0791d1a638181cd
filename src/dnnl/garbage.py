"""Pauses of Python's garbage collector while only new objects are created."""

from __future__ import annotations

import gc

from dnnl import forks


class Pause:
    """A context in which no thread collects garbage.

    The IR of a kernel consists of thousands of objects that stay until it is printed. Traversing
    them again and again would take a third of the time.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _state.enter()

    def __exit__(self, *exception: object) -> None:
        _state.leave()


class _State:
    """The number of pauses in the process, and whether collection was enabled before them."""

    def __init__(self) -> None:
        self._lock = forks.Lock()
        self._pauses, self._collects = 0, False
        forks.renew(self)

    def enter(self) -> None:
        """Begin a pause."""
        with self._lock.own:
            if not self._pauses:
                self._collects = gc.isenabled()
                gc.disable()
            self._pauses += 1

    def leave(self) -> None:
        """End a pause."""
        with self._lock.own:
            self._pauses = max(0, self._pauses - 1)
            if not self._pauses and self._collects:
                gc.enable()

    def after_fork(self) -> None:
        """End the pauses of threads that the child does not have."""
        if self._pauses:
            self._pauses = 1
            self.leave()


_state = _State()
