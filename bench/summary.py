"""Tables of many cases: what all of them amount to, and which are furthest from their limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from bench.context import Context
from bench.report import Column, Report, Row, Target

SHOWN = 15
"""So many of the worst cases are printed; the JSON file has all."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What the ratio under ``key`` should be: in each case, on the geometric mean, or both."""

    key: str
    what: str
    each: float | None = None
    mean: float | None = None


def add(
    context: Context,
    report: Report,
    title: str,
    note: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    limits: Sequence[Limit],
) -> None:
    """Print the worst cases and what all amount to; the worst ones come last."""
    keys = [column.key for column in columns]
    targets = [target for limit in limits for target in _targets(title, rows, limit)]
    best_first = sorted(rows, key=lambda row: margin(row, limits), reverse=True)
    shown, note = worst(context, best_first, note)
    ratios = [key for key in keys if any(limit.key == key.split()[-1] for limit in limits)]
    report.add(title, note, columns, rows, targets, [*shown, *_totals(rows, ratios)])


def worst(context: Context, rows: Sequence[Row], note: str) -> tuple[Sequence[Row], str]:
    """Which of ``rows``, the worst of them last, are printed, and a note that says so."""
    if context.full or len(rows) <= SHOWN:
        return rows, f"The worst case comes last. {note}"
    return rows[-SHOWN:], f"The worst {SHOWN} of {len(rows)} cases, the worst one last. {note}"


def margin(row: Row, limits: Iterable[Limit]) -> float:
    """The smallest of a case's ratios in units of what it should be; below 1 it falls short."""
    margins = [
        value / wanted
        for limit in limits
        if isinstance(value := row.get(limit.key), float)
        if (wanted := limit.each or limit.mean)
    ]
    return min(margins, default=float("inf"))


def _targets(title: str, rows: Sequence[Row], limit: Limit) -> list[Target]:
    named = _named(rows, limit.key)
    targets = []
    if limit.each is not None:
        worst, least = min(named, key=lambda item: item[1], default=("", None))
        reached = sum(value >= limit.each for _, value in named)
        detail = f"{reached} of {len(named)} reach it; lowest: {worst}" if named else ""
        name = f"{title}: {limit.what} in each case"
        targets.append(Target(name, least, limit.each, detail=detail))
    if limit.mean is not None:
        mean = geometric_mean(value for _, value in named) if named else None
        name = f"{title}: {limit.what}, geometric mean"
        targets.append(Target(name, mean, limit.mean, detail=f"{len(named)} cases"))
    return targets


def _totals(rows: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    """The geometric mean and the least of each ratio."""
    measured = {key: [value for _, value in _named(rows, key)] for key in keys}
    means = {key: geometric_mean(values) for key, values in measured.items() if values}
    least = {key: min(values) for key, values in measured.items() if values}
    return [{"case": "geometric mean", **means}, {"case": "least", **least}]


def _named(rows: Sequence[Row], key: str) -> list[tuple[str, float]]:
    """The cases that have a figure."""
    return [(str(row["case"]), value) for row in rows if isinstance(value := row.get(key), float)]
