"""The primitives of this process: least recently used go first, and equal ones are built once."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Generic, TypeVar

V = TypeVar("V")


def _after_fork(reference: weakref.ref[Cache[Any]]) -> None:
    cache = reference()
    if cache is not None:
        cache.forget_unfinished()


class Cache(Generic[V]):
    """Values by key, safe for threads.

    Whoever asks for a key first builds its value; others who ask meanwhile wait for that one
    build. If it is interrupted, the next of them builds. ``capacity()`` is asked at each insertion;
    0 keeps nothing. A child of a fork keeps what is complete.
    """

    def __init__(self, capacity: Callable[[], int]) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._futures: OrderedDict[Hashable, Future[V]] = OrderedDict()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_after_fork, weakref.ref(self)))

    def get(self, key: Hashable, build: Callable[[], V]) -> tuple[V, bool]:
        """The value of ``key``, and whether it was there already."""
        while True:
            try:
                return self._get(key, build)
            except CancelledError:  # who was building it gave up
                continue

    def _get(self, key: Hashable, build: Callable[[], V]) -> tuple[V, bool]:
        with self._lock:
            future = self._futures.get(key)
            if future is not None:
                self._futures.move_to_end(key)
            else:
                mine: Future[V] = Future()
                self._futures[key] = mine
                self._shrink()
        if future is not None:
            return future.result(), True
        try:
            value = build()
        except BaseException as error:
            with self._lock:
                if self._futures.get(key) is mine:
                    del self._futures[key]
            if isinstance(error, Exception):
                mine.set_exception(error)
            else:  # an interrupt is meant for this thread only
                mine.cancel()
            raise
        mine.set_result(value)
        return value, False

    def _shrink(self) -> None:
        while len(self._futures) > self._capacity():
            self._futures.popitem(last=False)

    def forget_unfinished(self) -> None:
        """In a child of a fork: nobody is there any more to finish a build or to free the lock."""
        self._lock = threading.Lock()
        done = [(key, future) for key, future in self._futures.items() if future.done()]
        self._futures = OrderedDict(done)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._futures.clear()

    def __len__(self) -> int:
        return len(self._futures)
