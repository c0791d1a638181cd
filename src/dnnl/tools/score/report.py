"""Progress, summary and JSON report of ``dnnl score``."""

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
"""The number of bad rows in the summary; the JSON has all."""


@dataclass
class Tally:
    """Counts of rows and parts, of this run and of earlier ones.

    ``first`` has the rows of this run's first part, and the seconds until it was complete.
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
        """The number of rows that are done or bad."""
        return self.rows + self.rows_before + len(self.bad)

    @property
    def rows_per_second(self) -> float:
        """The rate after the first part, which includes start and compilation."""
        rows, seconds = self.rows - self.first[0], self.seconds - self.first[1]
        return rows / seconds if seconds else 0.0

    def as_json(self) -> dict[str, object]:
        """All counts as JSON values."""
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
        """The lines of the summary."""
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
    """A column with rows per second."""

    def __init__(self, tally: Tally) -> None:
        super().__init__("")
        self._tally = tally

    def render(self, task: Task) -> Text:
        """The rate after the first part."""
        return Text(f"{self._tally.rows_per_second:.1f} rows/s")


@contextmanager
def shown(tally: Tally, console: Console) -> Iterator[Progress | None]:
    """A progress bar on a terminal while the context is open; None elsewhere.

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
    """Update the progress bar."""
    if progress is not None:
        progress.update(progress.task_ids[0], completed=tally.looked_at)
