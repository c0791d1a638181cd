"""The search: cases of several kinds until the time is up, and failures made small.

hypothesis works in rounds of one new case each. A failure is shrunk, within limits of time; one
that has been seen before, by its reason, is only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import monotonic

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.kind import Kind, Outcome, State, raised
from tests.fuzz.worker import Worker

_ROUND = 2
"""Cases of a round: the simplest of all, with which hypothesis begins and which runs but once, and
a new one. With more it makes five variations of each new one, and few new ones."""
SHRINKING = 60.0
"""Seconds for making one failure small."""

DRAWING = "drawing"
"""What stands for the text of a case that could not be drawn."""

Run = Callable[[str, float], Outcome | None]


@dataclass(frozen=True)
class Finding:
    """A failure, with the least text that hypothesis found for it."""

    kind: str
    text: str
    outcome: Outcome

    @property
    def line(self) -> str:
        """The case."""
        return f"{self.kind} {self.text}".rstrip()

    @property
    def repeatable(self) -> bool:
        """Whether there is a case at all."""
        return self.text != DRAWING


@dataclass
class Tally:
    """What became of the cases of one kind."""

    states: Counter[State] = field(default_factory=Counter)
    reasons: Counter[tuple[State, str]] = field(default_factory=Counter)
    seen: dict[str, Outcome] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)
    seconds: float = 0.0
    rounds: int = 0

    @property
    def tried(self) -> int:
        """The number of cases, those of shrinking not among them."""
        return self.states.total()

    def add(self, outcome: Outcome) -> None:
        """Count a case."""
        self.states[outcome.state] += 1
        if outcome.reason:
            self.reasons[outcome.state, outcome.reason] += 1


class _TimeIsUp(BaseException):
    """Ends a round from within; no exception that hypothesis takes for a failure."""


class _Failure(Exception):
    """What hypothesis shrinks."""


class Campaign:
    """A search over ``kinds``, the same for the same ``seed`` and as much time.

    ``found`` is called with each finding as it comes, ``moved`` after each case.
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        seed: int,
        found: Callable[[Finding], None] = lambda _: None,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.kinds, self.seed, self.found, self.moved = kinds, seed, found, moved
        self.tallies = {kind.name: Tally() for kind in kinds}

    @property
    def failed(self) -> bool:
        """Whether any case failed."""
        return any(tally.states[State.FAILED] for tally in self.tallies.values())

    def search(self, seconds: float) -> None:
        """Rounds of the kinds by their weights, until the time is up."""
        end = monotonic() + seconds
        with ExitStack() as running:
            workers = {k.name: running.enter_context(Worker(k)) for k in self.kinds}
            while monotonic() < end:
                kind = min(self.kinds, key=self._share)
                self.round(kind, workers[kind.name].run, end)

    def _share(self, kind: Kind) -> float:
        return self.tallies[kind.name].seconds / kind.weight

    def round(self, kind: Kind, run: Run, end: float) -> None:
        """One round of a kind: ``run`` runs its cases, until ``end``."""
        tally = self.tallies[kind.name]
        started = monotonic()
        search = _Round(kind.name, run, tally, end, self.moved)
        wrapped = given(kind.cases())(search.case)
        wrapped = settings(
            max_examples=_ROUND,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
        )(wrapped)
        try:
            hypothesis.seed(f"{self.seed} {kind.name} {tally.rounds}")(wrapped)()
        except (_TimeIsUp, _Failure):
            pass
        except Exception as error:
            search.undrawn(error)
        tally.rounds += 1
        tally.seconds += monotonic() - started
        if search.least is not None:
            self.found(search.least)


class _Round:
    """What one round has seen."""

    def __init__(
        self, kind: str, run: Run, tally: Tally, end: float, moved: Callable[[], None]
    ) -> None:
        self.kind, self.run, self.tally, self.moved = kind, run, tally, moved
        self.end = end
        self.least: Finding | None = None

    def case(self, text: str) -> None:
        """Run one case; raises what hypothesis shrinks, if it fails in a way that is new."""
        outcome = self.tally.seen.get(text) or self._outcome(text)
        if outcome.state is not State.FAILED:
            return
        if self.least is None:
            if outcome.reason in self.tally.found:
                return
            self.tally.found.add(outcome.reason)
            self.end = min(self.end, monotonic() + SHRINKING)
        elif outcome.reason != self.least.outcome.reason:
            return  # another failure is no smaller form of this one
        self.least = Finding(self.kind, text, outcome)
        raise _Failure

    def undrawn(self, error: Exception) -> None:
        """An exception by what draws cases, which hides no case that failed before."""
        if self.least is None:
            outcome = raised(error)
            self.tally.add(outcome)
            if self.tally.reasons[State.FAILED, outcome.reason] == 1:
                self.least = Finding(self.kind, DRAWING, outcome)

    def _outcome(self, text: str) -> Outcome:
        outcome = self.run(text, self.end) if monotonic() < self.end else None
        if outcome is None:
            raise _TimeIsUp
        self.tally.seen[text] = outcome
        if self.least is None:
            self.tally.add(outcome)
        self.moved()
        return outcome
