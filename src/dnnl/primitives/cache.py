"""The primitives of this process: least recently used go first, and equal ones are built once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from threading import RLock
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from dnnl import forks

V = TypeVar("V")


class _Key:
    """A key with its hash, which is computed once: dictionaries ask for it at each step."""

    __slots__ = ("_hash", "value")

    def __init__(self, value: Hashable) -> None:
        self.value, self._hash = value, hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.value == other.value


class _Build(Generic[V]):
    """The build of a value: ``own`` is held while it runs, ``value`` has the result if there is
    one. Once nobody waits for it, it is gone."""

    __slots__ = ("__weakref__", "own", "value")

    def __init__(self) -> None:
        self.own = RLock()
        self.value: tuple[V, ...] = ()


class Cache(Generic[V]):
    """Values by key, safe for threads.

    Whoever asks for a key first builds its value; others who ask meanwhile wait for that one
    build. If it fails or is interrupted, the next of them builds. At most ``capacity()`` values are
    stored, of at most ``limit()`` bytes in all if ``size`` gives those of each; both are asked at
    each build. A child of a fork has what is complete.

    Signals may come between any two lines, and while a key is hashed. So locks are held by ``with``
    alone, and nothing has to be put in order behind them: a dict changes at once, where an
    OrderedDict that is interrupted by the hash of a key has keys without values.
    """

    def __init__(
        self,
        capacity: Callable[[], int],
        limit: Callable[[], float] = lambda: inf,
        size: Callable[[V], int] | None = None,
    ) -> None:
        self._capacity, self._limit, self._size = capacity, limit, size
        self._lock = forks.Lock()
        self._values: dict[_Key, V] = {}  # the least recently used first
        self._builds: WeakValueDictionary[_Key, _Build[V]] = WeakValueDictionary()
        forks.renew(self)

    def get(self, key: Hashable, build: Callable[[], V]) -> tuple[V, bool]:
        """The value of ``key``, and whether it was there already."""
        own = _Key(key)
        with self._lock.own:
            if own in self._values:
                value = self._values[own] = self._values.pop(own)
                return value, True
            found = self._builds.get(own)
            current: _Build[V] = _Build() if found is None else found
            self._builds[own] = current
        # A signal handler may ask for what its own thread is building, and then builds it too.
        with current.own:
            if current.value:
                return current.value[0], True
            value = build()
            current.value = (value,)
            self._store(own, value)
            return value, False

    def _store(self, key: _Key, value: V) -> None:
        capacity, limit, size = self._capacity(), self._limit(), self._size
        with self._lock.own:
            self._values[key] = value
            total = 0 if size is None else sum(map(size, tuple(self._values.values())))
            for oldest in tuple(self._values):
                if len(self._values) <= capacity and total <= limit:
                    break
                dropped = self._values.pop(oldest, None)
                total -= 0 if size is None or dropped is None else size(dropped)

    def after_fork(self) -> None:
        """In a child of a fork: nobody is there any more to finish a build."""
        self._builds = WeakValueDictionary()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock.own:
            self._values.clear()

    def __contains__(self, key: Hashable) -> bool:
        return _Key(key) in self._values

    def __len__(self) -> int:
        return len(self._values)
