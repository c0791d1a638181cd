"""What many cases amount to, and which of them are shown."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from bench import summary
from bench.context import Context
from bench.peers import Peers
from bench.report import Column, Report, Row
from bench.summary import SHOWN, Limit, margin
from dnnl import Engine

COLUMNS = (Column("case", "case"), Column("copy", "of copy", ".2f"), Column("x", "/ x", ".2f"))
LIMITS = (Limit("copy", "part of a copy", each=0.8), Limit("x", "rate / x", each=0.9, mean=2.0))


def added(rows: list[Row], *, full: bool = False) -> tuple[Report, str]:
    text = io.StringIO()
    report = Report(Console(file=text, width=120))
    context = Context(Engine("cpu"), Peers({}, {}, {}), (1,), True, re.compile(""), full)
    summary.add(context, report, "title", "note", COLUMNS, rows, LIMITS)
    return report, text.getvalue()


def test_targets_are_about_the_least_and_the_mean() -> None:
    rows: list[Row] = [
        {"case": "a", "copy": 0.9, "x": 8.0},
        {"case": "b", "copy": 0.7, "x": 2.0},
        {"case": "c", "copy": 1.0},
    ]
    report, printed = added(rows)
    assert [target.value for target in report.targets] == [0.7, 2.0, pytest.approx(4.0)]
    assert [target.limit for target in report.targets] == [0.8, 0.9, 2.0]
    assert report.targets[0].detail == "2 of 3 reach it; lowest: b"
    mean, least = (line.split() for line in printed.splitlines() if re.match("geom|least", line))
    assert mean[-2:] == ["0.86", "4.00"]
    assert least[-2:] == ["0.70", "2.00"]


def test_what_nobody_measured_decides_nothing() -> None:
    report, _ = added([{"case": "a", "copy": 0.9, "x": None}])
    assert [target.reached for target in report.targets] == [True, None, None]


def test_the_worst_are_printed_and_all_are_kept() -> None:
    rows: list[Row] = [{"case": f"case{n:02}", "copy": 0.5 + n / 100, "x": 9.0} for n in range(40)]
    report, printed = added(rows)
    shown = re.findall(r"case\d\d", printed)
    assert shown == [f"case{n:02}" for n in reversed(range(SHOWN))]
    assert f"The worst {SHOWN} of 40" in printed
    assert len(report.tables[0].rows) == 40
    _, everything = added(rows, full=True)
    assert len(re.findall(r"case\d\d", everything)) == 40


def test_a_margin_is_that_of_the_ratio_furthest_from_its_limit() -> None:
    assert margin({"copy": 1.6, "x": 0.45}, LIMITS) == pytest.approx(0.5)
    assert margin({"copy": 0.4, "x": 0.9}, LIMITS) == pytest.approx(0.5)
    assert margin({"copy": None}, LIMITS) == float("inf")
