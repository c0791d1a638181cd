"""Which bytes of one arena each activation gets, from when it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A storage of ``size`` bytes that holds data from step ``first`` to step ``last``."""

    size: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether both are needed at the same time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class Arena:
    """The byte offset of each storage, and the size of the whole."""

    offsets: Mapping[int, int]
    size: int


def lifetimes(
    sizes: Mapping[int, int],
    steps: Sequence[Sequence[int]],
    before: Sequence[int] = (),
    after: Sequence[int] = (),
) -> dict[int, Lifetime]:
    """When each storage is needed: ``steps`` lists what each step touches.

    Those in ``before`` are filled ahead of the first step, those in ``after`` read behind the
    last.
    """
    touched = [before, *steps, after]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for time, storages in enumerate(touched):
        for storage in storages:
            first.setdefault(storage, time)
            last[storage] = time
    return {s: Lifetime(size, first[s], last[s]) for s, size in sizes.items() if s in first}


def place(needed: Mapping[int, Lifetime]) -> Arena:
    """Offsets at which storages that are needed at the same time do not overlap.

    The largest ones are placed first, each in the lowest gap that holds it.
    """
    offsets: dict[int, int] = {}
    end = 0
    for storage in sorted(needed, key=lambda s: (-needed[s].size, s)):
        mine = needed[storage]
        taken = sorted(
            (offsets[other], offsets[other] + needed[other].size)
            for other in offsets
            if needed[other].overlaps(mine)
        )
        offset = 0
        for begin, stop in taken:
            if begin - offset >= mine.size:
                break
            offset = max(offset, -(-stop // ALIGNMENT) * ALIGNMENT)
        offsets[storage] = offset
        end = max(end, offset + mine.size)
    return Arena(offsets, -(-end // ALIGNMENT) * ALIGNMENT)
