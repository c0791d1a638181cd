"""How many threads an execution uses, and what a pool of threads must provide."""

from __future__ import annotations

import operator
import os
import warnings
from abc import ABC, abstractmethod

from dnnl import config
from dnnl.errors import InvalidArguments
from dnnl.runtime.quota import cpu_quota

FORCING = "DNNL_OVERSUBSCRIBE=1 forces more"


class ThreadPool(ABC):
    """Spreads the work items of phases over threads, for one process.

    A pool is native code: an execution enters it once and comes back when all is done. It must
    never wait for another execution: callers that find it busy, and regions within a region, run
    on their own thread alone.
    """

    #: How verbose lines and ``dnnl info`` call it.
    name: str

    @classmethod
    @abstractmethod
    def supported(cls) -> bool:
        """Whether this pool works on this system."""

    @abstractmethod
    def entry(self) -> int:
        """The address of ``void run(const void *block)``; see `engines.cpu_launch` for a block."""


def available_cpus() -> int:
    """How many cpus this process may keep busy: those that it may run on, and no more than its
    control group has the time of, rounded down, as threads above that stop all for a while."""
    count = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return count if quota is None else max(1, min(count, int(quota)))


def limited_num_threads(num_threads: int) -> int:
    """So many threads, or one for each cpu that there is: more wait for each other at the end of
    each phase, alternately. The knob ``oversubscribe`` forces them."""
    if num_threads == 1 or config.get("oversubscribe"):
        return num_threads
    return min(num_threads, available_cpus())


def _limited(source: str, num_threads: int) -> int:
    """The same, with a warning where it is less."""
    count = limited_num_threads(num_threads)
    if count < num_threads:
        text = f"{source} = {num_threads}: {limit_text(count)}"
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    return count


def limit_text(count: int) -> str:
    """Why there are only so many threads, and what forces more."""
    cpus = "cpu" if count == 1 else "cpus"
    return f"executions have {count}, as this process may use {count} {cpus}; {FORCING}"


def checked_num_threads(num_threads: object) -> int:
    """The number, an integer of any kind, as an int, if it is one that an execution can have; no
    more than there are cpus, which a warning says, unless the knob ``oversubscribe`` is set."""
    return _limited("num_threads", _valid(num_threads))


def _valid(num_threads: object) -> int:
    try:
        count = 0 if isinstance(num_threads, bool) else operator.index(num_threads)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if not 1 <= count <= config.MAX_NUM_THREADS:
        hint = "1 runs on the calling thread"
        raise InvalidArguments("num_threads", num_threads, config.NUM_THREADS_RULE, hint)
    return count


def set_num_threads(num_threads: int | None) -> None:
    """Set the threads of every later execution in this process; ``None`` restores the default.

    There are no more than cpus, as `get_num_threads` has it.
    """
    config.set("num_threads", None if num_threads is None else _valid(num_threads))
    if num_threads is not None:
        get_num_threads()


_known: tuple[int, int] = (-1, 0)  # generation of the configuration, the number it gave


def get_num_threads() -> int:
    """The threads of an execution: `set_num_threads`, else the environment, else all cpus; no more
    than there are cpus, which a warning says, unless the knob ``oversubscribe`` is set.

    The environment is read at the first call, since this is asked for at every execution.
    """
    global _known  # noqa: PLW0603 - one setting per process
    generation, count = _known
    if generation != config.generation:
        asked = config.get("num_threads")
        count = available_cpus() if asked is None else _limited("num_threads", asked)
        _known = (config.generation, count)
    return count
