"""Timing on a machine that others use as well: contenders take turns, and each is compared with
what the others did in the same round. What slows the machine for a while slows all of them, so
that it cancels in the ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import ceil
from statistics import median
from time import perf_counter, sleep

SAMPLE = 100e-6
"""A sample lasts at least so many seconds: shorter calls are repeated, or the clock's own time
would count."""

_LONG = 0.05
"""From so many seconds a call on, nothing before it matters: caches, sleeping threads."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Something to run, and what one run achieves: FLOP, bytes, or 1 for the run itself."""

    name: str
    run: Callable[[], object]
    work: float = 1.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How much time a measurement may take.

    In each of ``rounds`` every contender gets ``turn`` seconds, and at least one call. Before its
    turn nothing runs for ``rest`` seconds: thread pools go on spinning when their work is done,
    OpenMP's for milliseconds, and would take the cpu from the next contender. Then it runs for
    ``warm_up`` seconds, and at least once, which does not count.

    ``calls``, if it is not 0, is the exact number of calls that count, each a sample of its own.
    The rounds share them and know no time; there are no more rounds than calls.
    """

    rounds: int
    turn: float
    rest: float = 0.008
    calls: int = 0
    warm_up: float = 0.0

    def share(self, number: int) -> int:
        """How many of ``calls`` round ``number`` makes."""
        return self.calls * (number + 1) // self.rounds - self.calls * number // self.rounds


@dataclass(frozen=True, slots=True)
class Measurement:
    """Seconds of one run: for each contender the samples of each round."""

    samples: Mapping[str, Sequence[Sequence[float]]]
    work: Mapping[str, float]

    def every(self, name: str) -> list[float]:
        """The samples of all rounds."""
        return [sample for turn in self.samples[name] for sample in turn]

    def rounds(self, name: str) -> list[float]:
        """The median of each round."""
        return [median(turn) for turn in self.samples[name]]

    def median(self, name: str) -> float:
        """The median of the rounds."""
        return median(self.rounds(name))

    def best(self, name: str) -> float:
        """The fastest sample."""
        return min(self.every(name))

    def rate(self, name: str) -> float:
        """Work per second at the median time."""
        return self.work[name] / self.median(name)

    def best_rate(self, name: str) -> float:
        """Work per second of the fastest sample."""
        return self.work[name] / self.best(name)

    def relative(self, name: str, to: str) -> float:
        """The rate of ``name`` in units of that of ``to``: the median of all rounds' ratios.

        Above 1, ``name`` is faster.
        """
        pairs = zip(self.rounds(name), self.rounds(to), strict=True)
        return median(theirs / ours for ours, theirs in pairs) * self.work[name] / self.work[to]

    def difference(self, name: str, to: str) -> float:
        """The seconds that ``name`` takes more than ``to``: the median over the rounds."""
        pairs = zip(self.rounds(name), self.rounds(to), strict=True)
        return median(ours - theirs for ours, theirs in pairs)


def measure(contenders: Sequence[Contender], effort: Effort) -> Measurement:
    """Let contenders of different names take turns; each round begins with another of them."""
    turns = {c.name: _Turn(c.run, effort) for c in contenders}
    samples: dict[str, list[list[float]]] = {c.name: [] for c in contenders}
    names = list(samples)
    for number in range(effort.rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if len(names) > 1:
                sleep(effort.rest)
            samples[name].append(turns[name].take(effort.share(number)))
    return Measurement(samples, {c.name: c.work for c in contenders})


class _Turn:
    """What one contender does when it is its turn."""

    def __init__(self, run: Callable[[], object], effort: Effort) -> None:
        self._run = run
        self._effort = effort
        run()
        self._call = _seconds(run, 1)
        self._calls = 1
        if not effort.calls:
            if self._call < SAMPLE:
                self._call = _seconds(run, ceil(SAMPLE / max(self._call, 1e-7)))
            self._calls = max(1, ceil(SAMPLE / max(self._call, 1e-9)))

    def take(self, exactly: int) -> list[float]:
        """The seconds of a call, from ``exactly`` so many samples, or 0: as many as fit."""
        if self._call < _LONG:
            self._warm_up()
        if exactly:
            return [_seconds(self._run, 1) for _ in range(exactly)]
        end = perf_counter() + self._effort.turn
        samples = [_seconds(self._run, self._calls)]
        while perf_counter() < end:
            samples.append(_seconds(self._run, self._calls))
        return samples

    def _warm_up(self) -> None:
        end = perf_counter() + self._effort.warm_up
        _seconds(self._run, self._calls)
        while perf_counter() < end:
            _seconds(self._run, self._calls)


def _seconds(run: Callable[[], object], calls: int) -> float:
    """The time of one of ``calls`` calls."""
    if calls == 1:
        started = perf_counter()
        run()
        return perf_counter() - started
    numbers = repeat(None, calls)
    started = perf_counter()
    for _ in numbers:
        run()
    return (perf_counter() - started) / calls
