"""Threads of another library's OpenMP runtime, which the pool of the processor uses as its own.

Such threads spin for milliseconds behind each region of that library. Workers beside them would
share their cpus: a step of an LSTM, which waits for all threads some hundred times, then takes up
to twice as long.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from dnnl import forks

_NAMES = "GOMP_parallel", "omp_get_max_threads", "omp_get_thread_num"


class Team(NamedTuple):
    """The addresses of three functions of a runtime, with the interface of GCC's: one that runs a
    function on so many threads, and the numbers of threads and of the calling thread."""

    run: int
    size: int
    number: int


class _Teams:
    """The team of this process, and who wants to know it."""

    def __init__(self) -> None:
        self._adopt: Callable[[Team], None] | None = None
        self._team: Team | None = None
        self._lock = forks.Lock()

    def expect(self, adopt: Callable[[Team], None]) -> None:
        """Call ``adopt`` with a team, once there is one."""
        with self._lock.own:
            self._adopt = adopt
            if self._team is not None:
                adopt(self._team)

    def use(self, team: Team) -> None:
        """Have executions of the main thread on as many threads as the team has use these."""
        with self._lock.own:
            self._team = team
            if self._adopt is not None:
                self._adopt(team)


_teams = _Teams()
expect, use = _teams.expect, _teams.use


def use_those_of(torch: ModuleType) -> None:
    """The same with the threads of PyTorch, if it has such a runtime."""
    folder = Path(torch.__file__ or "").parent / "lib"
    team = team_of(folder / "libtorch_cpu.so")
    if team is not None:
        use(team)


def team_of(library: Path) -> Team | None:
    """The team of the runtime that a loaded library depends on. None where there is none with the
    interface of GCC's, and where its threads sleep between regions: they disturb nobody then."""
    if os.environ.get("OMP_WAIT_POLICY", "").strip().lower() == "passive":
        return None
    try:
        loaded = ctypes.CDLL(str(library))
        found = [ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value for name in _NAMES]
    except (OSError, AttributeError):
        return None
    return Team(*[address or 0 for address in found])
