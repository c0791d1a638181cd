"""What ``dnnl score`` shows and writes: with a worker in this process in place of Ray."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs dnnl[score]")

from rich.console import Console

from dnnl.tools.cli import BAD_INPUT, INTERRUPTED, main
from dnnl.tools.score import cluster
from dnnl.tools.score.folder import Done
from dnnl.tools.score.report import Tally, advance, shown
from dnnl.tools.score.rows import Reader, Task
from dnnl.tools.score.worker import Job, Worker
from tests.tools.score.scoring import results
from tests.tools.score.sets import dense_model, rng, write_parquet

Events = list[Callable[[], object]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """What happens before each part; cluster and workers are this process."""
    found: Events = []

    @contextmanager
    def connected(address: str | None, workers: int, threads: int) -> Iterator[None]:
        yield

    def computed(
        reader: Reader, tasks: Sequence[Task], job: Job, workers: int
    ) -> Generator[Done, None, None]:
        worker = Worker(job)
        for task in tasks:
            for rows in reader.read(task):
                if found:
                    found.pop(0)()
                yield worker.compute(rows)

    monkeypatch.setattr(cluster, "connected", connected)
    monkeypatch.setattr(cluster, "computed", computed)
    return found


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """A command line for 20 rows in three parts, of which row 17 is bad."""
    rows = rng().standard_normal((20, 8)).tolist()
    rows[17] = None
    write_parquet(tmp_path / "d.parquet", {"x": rows})
    model, data = str(dense_model(tmp_path / "m.onnx")), str(tmp_path / "d.parquet")
    sizes = ["--part-rows", "8", "--batch", "8"]
    return ["score", model, data, "-o", str(tmp_path / "out"), *sizes]


def test_a_bad_row_ends_the_run(
    events: Events, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is complete stays; the same command with ``--skip-bad`` computes the rest."""
    assert main(arguments) == BAD_INPUT
    assert "d.parquet, row 17': column 'x' a value is null; --skip" in capsys.readouterr().err
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 2
    document = tmp_path / "figures.json"
    assert main([*arguments, "--skip-bad", "--json", str(document)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("3 rows in ")
    assert ", 16 before, 1 bad; 3 parts\n  bad: d.parquet, row 17: column 'x' a value" in text
    figures = json.loads(document.read_text())
    assert figures["bad_rows"] == [
        {"path": "d.parquet", "row": 17, "reason": "column 'x' a value is null"}
    ]
    assert (figures["rows"], figures["rows_before"], figures["parts_before"]) == (3, 16, 2)
    assert len(results(tmp_path / "out")) == 19


def test_interrupts(
    events: Events, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    events += [lambda: None, interrupt]
    assert main(arguments) == INTERRUPTED
    text = capsys.readouterr().err
    assert "interrupted at 8 of 20 rows; repeat the command to continue" in text
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 1


def test_a_disk_that_is_full_ends_the_run(
    events: Events, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    events.append(partial((tmp_path / "out").rename, tmp_path / "elsewhere"))
    assert main(arguments) == BAD_INPUT
    text = capsys.readouterr().err
    assert "part-00000000-000000000000.parquet" in text
    assert "repeat the command to continue" in text


def test_remains_of_killed_workers_go(events: Events, arguments: list[str], tmp_path: Path) -> None:
    (remains := tmp_path / "out" / ".part.parquet.host.1.tmp").parent.mkdir()
    events.append(partial(remains.write_bytes, b""))
    assert main([*arguments, "--skip-bad"]) == 0
    assert not remains.exists()


def test_progress() -> None:
    """On a terminal rows, all of them and their rate; nothing elsewhere."""
    tally, file = Tally(100, 10), io.StringIO()
    with shown(tally, Console(file=file)) as progress:
        assert progress is None
        advance(progress, tally)
    assert not file.getvalue()
    tally.add_before(Done(20, ()))
    console = Console(file=file, force_terminal=True, width=100)
    with shown(tally, console) as progress:
        for rows in (10, 30):
            tally.add(Done(rows, ()))
        tally.first = 10, tally.seconds - 2
        advance(progress, tally)
        assert progress is not None
        progress.refresh()
    assert "60/100 rows" in file.getvalue()
    assert "15.0 rows/s" in file.getvalue()
    assert np.isclose(tally.rows_per_second, 15)
