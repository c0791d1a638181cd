"""A short run: every activity works, and one that leaks is found and named."""

from __future__ import annotations

import os
import random
from pathlib import Path
from time import sleep

import pytest
from click.testing import CliRunner

from tests.soak import __main__, activities, run
from tests.soak.activities import ACTIVITIES, _known, threads
from tests.soak.run import soak

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")


def test_every_activity_runs_and_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "TURN", 0.05)
    monkeypatch.setattr(run, "PROGRESS", 1.0)
    said: list[str] = []
    made = soak(ACTIVITIES, 4.0, say=said.append)
    assert made.done.keys() == ACTIVITIES.keys()
    assert set(made.turns) == set(ACTIVITIES)
    assert all(len(values) == len(made.times) for values in made.values.values())
    assert said[0].endswith(" us")
    failures = " ".join(made.failures)
    assert "open files" not in failures
    assert "threads" not in failures


def test_other_bits_in_a_thread_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [(primitive, args, ~want) for primitive, args, want in _known()]
    monkeypatch.setattr(activities, "_known", lambda: wrong)
    with pytest.raises(AssertionError, match="gave other bits than before"):
        threads(random.Random(1))


def test_what_leaks_is_found_and_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = []

    def leak(chance: random.Random) -> None:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        sleep(0.005)  # or a fast machine would open more than it may

    plot = tmp_path / "new" / "soak.png"
    monkeypatch.setattr(run, "TURN", 0.001)
    monkeypatch.setattr(__main__, "ACTIVITIES", {"nothing": lambda _: None, "leak": leak})
    options = ["--minutes", "0.05", "--plot", str(plot)]
    result = CliRunner().invoke(__main__.main, options)
    for file in opened:
        os.close(file)
    assert result.exit_code == 1, result.output
    assert "FAILED: open files +" in result.output
    assert "by leak" in result.output
    assert "too short" not in result.output
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_what_raises_ends_the_run_with_its_plot_and_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = [None] * 3

    def broken(chance: random.Random) -> None:
        left.pop()

    plot = tmp_path / "soak.png"
    monkeypatch.setattr(run, "TURN", 0.001)
    monkeypatch.setattr(__main__, "ACTIVITIES", {"nothing": lambda _: None, "broken": broken})
    result = CliRunner().invoke(__main__.main, ["--minutes", "1", "--plot", str(plot)])
    assert result.exit_code == 1, result.output
    assert "FAILED: broken raised\nTraceback" in result.output
    assert "IndexError: pop from empty list" in result.output
    assert "       3 broken" in result.output
    assert "too short to judge: 2 samples" in result.output
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_what_leaks_nothing_ends_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "TURN", 0.001)
    options = ["--minutes", "0.01", "--only", "streams", "--plot", str(tmp_path / "soak.png")]
    result = CliRunner().invoke(__main__.main, options)
    assert result.exit_code == 0, result.output
    assert "streams" in result.output
