"""What every subject of the benchmark gets: engine, peers, thread counts and time to spend."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench.peers import Peers
from dnnl import Engine
from dnnl.tools.measure import Effort

SEED = 1


@dataclass(frozen=True, slots=True)
class Context:
    """``quick`` spends little time: enough to see that everything works, not to judge by it.

    ``only`` is what the name of a case must contain where a subject has many, ``full`` whether
    tables of many cases are printed to the end.
    """

    engine: Engine
    peers: Peers
    threads: tuple[int, ...]
    quick: bool
    only: re.Pattern[str] = re.compile("")
    full: bool = False

    def effort(self, rounds: int, turn: float) -> Effort:
        """So much time, or little if ``quick``."""
        return Effort(2, turn / 8) if self.quick else Effort(rounds, turn)


def threads_text(num_threads: int) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{num_threads} thread{'s' if num_threads > 1 else ''}"
