"""The primitives of this process: least recently used go first, and equal ones are built once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from math import inf
from threading import get_ident
from typing import Generic, TypeVar

from dnnl import forks

V = TypeVar("V")


class Cache(Generic[V]):
    """Values by key, safe for threads.

    Whoever asks for a key first builds its value; others who ask meanwhile wait for that one
    build. If it is interrupted, the next of them builds. At most ``capacity()`` values are kept, of
    at most ``limit()`` bytes in all, as ``size`` of each says; both are asked at each build. A
    child of a fork keeps what is complete.
    """

    def __init__(
        self,
        capacity: Callable[[], int],
        limit: Callable[[], float] = lambda: inf,
        size: Callable[[V], int] = lambda _: 0,
    ) -> None:
        self._capacity, self._limit, self._size = capacity, limit, size
        self._lock = forks.Lock()
        self._kept: OrderedDict[Hashable, V] = OrderedDict()  # the least recently used first
        self._total = 0
        self._building: dict[Hashable, tuple[Future[V], int]] = {}  # the thread as well
        forks.renew(self)

    def get(self, key: Hashable, build: Callable[[], V]) -> tuple[V, bool]:
        """The value of ``key``, and whether it was there already."""
        while True:
            try:
                return self._get(key, build)
            except CancelledError:  # who was building it gave up
                continue

    def _get(self, key: Hashable, build: Callable[[], V]) -> tuple[V, bool]:
        mine: Future[V] = Future()
        try:
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key], True
                future, thread = self._building.get(key, (mine, get_ident()))
                if future is mine or future.done():
                    self._building[key] = future, thread = mine, get_ident()
            # A signal handler may ask for what its own thread is building, and then builds it too.
            if future is not mine and thread != get_ident():
                return future.result(), True
            value = build()
            self._keep(key, value)
            mine.set_result(value)
            return value, False
        except BaseException as error:
            if isinstance(error, Exception):
                mine.set_exception(error)
            else:  # an interrupt is meant for this thread only
                mine.cancel()
            raise
        finally:
            with self._lock:
                if self._building.get(key, (None,))[0] is mine:
                    del self._building[key]

    def _keep(self, key: Hashable, value: V) -> None:
        capacity, limit = self._capacity(), self._limit()
        with self._lock:
            if key in self._kept:
                self._total -= self._size(self._kept[key])
            self._kept[key] = value
            self._total += self._size(value)
            while self._kept and (len(self._kept) > capacity or self._total > limit):
                _, dropped = self._kept.popitem(last=False)
                self._total -= self._size(dropped)

    def after_fork(self) -> None:
        """In a child of a fork: nobody is there any more to finish a build."""
        self._building = {}
        self._total = sum(map(self._size, self._kept.values()))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self._total = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)
