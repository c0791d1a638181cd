"""Python's collector of garbage, which pauses while objects only come into being."""

from __future__ import annotations

import gc

from dnnl import forks


class Pause:
    """Within ``with Pause():`` nothing is collected, in any thread.

    The instructions of a kernel are thousands of objects that all stay until its text is written.
    The collector would look at them again and again, for a third of the time.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _state.enter()

    def __exit__(self, *exception: object) -> None:
        _state.leave()


class _State:
    """How many pauses there are in the process, and whether to collect after the last."""

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
        """End the pauses of threads that are not there: a fork begins none."""
        if self._pauses:
            self._pauses = 1
            self.leave()


_state = _State()
