"""Targets, and what a report keeps."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from bench.load import Snapshot, cpus_of_others
from bench.report import Column, Report, Row, Table, Target


@pytest.mark.parametrize(
    ("value", "at_least", "reached"),
    [(1.0, True, True), (0.9, True, False), (1.0, False, True), (1.1, False, False)],
)
def test_targets(value: float, at_least: bool, reached: bool) -> None:
    assert Target("t", value, 1.0, at_least).reached is reached


def test_what_was_not_measured_is_neither_reached_nor_missed() -> None:
    assert Target("t", None, 1.0).reached is None


def test_a_report_prints_and_keeps() -> None:
    text = io.StringIO()
    report = Report(Console(file=text, width=100))
    columns = (Column("what", "what"), Column("rate", "rate", ".1f"), Column("peer", "peer", ".2f"))
    rows: list[Row] = [{"what": "one", "rate": 1.25, "peer": None}]
    report.add(Table("a title", "a note", columns, rows), [Target("fast", 0.5, 0.85)])
    report.print_targets()
    printed = text.getvalue().split()
    assert {"one", "1.2", "-", "missed"} <= set(printed)
    document = json.loads(json.dumps(report.as_json()))
    assert document["tables"][0]["rows"] == rows
    assert document["targets"][0]["reached"] is False


def test_cpus_of_others() -> None:
    start, stop = Snapshot(10.0, 100.0, 5.0), Snapshot(20.0, 118.0, 14.0)
    assert cpus_of_others(start, stop) == pytest.approx(0.9)
    assert cpus_of_others(start, Snapshot(20.0, 100.0, 14.0)) == 0.0
