"""``dnnl score`` with Ray: workers that are killed, runs that continue, a cluster of its own."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs dnnl[score]")

import pyarrow as pa
import ray

import dnnl
from dnnl.errors import InvalidArguments
from dnnl.tools.score.cluster import connected
from dnnl.tools.score.folder import PATH, ROW
from tests.tools.score.scoring import assert_close, column, computed, results
from tests.tools.score.sets import Array, dense_model, rng, tensors, write_parquet

SECONDS = 120
"""After which a step has failed."""


def started(model: Path, data: Path, out: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command in a process, with the folder of the model as its home."""
    environment = {**os.environ, "HOME": str(model.parent)}
    command = [sys.executable, "-m", "dnnl", "score", str(model), str(data), "-o", str(out)]
    pipe = subprocess.PIPE
    whole = [*command, *arguments]
    return subprocess.Popen(whole, text=True, env=environment, stdout=pipe, stderr=pipe)


def processes() -> dict[int, tuple[int, str]]:
    """The parent and the command line of each process that is not dead."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                text = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(folder.name)] = int(parent), text
    return found


def below(process: int) -> dict[int, str]:
    """The processes that a process has started, and those that they have, by their command."""
    there, found = processes(), {process: ""}
    grown = True
    while grown:
        more = {pid: text for pid, (parent, text) in there.items() if parent in found}
        grown = not more.keys() <= found.keys()
        found.update(more)
    del found[process]
    return found


def wait_for(condition: Callable[[], bool], what: str) -> None:
    end = monotonic() + SECONDS
    while not condition():
        assert monotonic() < end, f"no {what} within {SECONDS} s"
        sleep(0.02)


def test_a_killed_worker_loses_no_row(tmp_path: Path) -> None:
    """One of two workers, in the middle: each row is there once, and no process stays."""
    model, data, out = dense_model(tmp_path / "m.onnx"), tmp_path / "data", tmp_path / "out"
    x = rng().standard_normal((300, 8)).astype(np.float32)
    for file in range(2):
        rows = {"x": tensors(x[150 * file : 150 * file + 150])}
        write_parquet(data / f"{file}.parquet", rows, group=50)
    sizes = ("--part-rows", "3", "--batch", "3", "--workers", "2", "--threads", "1")
    run = started(model, data, out, *sizes)
    seen: dict[int, str] = {}
    try:
        wait_for(lambda: run.poll() is not None or len(list(out.glob("*.parquet"))) > 5, "parts")
        seen = below(run.pid)
        workers = [pid for pid, text in seen.items() if "MapWorker" in text]
        assert workers, seen
        os.kill(workers[0], signal.SIGKILL)
        done = len(list(out.glob("*.parquet")))
        shown, errors = run.communicate(timeout=SECONDS)
    finally:
        run.kill()
    assert run.returncode == 0, errors
    assert done < 100
    assert "300 rows in " in shown
    table = results(out)
    assert table.column(PATH).to_pylist() == ["0.parquet"] * 150 + ["1.parquet"] * 150
    assert table.column(ROW).to_pylist() == [*range(150)] * 2
    assert_close(column(table, "y"), dnnl.load(model)(x))
    assert not [path for path in out.iterdir() if path.suffix not in (".parquet", ".json")]
    assert not (tmp_path / ".ray").exists()
    wait_for(lambda: not seen.keys() & processes().keys(), "end of the processes of Ray")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster of Ray's. It listens to the network, so that it has a token of its
    own, which both sides find in the environment."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(16))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("ray")
    flags = ("--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats", "--block")
    head = subprocess.Popen(
        [program, "start", "--head", f"--port={port}", *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    seen: dict[int, str] = {}
    try:
        wait_for(lambda: any("raylet" in text for text in below(head.pid).values()), "raylet")
        yield f"localhost:{port}"
        seen = below(head.pid)
    finally:
        head.kill()  # which takes half a minute to end by itself, as those that it has started do
        head.wait(SECONDS)
        for pid, (_, text) in processes().items():
            if seen.get(pid) == text:
                os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not seen.keys() & processes().keys(), "end of the cluster")


@pytest.mark.every
def test_a_cluster_continues(tmp_path: Path, cluster: str) -> None:
    """What there is already is not computed again; a bad row is left out and listed."""
    model, data, out = dense_model(tmp_path / "m.onnx"), tmp_path / "d.parquet", tmp_path / "out"
    x = rng().standard_normal((40, 8)).astype(np.float32)
    rows: list[Array | None] = list(x)
    rows[33] = None
    write_parquet(data, {"x": pa.array(rows, pa.list_(pa.float32()))})
    options = ("--part-rows", "8", "--batch", "8", "--threads", "1", "--skip-bad")
    computed(model, data, out, *options)
    parts = sorted(out.glob("*.parquet"))
    for part in parts[2:]:
        part.unlink()
    states = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    text = ended(started(model, data, out, *options, "--address", cluster), 0)
    assert text.startswith("23 rows in ")
    assert ", 16 before, 1 bad; 5 parts\n  bad: d.parquet, row 33: column 'x' a value" in text
    assert {path: path.stat().st_mtime_ns for path in states} == states
    good = [row for row in range(40) if row != 33]
    table = results(out)
    assert table.column(ROW).to_pylist() == good
    assert_close(column(table, "y"), dnnl.load(model)(x[good]))


def test_a_cluster_must_have_enough_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would wait for ever."""
    ended = []
    monkeypatch.setattr(ray, "init", lambda **_: None)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 4.0})
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    with connected("localhost:1", 1, 3):
        pass
    rule = "with --threads 2 and 1 cpu to read, 5 cpus are needed; the cluster has 4"
    with pytest.raises(InvalidArguments, match=rule), connected("localhost:1", 2, 2):
        pass
    assert ended == [True, True]


def ended(run: subprocess.Popen[str], status: int) -> str:
    """What a run has written."""
    try:
        output, errors = run.communicate(timeout=SECONDS)
    finally:
        run.kill()
    assert run.returncode == status, output + errors
    return output + errors
