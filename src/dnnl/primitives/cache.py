"""The primitives of this process: least recently used go first, and equal ones are built once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from math import inf
from threading import RLock
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from dnnl import forks

V = TypeVar("V")


class _Build(Generic[V]):
    """The build of a value: ``own`` is held by whoever is at it, ``made`` has the value if there is
    one. Once nobody waits for it, it is gone."""

    __slots__ = ("__weakref__", "made", "own")

    def __init__(self) -> None:
        self.own = RLock()
        self.made: tuple[V, ...] = ()


class Cache(Generic[V]):
    """Values by key, safe for threads.

    Whoever asks for a key first builds its value; others who ask meanwhile wait for that one
    build. If it fails or is interrupted, the next of them builds. At most ``capacity()`` values are
    kept, of at most ``limit()`` bytes in all, as ``size`` of each says; both are asked at each
    build. A child of a fork keeps what is complete.

    Signals may come between any two lines. So locks are held by ``with`` alone, and nothing has to
    be put in order behind them.
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
        self._builds: WeakValueDictionary[Hashable, _Build[V]] = WeakValueDictionary()
        forks.renew(self)

    def get(self, key: Hashable, build: Callable[[], V]) -> tuple[V, bool]:
        """The value of ``key``, and whether it was there already."""
        with self._lock.own:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key], True
            found = self._builds.get(key)
            turn: _Build[V] = _Build() if found is None else found
            self._builds[key] = turn
        # A signal handler may ask for what its own thread is building, and then builds it too.
        with turn.own:
            if turn.made:
                return turn.made[0], True
            value = build()
            turn.made = (value,)
            self._keep(key, value)
            return value, False

    def _keep(self, key: Hashable, value: V) -> None:
        capacity, limit = self._capacity(), self._limit()
        with self._lock.own:
            self._kept[key] = value
            total = sum(map(self._size, self._kept.values()))
            while self._kept and (len(self._kept) > capacity or total > limit):
                _, dropped = self._kept.popitem(last=False)
                total -= self._size(dropped)

    def after_fork(self) -> None:
        """In a child of a fork: nobody is there any more to finish a build."""
        self._builds = WeakValueDictionary()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock.own:
            self._kept.clear()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)
