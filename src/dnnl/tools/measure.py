"""Timing on a machine that others use as well: contenders alternate, and each is compared with
what the others did in the same round. What slows the machine for a while slows all of them, so
that it cancels in the ratios.

A call may also queue its work and return. Calls are then timed in batches with one wait behind
each, and what a batch of calls with nothing to do takes, in the same round, is subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from math import ceil
from statistics import median
from time import perf_counter, sleep

SAMPLE = 100e-6
"""A sample lasts at least so many seconds: shorter calls are repeated, or the clock's own time
would count."""

_QUEUED_SAMPLE = 1e-3
"""The same where calls queue their work: the wait at the end of a sample is long."""

_QUEUED_CALLS = 64
"""No more calls are under way at once: queueing another one takes longer the more there are."""

_STARTS = 5

_LONG = 0.05
"""From so many seconds a call on, nothing before it matters: caches, sleeping threads."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Where calls return before their work is done: ``wait`` returns when all of it is, and
    ``start`` is a call with nothing to do."""

    wait: Callable[[], object]
    start: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Contender:
    """Something to run, and what one run achieves: FLOP, bytes, or 1 for the run itself.

    ``timed``, if there is such, runs it too, and returns the seconds by a clock of its own.
    """

    name: str
    run: Callable[[], object]
    work: float = 1.0
    queue: Queue | None = None
    timed: Callable[[], float] | None = None


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
    """Seconds of one run: for each contender the samples of each round, less ``starts``."""

    samples: Mapping[str, Sequence[Sequence[float]]]
    work: Mapping[str, float]
    starts: Mapping[str, float] = field(default_factory=dict)
    """The least that a queue took for a call with nothing to do."""

    def sifted(self) -> tuple[Measurement, dict[str, str]]:
        """The same without contenders whose work takes less than twice what their queue does, and
        why each of these has no figures: the difference of times that are alike is noise."""
        hidden = {
            name: f"its work takes less than twice the {start * 1e6:.1f} us of a start"
            for name, start in self.starts.items()
            if self.best(name) < 2 * start
        }
        left = {name: samples for name, samples in self.samples.items() if name not in hidden}
        return replace(self, samples=left), hidden

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
    """Time contenders of different names alternately; each round begins with another of them."""
    timers = {c.name: _Turn(c, effort) for c in contenders}
    samples: dict[str, list[list[float]]] = {c.name: [] for c in contenders}
    names = list(samples)
    for number in range(effort.rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if len(names) > 1:
                sleep(effort.rest)
            samples[name].append(timers[name].take(effort.share(number)))
    starts = {name: min(timer.starts) for name, timer in timers.items() if timer.starts}
    return Measurement(samples, {c.name: c.work for c in contenders}, starts)


class _Turn:
    """What one contender does when it is its turn. ``starts`` are those of its queue, if any."""

    def __init__(self, contender: Contender, effort: Effort) -> None:
        self._run, self._queue, self._effort = contender.run, contender.queue, effort
        self._timed = contender.timed
        self.starts: list[float] = []
        least = _QUEUED_SAMPLE if self._queue else SAMPLE
        self._seconds(1)
        self._call = self._seconds(1)
        self._calls = 1
        if not effort.calls:
            if self._call < least:
                self._call = self._seconds(self._limited(SAMPLE / max(self._call, 1e-7)))
            self._calls = self._limited(least / max(self._call, 1e-9))

    def _limited(self, calls: float) -> int:
        """So many calls of a sample, or fewer where they are queued."""
        return max(1, min(ceil(calls), _QUEUED_CALLS) if self._queue else ceil(calls))

    def take(self, exactly: int) -> list[float]:
        """The seconds of a call, from ``exactly`` so many calls, or 0: as many as fit.

        Each of ``exactly`` so many calls is a sample of its own unless they are queued.
        """
        if self._call < _LONG:
            self._warm_up()
        size = self._calls
        if exactly:
            size = self._limited(exactly) if self._queue else 1
        samples = list(self._samples(size, exactly))
        if self._queue is None:
            return samples
        wait, start = self._queue.wait, self._queue.start
        self.starts.append(min(_seconds(start, size, wait) for _ in range(_STARTS)))
        return [max(sample - self.starts[-1], 0.0) for sample in samples]

    def _samples(self, size: int, exactly: int) -> Iterator[float]:
        """Samples of ``size`` calls: ``exactly`` so many calls in all, or a turn of them."""
        if exactly:
            yield from (self._seconds(min(size, exactly - at)) for at in range(0, exactly, size))
            return
        end = perf_counter() + self._effort.turn
        yield self._seconds(size)
        while perf_counter() < end:
            yield self._seconds(size)

    def _warm_up(self) -> None:
        end = perf_counter() + self._effort.warm_up
        self._seconds(self._calls)
        while perf_counter() < end:
            self._seconds(self._calls)

    def _seconds(self, calls: int) -> float:
        if self._timed is not None:
            return sum(self._timed() for _ in range(calls)) / calls
        return _seconds(self._run, calls, self._queue.wait if self._queue else None)


def _seconds(
    run: Callable[[], object], calls: int, wait: Callable[[], object] | None = None
) -> float:
    """The time of one of ``calls`` calls."""
    if calls == 1 and wait is None:
        started = perf_counter()
        run()
        return perf_counter() - started
    numbers = repeat(None, calls)
    started = perf_counter()
    for _ in numbers:
        run()
    if wait is not None:
        wait()
    return (perf_counter() - started) / calls
