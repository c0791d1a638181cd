"""What was measured, as tables, as a list of targets, and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

Cell = str | float | None
Row = Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Column:
    """The cells of a row under ``key``; ``spec`` formats numbers, texts are left-aligned."""

    key: str
    title: str
    spec: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title, with a sentence on how to read them. None is what was not measured.

    ``shown`` are printed: of many rows the worst, and what all amount to.
    """

    title: str
    note: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    shown: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Target:
    """A value that should be at least (or at most) ``limit``; None where it was not measured."""

    name: str
    value: float | None
    limit: float
    at_least: bool = True
    unit: str = ""
    detail: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether it is; None where nothing was measured."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Report:
    """Collects tables and targets; a table is printed as soon as it is there.

    Peers are named with their ``versions``, and ``suffix`` ends every title.
    """

    console: Console
    versions: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def add(
        self,
        title: str,
        note: str,
        columns: Sequence[Column],
        rows: Sequence[Row],
        targets: Sequence[Target] = (),
        shown: Sequence[Row] | None = None,
    ) -> None:
        """Print a table, or ``shown`` instead of its rows, and store it with what it decides."""
        named = [replace(column, title=self._versioned(column.title)) for column in columns]
        table = Table(title + self.suffix, note, named, rows, rows if shown is None else shown)
        self.tables.append(table)
        self.add_targets(targets)
        self.console.print()
        self.console.print(f"[bold]{table.title}[/bold]")
        self.console.print(_rendered(table.columns, table.shown))
        self.console.print(Text(table.note, style="dim"))

    def add_targets(self, targets: Iterable[Target]) -> None:
        """Keep what decides on targets."""
        self.targets.extend(
            replace(target, name=self._versioned(target.name) + self.suffix) for target in targets
        )

    def _versioned(self, text: str) -> str:
        """The text with the versions of the peers that it names."""
        if not self.versions:
            return text
        names = "|".join(map(re.escape, sorted(self.versions, key=len, reverse=True)))
        return re.sub(names, lambda found: f"{found[0]} {self.versions[found[0]]}", text)

    def extend(self, document: Mapping[str, Any]) -> None:
        """Take over what `as_json` gave; rows of tables of the same title follow each other."""
        for values in document["tables"]:
            columns = [Column(**column) for column in values["columns"]]
            new = Table(**{**values, "columns": columns})
            same = [n for n, table in enumerate(self.tables) if table.title == new.title]
            if not same:
                self.tables.append(new)
                continue
            old = self.tables[same[0]]
            rows, shown = [*old.rows, *new.rows], [*old.shown, *new.shown]
            self.tables[same[0]] = replace(old, rows=rows, shown=shown)
        for values in document["targets"]:
            known = {name: value for name, value in values.items() if name != "reached"}
            self.targets.append(Target(**known))

    def print_targets(self) -> None:
        """Print which targets were reached and which were not."""
        if not self.targets:
            return
        table = RichTable(box=None, pad_edge=False, header_style="bold")
        for title in ("", "target", "measured", "wanted", ""):
            table.add_column(title, justify=_side(title in ("measured", "wanted")))
        for target in self.targets:
            state = {True: "[green]reached", False: "[red]missed", None: "[yellow]not measured"}
            bound = f"{'>=' if target.at_least else '<='} {target.limit:.3g}{target.unit}"
            value = _text(target.value, ".3g") + (target.unit if target.value is not None else "")
            table.add_row(state[target.reached], target.name, value, bound, target.detail)
        reached = sum(target.reached is True for target in self.targets)
        self.console.print()
        self.console.print(f"[bold]targets: {reached} of {len(self.targets)} reached[/bold]")
        self.console.print(table)

    def as_json(self) -> dict[str, object]:
        """The report as values that JSON has."""
        return {
            "tables": [asdict(table) for table in self.tables],
            "targets": [{**asdict(target), "reached": target.reached} for target in self.targets],
        }


def markdown(table: Table) -> str:
    """The table as a document has it."""
    sides = ["---:" if column.spec else "---" for column in table.columns]
    lines = [[column.title for column in table.columns], sides]
    lines += [[_text(row.get(c.key), c.spec) for c in table.columns] for row in table.shown]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"**{table.title}**\n\n{body}\n\n{table.note}\n"


def _rendered(columns: Sequence[Column], rows: Sequence[Row]) -> RichTable:
    rendered = RichTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        rendered.add_column(column.title, justify=_side(column.spec != ""), no_wrap=True)
    for row in rows:
        rendered.add_row(*(_text(row.get(column.key), column.spec) for column in columns))
    return rendered


def _side(right: bool) -> Literal["left", "right"]:
    return "right" if right else "left"


def _text(cell: Cell, spec: str) -> str:
    if cell is None:
        return "-" if spec else ""
    return cell if isinstance(cell, str) else format(cell, spec)
