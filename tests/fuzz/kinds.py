"""Every kind of cases."""

from __future__ import annotations

from tests.fuzz import (
    caches,
    calls,
    forks,
    graphs,
    large,
    models,
    open_sizes,
    primitives,
    special,
    threads,
)
from tests.fuzz.kind import Kind, Outcome
from tests.fuzz.worker import Worker

_HOMES = (primitives, open_sizes, large, calls, graphs, special, models, caches, threads, forks)
KINDS: dict[str, Kind] = {module.KIND.name: module.KIND for module in _HOMES}


def run_line(line: str) -> Outcome:
    """What becomes of one case, in a process of its own."""
    name, _, text = line.partition(" ")
    with Worker(KINDS[name]) as worker:
        outcome = worker.run(text)
    assert outcome is not None
    return outcome
