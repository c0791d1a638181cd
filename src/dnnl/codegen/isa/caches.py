"""How the caches of processors behave, as far as the order of loops depends on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

LINE = 64
"""The bytes of a cache line."""

NEVER = 2**62
"""More bytes than tensors have."""


@dataclass(frozen=True)
class Caches:
    """What blocking may count on, in bytes.

    ``l1`` and ``l2`` are the sizes of the first two levels, ``l1_ways`` is the first one's
    associativity. Transpositions fetch ahead what is larger than ``near``, however large the second
    level is. Operands of ``shared`` bytes and more may have left the last level, which others use
    as well, when they are wanted again; those of ``memory`` bytes have. Processors fetch
    ``rows_foreseen`` rows ahead by themselves if so many are read side by side.

    ``last`` is the size of the last level, 0 if it is not known. Stores are non-temporal where all
    tensors together have ``streamed`` bytes; where so few rows are written side by side that the
    processor fetches them ahead, ``streamed_rows`` bytes. A processor that ``follows_rows`` does so
    wherever these lie: what comes from memory is read in its own order. Code can neither fetch nor
    store past caches that are not ``steered``.
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
    cache_hints: bool = True

    def of_sizes(self, l1: int, l1_ways: int, l2: int, l3: int) -> Caches:
        """The caches of a machine with these sizes. Of a last level that is large because many
        processors share it, one has an eighth or so to itself, and tensors half of that, since
        others are in use besides."""
        streamed, rows = (max(least, l3 // 16) for least in (self.streamed, self.streamed_rows))
        return replace(
            self, l1=l1, l1_ways=l1_ways, l2=l2, last=l3, streamed=streamed, streamed_rows=rows
        )

    def resident_lines(self, distance: int) -> int:
        """How many lines that many bytes apart the first level keeps at the same time."""
        lines, rest = divmod(distance, LINE)
        if rest or not lines:
            return self.l1 // LINE
        sets = self.l1 // LINE // self.l1_ways
        return self.l1_ways * (sets // gcd(lines, sets))


def _skylake(caches: Caches) -> Caches:
    return replace(caches, streamed_rows=NEVER, prefetches_all_rows=True)


def _zen(caches: Caches) -> Caches:
    """A chiplet writes to memory at half of the rate at which it reads, and has its last level to
    itself."""
    return replace(caches, streamed_rows=max(caches.streamed_rows, caches.last))


_KNOWN = {
    **dict.fromkeys(("skylake-avx512", "cascadelake", "cooperlake"), _skylake),
    **dict.fromkeys(("znver3", "znver4", "znver5"), _zen),
}


def of(cpu: str, sized: Caches) -> Caches:
    """``sized`` with how the caches of the processor behave that LLVM calls ``cpu``, if somebody
    has measured it."""
    behave = _KNOWN.get(cpu)
    return sized if behave is None else behave(sized)
