"""What a search shows: progress, findings as lines that repeat them, and a table at the end."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.fuzz.campaign import Finding, Tally
from tests.fuzz.kind import State

REGRESSIONS = Path(__file__).with_name("regressions.txt")
KNOWN = "known "
"""What stands before the line of a failure that nobody has mended yet."""
_LINE_EACH = 60.0  # seconds
_SHOWN = 12
"""Reasons of a kind that are listed below the table."""


def repro(line: str) -> str:
    """The command that runs one case."""
    return f"python -m tests.fuzz --case {shlex.quote(line)}"


def regressions(path: Path = REGRESSIONS) -> list[tuple[str, bool]]:
    """The cases that failed once, each with whether it still does."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in lines if line and not line.startswith("#")]
    return [(line.removeprefix(KNOWN), line.startswith(KNOWN)) for line in kept]


def keep(line: str, path: Path = REGRESSIONS) -> None:
    """Add a case to those that failed once, if it is new."""
    if line not in [known for known, _ in regressions(path)]:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


class Report:
    """Prints to a console."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)

    def show(self, finding: Finding) -> None:
        """A finding: the command that repeats it, if there is a case, and what happened."""
        self._plain(f"FAILED {finding.kind}: {finding.outcome.reason}")
        self._plain(f"  {repro(finding.line) if finding.repeatable else finding.text}")
        for line in finding.outcome.detail.rstrip().splitlines():
            self._plain(f"    {line}")

    def table(self, tallies: Mapping[str, Tally], seconds: float) -> None:
        """What became of the cases of each kind, and the most frequent reasons."""
        table = Table("kind", title=f"{seconds:.0f} seconds")
        for name in ("tried", *(state.value for state in State), "seconds"):
            table.add_column(name, justify="right")
        for kind, tally in tallies.items():
            counts = [str(tally.states[state]) for state in State]
            table.add_row(kind, str(tally.tried), *counts, f"{tally.seconds:.0f}")
        self.console.print(table)
        for kind, tally in tallies.items():
            shown = tally.reasons.most_common(_SHOWN)
            for (state, reason), count in shown:
                self._plain(f"{kind}: {count} {state.value}: {reason}")

    @contextmanager
    def progress(
        self, tallies: Mapping[str, Tally], seconds: float
    ) -> Iterator[Callable[[], None]]:
        """A bar of the time, with the counts, or a line now and then; yields what moves it on."""
        columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        started, lines = monotonic(), 0
        terminal = self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, disable=not terminal) as bar:
            task = bar.add_task("", total=seconds)

            def move() -> None:
                nonlocal lines
                tried = sum(tally.tried for tally in tallies.values())
                bad = sum(tally.states[State.FAILED] for tally in tallies.values())
                text, passed = f"{tried} cases, {bad} failed", monotonic() - started
                bar.update(task, completed=passed, description=text)
                if not terminal and passed > _LINE_EACH * (lines + 1):
                    lines += 1
                    self._plain(f"{passed:.0f} s: {text}")

            yield move

    def _plain(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)
