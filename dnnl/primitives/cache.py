"""The primitives of this process: least recently used go first, and equal ones are built once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

V = TypeVar("V")


class Cache(Generic[V]):
    """Values by key, safe for threads.

    Whoever asks for a key first builds its value; others who ask meanwhile wait for that one
    build. ``capacity()`` is asked at each insertion; 0 keeps nothing.
    """

    def __init__(self, capacity: Callable[[], int]) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._futures: OrderedDict[Hashable, Future[V]] = OrderedDict()

    def get(self, key: Hashable, build: Callable[[], V]) -> tuple[V, bool]:
        """The value of ``key``, and whether it was there already."""
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
            mine.set_exception(error)
            raise
        mine.set_result(value)
        return value, False

    def _shrink(self) -> None:
        while len(self._futures) > self._capacity():
            self._futures.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._futures.clear()

    def __len__(self) -> int:
        return len(self._futures)
