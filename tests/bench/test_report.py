"""Targets, and what a report keeps."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from rich.console import Console

from bench.__main__ import main
from bench.load import Snapshot, cpus_of_others
from bench.report import Column, Report, Row, Target, markdown
from dnnl import __version__


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
    report.add("a title", "a note", columns, rows, [Target("fast", 0.5, 0.85)])
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


def test_peers_are_named_with_their_versions() -> None:
    versions = {"oneDNN": "3.13.2", "oneDNN OpenMP": "3.2.0"}
    report = Report(Console(file=io.StringIO()), versions, ", avx2")
    columns = (Column("a", "/ oneDNN", ".2f"), Column("b", "oneDNN OpenMP us", ".1f"))
    rows: list[Row] = [{"a": 1.5, "b": None}, {"a": 2.0, "b": 3.0}]
    report.add("title", "note", columns, rows, [Target("rate / oneDNN", 1.5, 1.0)], rows[:1])
    (table,) = report.tables
    assert [column.title for column in table.columns] == [
        "/ oneDNN 3.13.2",
        "oneDNN OpenMP 3.2.0 us",
    ]
    assert report.targets[0].name == "rate / oneDNN 3.13.2, avx2"
    assert markdown(table).splitlines() == [
        "**title, avx2**",
        "",
        "| / oneDNN 3.13.2 | oneDNN OpenMP 3.2.0 us |",
        "| ---: | ---: |",
        "| 1.50 | - |",
        "",
        "note",
    ]


def test_figures_of_several_processes_become_one_report() -> None:
    whole = Report(Console(file=io.StringIO()))
    for title, value in (("same", 1.0), ("same", 2.0), ("other", 3.0)):
        part = Report(Console(file=io.StringIO()))
        part.add(title, "note", (Column("a", "a", ".1f"),), [{"a": value}], [Target(title, 1, 1)])
        whole.extend(json.loads(json.dumps(part.as_json())))
    assert [(t.title, [r["a"] for r in t.rows]) for t in whole.tables] == [
        ("same", [1.0, 2.0]),
        ("other", [3.0]),
    ]
    assert [target.reached for target in whole.targets] == [True] * 3


def test_what_is_in_the_folder_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def run(arguments: list[str], env: dict[str, str], **_: object) -> SimpleNamespace:
        unit = json.loads(arguments[-2])
        started.append(f"{unit['subject']} {unit['threads']} {env.get('DNNL_MAX_CPU_ISA')}")
        part = Report(Console(file=io.StringIO()))
        figures = {"machine": {}, "failure": "", "unit": {**unit, "version": __version__}}
        Path(arguments[-1]).write_text(json.dumps({**figures, **part.as_json()}))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    line = f"odd overhead --threads 1,2 --isa avx2 --resume {tmp_path}".split()
    for _ in range(2):
        assert CliRunner().invoke(main, line).exit_code == 0
        assert started == ["odd 1 avx2", "odd 2 avx2", "overhead 1 avx2"]
    CliRunner().invoke(main, [*line, "--quick"])
    assert len(started) == 6
