"""Requests that run at the same time: their memory, and the threads of those that are awaited."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from dnnl import forks, lazy
from dnnl.errors import InvalidArguments, OutOfMemory
from dnnl.framework.bound import Binder
from dnnl.graph.expressions import Numbers
from dnnl.runtime import sharing
from dnnl.runtime.storage import size_text
from dnnl.runtime.threads import available_cpus

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy.Module("asyncio")  # which takes long, and who awaits has it

T = TypeVar("T")

_LOOK_AGAIN = 1.0
"""Seconds after which a waiting run polls: an interrupted one gives no notification."""


def checked_budget(nbytes: object) -> int | None:
    """``memory_budget`` as a number of bytes; None where there is none.

    Raises InvalidArguments for anything else than an integer of at least 1.
    """
    if nbytes is None:
        return None
    try:
        count = 0 if isinstance(nbytes, bool) else operator.index(nbytes)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if count < 1:
        rule = "must be a number of bytes, an integer >= 1, or None"
        raise InvalidArguments("memory_budget", nbytes, rule, "1 << 30 is 1 GiB")
    return count


class Binders:
    """The memories for activations of a session: each run has one that no other run uses.

    ``budget`` bounds them, together with those of other sessions that have the same one; runs wait
    for each other then. ``counted`` runs share the threads of the pool.
    """

    def __init__(
        self, make: Callable[[], Binder], budget: Budget | None = None, *, counted: bool = True
    ) -> None:
        self._make, self._budget = make, budget
        self.enter = sharing.enter if counted else _nothing
        self.leave = sharing.leave if counted else _nothing
        # Adding and removing are atomic, so that without a budget no lock is needed.
        self.idle: list[Binder] = []
        self._every: WeakValueDictionary[int, Binder] = WeakValueDictionary()
        if budget is not None:
            budget.add(self)

    @property
    def nbytes(self) -> int:
        """The memory of all activations, in bytes."""
        every = [reference() for reference in self._every.valuerefs()]
        return sum(binder.nbytes for binder in every if binder is not None)

    def taken(self, numbers: Numbers) -> AbstractContextManager[Binder]:
        """Memory for a run of these numbers, at once or, with a budget, when there is some.

        Entering raises OutOfMemory where the budget is less than what the run needs.
        """
        return _Free(self) if self._budget is None else _Run(self, self._budget, numbers)

    def made(self) -> Binder:
        """One more, without memory yet."""
        binder = self._make()
        self._every[id(binder)] = binder
        return binder


def _nothing() -> None:
    """Of runs that use no threads of the pool."""


# Contexts as classes, not as generators, which take a microsecond more.


class _Free:
    """The context of a run without a budget, which never waits."""

    __slots__ = ("_binder", "_binders")

    def __init__(self, binders: Binders) -> None:
        self._binders = binders

    def __enter__(self) -> Binder:
        binders = self._binders
        try:
            self._binder = binders.idle.pop()
        except IndexError:
            self._binder = binders.made()
        binders.enter()
        return self._binder

    def __exit__(self, *_: object) -> None:
        self._binders.leave()
        self._binders.idle.append(self._binder)


class _Run:
    """A run within a budget, from its request to its end."""

    __slots__ = ("__weakref__", "_binders", "_budget", "_numbers", "binder", "thread")

    def __init__(self, binders: Binders, budget: Budget, numbers: Numbers) -> None:
        self._binders, self._budget, self._numbers = binders, budget, numbers
        self.binder: Binder | None = None
        self.thread = threading.get_ident()

    def __enter__(self) -> Binder:
        self._budget.wait(self, self._binders, self._numbers)
        assert self.binder is not None
        self._binders.enter()
        return self.binder

    def __exit__(self, *_: object) -> None:
        self._binders.leave()
        self._budget.leave(self, self._binders)


class Budget:
    """A bound of ``limit`` bytes for the activations of all sessions that share it.

    Runs get their memory in the order in which they ask for it. What idle binders have counts as
    well; where a run needs it, they are dropped, the longest unused first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # All weak: a run that an interrupt ends in the middle of a line leaves nothing behind, and
        # neither does a session without references.
        self._sessions: WeakSet[Binders] = WeakSet()
        self._idle: WeakKeyDictionary[Binder, None] = WeakKeyDictionary()
        self._waiting: WeakKeyDictionary[_Run, None] = WeakKeyDictionary()
        self._running: WeakKeyDictionary[_Run, int] = WeakKeyDictionary()
        self._changed = threading.Condition()
        forks.renew(self)

    def add(self, session: Binders) -> None:
        """Bound the memory of a session as well."""
        with self._changed:
            self._sessions.add(session)

    def wait(self, run: _Run, session: Binders, numbers: Numbers) -> None:
        """Give the run a binder, when it may have as much memory as it needs.

        Raises OutOfMemory where that is more than the budget, or if no run can free memory.
        """
        with self._changed:
            try:
                self._waiting[run] = None
                while not self._admitted(run, session, numbers):
                    self._changed.wait(_LOOK_AGAIN)
            finally:
                self._waiting.pop(run, None)
                self._changed.notify_all()  # another one is the next

    def leave(self, run: _Run, session: Binders) -> None:
        """The run is over: its memory is idle."""
        with self._changed:
            if self._running.pop(run, None) is not None and run.binder is not None:
                self._idle[run.binder] = None
                session.idle.append(run.binder)
            self._changed.notify_all()

    def after_fork(self) -> None:
        """Only runs of this thread go on in a child."""
        own = threading.get_ident()
        self._changed = threading.Condition()
        for runs in (self._waiting, self._running):
            for run in list(runs):
                if run.thread != own:
                    del runs[run]

    def _admitted(self, run: _Run, session: Binders, numbers: Numbers) -> bool:
        """Whether the run has its binder now."""
        if not self._is_next(run):
            return False
        if not session.idle:
            session.idle.append(session.made())
        needed = session.idle[-1].needed(numbers)
        held = sum(self._running.values())
        if held + needed > self._limit:
            self._check(run, needed)
            return False
        binder = _fitting(session.idle, needed, self._limit - held) or session.made()
        self._drop(self._limit - held - max(needed, binder.nbytes), binder)
        if binder in session.idle:
            session.idle.remove(binder)
        self._idle.pop(binder, None)
        run.binder = binder
        self._running[run] = max(needed, binder.nbytes)
        return True

    def _is_next(self, run: _Run) -> bool:
        """Whether no run of another thread is first.

        A run within a run of the same thread, as in a signal handler, passes those that wait,
        perhaps for the outer one.
        """
        if any(other.thread == run.thread for other in list(self._running)):
            return True
        for other in list(self._waiting):
            if other.thread != run.thread or other is run:
                return other is run
        return True

    def _check(self, run: _Run, needed: int) -> None:
        """Raise OutOfMemory where the run would wait for ever."""
        text = f"a run needs {size_text(needed)} for activations, of memory_budget = "
        text += size_text(self._limit)
        if needed > self._limit:
            raise OutOfMemory(text)
        if all(other.thread == run.thread for other in list(self._running)):
            held = size_text(sum(self._running.values()))
            raise OutOfMemory(f"{text}; the run that it is part of has {held}")

    def _drop(self, left: int, but: Binder) -> None:
        """Drop idle binders until the others have no more than ``left`` bytes."""
        for binder in list(self._idle):
            if sum(other.nbytes for other in list(self._idle) if other is not but) <= left:
                return
            if binder is not but:
                del self._idle[binder]
                for session in self._sessions:
                    if binder in session.idle:
                        session.idle.remove(binder)


def _fitting(idle: list[Binder], needed: int, most: int) -> Binder | None:
    """The binder that was used last of those with enough memory, else the one with the most, as far
    as it has no more than ``most`` bytes."""
    possible = [binder for binder in reversed(idle) if binder.nbytes <= most]
    enough = (binder for binder in possible if binder.nbytes >= needed)
    return next(enough, max(possible, key=lambda binder: binder.nbytes, default=None))


class _Executor:
    """The threads of runs that are awaited, made when the first one is, as many as there are cpus.

    More would share the cpus, and memory would be needed for each.
    """

    def __init__(self) -> None:
        self._lock = forks.Lock()
        self._made: ThreadPoolExecutor | None = None
        forks.renew(self)

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call the function in one of the threads, after those submitted before."""
        with self._lock.own:
            if self._made is None:
                self._made = ThreadPoolExecutor(available_cpus(), "dnnl")
            return self._made.submit(function)

    def after_fork(self) -> None:
        """A child has none of the threads, and makes its own."""
        self._made = None


_executor = _Executor()


async def awaited(function: Callable[[], T]) -> T:
    """The result of the function, which runs in another thread.

    Cancelled before it begins, it does not run; later, its result is dropped.
    """
    return await asyncio.wrap_future(_executor.submit(function))
