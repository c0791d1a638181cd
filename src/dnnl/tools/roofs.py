"""What the machine can do at most, measured with the cases that are compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dnnl.runtime.engine import Engine
from dnnl.tools.machine import COPY, Copies, peaks
from dnnl.tools.measure import Effort, measure

_LARGE = 128 * 2**20
"""Bytes of a copy that no cache holds."""
_SMALL = 128 * 2**10
"""Bytes of a copy that stays in the caches of one core."""
_CACHED = "cached copy"
_EFFORT = Effort(rounds=5, turn=0.1)


@dataclass(frozen=True)
class Roofs:
    """Operations in a second on registers, by the types that are multiplied; bytes in a second
    that are copied in memory and in caches.

    The cache is that of one core, and its rate is per thread.
    """

    peaks: Mapping[str, float]
    memory: float
    cache: float


def measure_roofs(num_threads: int) -> Roofs:
    """Measure the products of all threads and copies of two sizes, alternately."""
    engine, copies = Engine("cpu"), Copies(num_threads)
    products = peaks(engine, num_threads)
    try:
        large = copies.contender(_LARGE, engine)
        small = replace(copies.contender(_SMALL, engine), name=_CACHED)
        found = measure([*products.values(), large, small], _EFFORT)
    finally:
        copies.close()
    return Roofs(
        {name: found.best_rate(name) for name in products},
        found.best_rate(COPY),
        found.best_rate(_CACHED) * num_threads,
    )
