"""What the machine can do at most, measured beside the cases that are held against it."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.runtime.engine import Engine
from dnnl.tools.bench.machine import Copies, Work, multiply_adds
from dnnl.tools.bench.measure import in_turns
from dnnl.tools.bench.settings import Settings

_LARGE = 128 * 2**20
"""Bytes of a copy that no cache holds."""
_SMALL = 128 * 2**10
"""Bytes of a copy that stays in the caches of one core."""
_EFFORT = Settings(max_ms=500)


@dataclass(frozen=True)
class Roofs:
    """f32 operations in a second; bytes in a second that are copied in memory and in caches.

    The cache is that of one core, and its rate is counted for each thread.
    """

    flops: float
    memory: float
    cache: float


def measure_roofs(num_threads: int) -> Roofs:
    """Measure the multiply-adds of all threads and copies of two sizes, in turns."""
    engine, copies = Engine("cpu"), Copies(num_threads)
    try:
        works = (
            multiply_adds(engine, num_threads),
            copies.work(_LARGE, engine),
            copies.work(_SMALL, engine),
        )
        times = in_turns([work.run for work in works], _EFFORT)
    finally:
        copies.close()
    flops, memory, cache = map(_rate, works, times)
    return Roofs(flops, memory, cache * num_threads)


def _rate(work: Work, times: tuple[float, ...]) -> float:
    return work.amount / (min(times) / 1e3)
