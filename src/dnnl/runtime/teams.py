"""Threads of another library's OpenMP runtime, which executions use instead of the pool's.

Such threads spin for milliseconds after each region of that library. Workers beside them would
share their cpus: a layer of an LSTM, whose threads wait for each other at each step, then takes up
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
    """The team of this process, and who wants to know it. A child of a fork has none: it has none
    of the threads, and the runtime would wait for them."""

    def __init__(self) -> None:
        self._adopt: Callable[[Team], None] | None = None
        self._team: Team | None = None
        self._forked = False
        self._lock = forks.Lock()
        forks.renew(self)

    def expect(self, adopt: Callable[[Team], None]) -> None:
        """Call ``adopt`` with a team, once there is one."""
        with self._lock.own:
            self._adopt = adopt
            if self._team is not None:
                adopt(self._team)

    def use(self, team: Team) -> None:
        """Let executions of the main thread use this team, where they have as many threads."""
        with self._lock.own:
            if self._forked:
                return
            self._team = team
            if self._adopt is not None:
                self._adopt(team)

    def after_fork(self) -> None:
        """In a child of a fork."""
        self._team, self._forked = None, True


_teams = _Teams()
expect, use = _teams.expect, _teams.use


def use_threads_of(torch: ModuleType) -> None:
    """Have executions use the threads of PyTorch, if these are a team."""
    folder = Path(torch.__file__ or "").parent / "lib"
    team = team_of(folder / "libtorch_cpu.so")
    if team is not None:
        use(team)


def team_of(library: Path) -> Team | None:
    """The team of the runtime that a library uses in this process.

    None where that has not the interface of GCC's, and where its threads sleep between regions,
    so that they leave their cpus to others.
    """
    if os.environ.get("OMP_WAIT_POLICY", "").strip().lower() == "passive":
        return None
    for name in (None, str(library)):  # what was loaded before all others has precedence
        try:
            loaded = ctypes.CDLL(name)
            found = [ctypes.cast(getattr(loaded, own), ctypes.c_void_p).value for own in _NAMES]
        except (OSError, AttributeError):
            continue
        return Team(*[address or 0 for address in found])
    return None
