"""Sizes and behaviour of caches that loop order, prefetch and non-temporal stores depend on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

LINE = 64
"""Bytes of a cache line."""

NEVER = 2**62
"""A threshold that no tensor reaches, in bytes."""


@dataclass(frozen=True)
class Caches:
    """What blocking may assume about the caches. Sizes and thresholds are bytes.

    ``l1`` and ``l2`` are the sizes of the first two levels, ``l1_ways`` is the associativity of the
    first. Transpositions prefetch operands larger than ``near``. Operands of ``shared`` bytes may
    have been evicted from the shared last level before they are read again; operands of ``memory``
    bytes certainly have. The hardware prefetcher follows ``prefetch_streams`` rows at a time.

    ``last`` is the size of the last level, 0 if unknown. Stores are non-temporal if all tensors
    together have ``streamed`` bytes, or ``streamed_rows`` bytes where so few rows are written at a
    time that the prefetcher follows them. ``prefetches_all_rows`` means that the prefetcher follows
    rows at any distance, so tensors in memory are best read in their own order. Without
    ``prefetches`` or ``non_temporal`` the target has no such loads or stores.
    """

    l1: int = 32 * 2**10
    l1_ways: int = 8
    l2: int = 2**20
    near: int = 2**20
    shared: int = 4 * 2**20
    memory: int = 8 * 2**20
    prefetch_streams: int = 16
    last: int = 0
    streamed: int = 16 * 2**20
    streamed_rows: int = 16 * 2**20
    prefetches_all_rows: bool = False
    prefetches: bool = True
    non_temporal: bool = True

    def of_sizes(self, l1: int, l1_ways: int, l2: int, l3: int) -> Caches:
        """These caches with measured sizes. A thread is assumed to own an eighth of a last level
        that many cores share; half of that is left to the tensors of one kernel."""
        streamed, rows = (max(least, l3 // 16) for least in (self.streamed, self.streamed_rows))
        return replace(
            self, l1=l1, l1_ways=l1_ways, l2=l2, last=l3, streamed=streamed, streamed_rows=rows
        )

    def resident_lines(self, distance: int) -> int:
        """How many lines at a ``distance`` in bytes fit into the first level without conflict
        misses."""
        lines, rest = divmod(distance, LINE)
        if rest or not lines:
            return self.l1 // LINE
        sets = self.l1 // LINE // self.l1_ways
        return self.l1_ways * (sets // gcd(lines, sets))


def _skylake(caches: Caches) -> Caches:
    return replace(caches, streamed_rows=NEVER, prefetches_all_rows=True)


def _zen(caches: Caches) -> Caches:
    """A chiplet writes to memory at half its read rate, and shares its last level with no other."""
    return replace(caches, streamed_rows=max(caches.streamed_rows, caches.last))


_KNOWN = {
    **dict.fromkeys(("skylake-avx512", "cascadelake", "cooperlake"), _skylake),
    **dict.fromkeys(("znver3", "znver4", "znver5"), _zen),
}


def of(cpu: str, sized: Caches) -> Caches:
    """``sized`` with the measured behaviour of the processor that LLVM calls ``cpu``, if known."""
    behave = _KNOWN.get(cpu)
    return sized if behave is None else behave(sized)
