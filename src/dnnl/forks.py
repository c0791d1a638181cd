"""Forks while other threads are at work: what is held meanwhile, and what a child makes anew.

A child of a fork has one thread, and memory as it was at that moment. What another thread was
changing stays half changed for ever, and a lock that it held stays taken. So a fork waits for the
locks given to `hold`: for what a child could not put in order. It puts in order itself what was
given to `renew`, a `Lock` for example.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

_POSSIBLE = hasattr(os, "register_at_fork")


class Renewed(Protocol):
    """Whatever is no longer valid in the child of a fork, until it is told."""

    def after_fork(self) -> None:
        """Put it in order. No other thread is there."""


_renewed: weakref.WeakSet[Renewed] = weakref.WeakSet()


class Lock:
    """A lock, for ``with lock.own:``, that is free in every child of a fork, whoever had it.

    Signal handlers and finalizers may take it again, in the middle of what their thread does. A
    handler that raises, as that of SIGINT, does not leave it taken: ``own`` enters and exits in C,
    where none runs in between, which methods in Python would not.
    """

    __slots__ = ("__weakref__", "own")

    def __init__(self) -> None:
        self.own = threading.RLock()
        renew(self)

    def after_fork(self) -> None:
        """Take another one, unless nobody has it or the thread that forks, which goes on."""
        if self.own.acquire(blocking=False):
            self.own.release()
        else:
            self.own = threading.RLock()


def hold(lock: threading.Lock | threading.RLock) -> None:
    """Take a lock of this process around every fork. Whoever has it must not wait for another."""
    if _POSSIBLE:
        os.register_at_fork(
            before=lock.acquire, after_in_child=lock.release, after_in_parent=lock.release
        )


def renew(state: Renewed) -> None:
    """Call ``after_fork`` in every child, as long as somebody else holds ``state``."""
    _renewed.add(state)


def _after_fork() -> None:
    for state in list(_renewed):
        state.after_fork()


if _POSSIBLE:
    os.register_at_fork(after_in_child=_after_fork)
