"""The load by other processes during a measurement."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

_STAT = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Seconds: the clock's, those that all cpus were busy, those of this process and its ended
    children."""

    clock: float
    busy: float
    own: float


def snapshot() -> Snapshot | None:
    """The present counts; None on a system without /proc."""
    try:
        fields = _STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(text) for text in fields[:8])
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return Snapshot(perf_counter(), busy, sum(os.times()[:4]))


def cpus_of_others(start: Snapshot, stop: Snapshot) -> float:
    """The average number of cpus that others used, time stolen from this machine included."""
    busy = stop.busy - start.busy - (stop.own - start.own)
    return max(0.0, busy / max(stop.clock - start.clock, 1e-9))
