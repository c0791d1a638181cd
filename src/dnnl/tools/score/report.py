"""What a run of ``dnnl score`` shows: its progress, a summary, and both as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import monotonic

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from dnnl.tools.score.folder import Done
from dnnl.tools.score.rows import BadRow

_LISTED = 20
"""Bad rows in the summary; the JSON has all."""


@dataclass
class Tally:
    """Rows and parts: those of this run, and those that were complete before it.

    ``first`` has the rows of the first part, and the seconds until it was there.
    """

    total: int
    parts: int
    rows: int = 0
    rows_before: int = 0
    parts_before: int = 0
    bad: list[BadRow] = field(default_factory=list)
    started: float = field(default_factory=monotonic)
    seconds: float = 0.0
    first: tuple[int, float] = (0, 0.0)

    def add_before(self, done: Done) -> None:
        """Count a part of an earlier run."""
        self.parts_before += 1
        self.rows_before += done.rows
        self.bad.extend(done.bad)

    def add(self, done: Done) -> None:
        """Count a part of this run."""
        self.seconds = monotonic() - self.started
        if not self.rows:
            self.first = done.rows, self.seconds
        self.rows += done.rows
        self.bad.extend(done.bad)

    @property
    def looked_at(self) -> int:
        """Rows that are done or bad."""
        return self.rows + self.rows_before + len(self.bad)

    @property
    def rows_per_second(self) -> float:
        """Those after the first part of this run, for which workers start and compile."""
        rows, seconds = self.rows - self.first[0], self.seconds - self.first[1]
        return rows / seconds if seconds else 0.0

    def as_json(self) -> dict[str, object]:
        """All of it, as values that JSON has."""
        return {
            "rows": self.rows,
            "rows_before": self.rows_before,
            "bad_rows": [asdict(row) for row in self.bad],
            "total_rows": self.total,
            "parts": self.parts,
            "parts_before": self.parts_before,
            "seconds": self.seconds,
            "seconds_to_first_part": self.first[1],
            "rows_per_second": self.rows_per_second,
        }

    def lines(self) -> Iterator[str]:
        """The summary."""
        rate = f" in {self.seconds:.1f} s" if self.rows else ""
        if self.rows_per_second:
            rate += f" ({self.rows_per_second:.1f} rows/s after the first part)"
        before = f", {self.rows_before} before" if self.parts_before else ""
        bad = f", {len(self.bad)} bad" if self.bad else ""
        yield f"{self.rows} rows{rate}{before}{bad}; {self.parts} parts"
        for row in self.bad[:_LISTED]:
            yield f"  bad: {row}"
        if len(self.bad) > _LISTED:
            yield f"  and {len(self.bad) - _LISTED} more; --json FILE lists all"


class _Speed(TextColumn):
    """Rows per second."""

    def __init__(self, tally: Tally) -> None:
        super().__init__("")
        self._tally = tally

    def render(self, task: Task) -> Text:
        """The rate after the first part."""
        return Text(f"{self._tally.rows_per_second:.1f} rows/s")


@contextmanager
def shown(tally: Tally, console: Console) -> Iterator[Progress | None]:
    """A bar on a terminal, until it is left; nothing where nobody looks.

    The progress is updated by `advance`.
    """
    if not console.is_terminal:
        yield None
        return
    counts = TextColumn("{task.completed:.0f}/{task.total:.0f} rows")
    columns = BarColumn(), counts, _Speed(tally), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task("", total=tally.total, completed=tally.looked_at)
        yield progress


def advance(progress: Progress | None, tally: Tally) -> None:
    """Show how far it is."""
    if progress is not None:
        progress.update(progress.task_ids[0], completed=tally.looked_at)
