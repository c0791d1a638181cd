"""The times of executions, alone and in turns with a peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter, sleep

from dnnl.tools.bench.settings import Settings

_MIN_RUNS = 5
_ROUNDS = 5
_PAUSE_S = 0.1
"""Before each turn: the threads of the one that ran last spin for a while after their work."""


def timed_runs(run: Callable[[], object], settings: Settings) -> tuple[float, ...]:
    """The times of single executions in ms, after one to warm up."""
    return _block(run, settings.fix_times, _MIN_RUNS, settings.max_ms)


def in_turns(
    runs: Sequence[Callable[[], object]], settings: Settings
) -> tuple[tuple[float, ...], ...]:
    """The times of each of ``runs`` in ms, who take turns so that all meet the same machine."""
    times: tuple[list[float], ...] = tuple([] for _ in runs)
    rounds = min(settings.fix_times or _ROUNDS, _ROUNDS)
    fixed = -(-settings.fix_times // rounds)
    for _ in range(rounds):
        for run, kept in zip(runs, times, strict=True):
            sleep(_PAUSE_S)
            kept.extend(_block(run, fixed, 1, settings.max_ms / rounds))
    return tuple(tuple(kept) for kept in times)


def _block(
    run: Callable[[], object], fixed: int, at_least: int, max_ms: float
) -> tuple[float, ...]:
    """``fixed`` executions, or as many as ``max_ms`` and ``at_least`` ask for if it is 0."""
    run()
    times: list[float] = []
    begun = perf_counter()
    while True:
        started = perf_counter()
        run()
        stopped = perf_counter()
        times.append((stopped - started) * 1e3)
        enough = len(times) >= at_least and (stopped - begun) * 1e3 >= max_ms
        if len(times) >= fixed if fixed else enough:
            return tuple(times)
