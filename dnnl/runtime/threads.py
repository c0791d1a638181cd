"""How many threads an execution uses, and what a pool of threads must provide."""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod

from dnnl import config
from dnnl.errors import InvalidArguments


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
    """How many cpus this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def checked_num_threads(num_threads: object) -> int:
    """The number, an integer of any kind, as an int, if it is one that an execution can have."""
    try:
        count = 0 if isinstance(num_threads, bool) else operator.index(num_threads)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if not 1 <= count <= config.MAX_NUM_THREADS:
        hint = "1 runs on the calling thread"
        raise InvalidArguments("num_threads", num_threads, config.NUM_THREADS_RULE, hint)
    return count


def set_num_threads(num_threads: int | None) -> None:
    """Set the threads of every later execution in this process; ``None`` restores the default."""
    config.set("num_threads", None if num_threads is None else checked_num_threads(num_threads))


_known: tuple[int, int] = (-1, 0)  # generation of the configuration, the number it gave


def get_num_threads() -> int:
    """The threads of an execution: `set_num_threads`, else the environment, else all cpus.

    The environment is read at the first call, since this is asked for at every execution.
    """
    global _known  # noqa: PLW0603 - one setting per process
    generation, count = _known
    if generation != config.generation:
        count = config.get("num_threads") or available_cpus()
        _known = (config.generation, count)
    return count
