"""What the callback of a compilation is told."""

from __future__ import annotations

import io
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from rich.console import Console

from dnnl import config
from dnnl.errors import InvalidArguments
from dnnl.framework.model import Model
from dnnl.framework.progress import PLANNING
from dnnl.primitives import primitive
from dnnl.tools import run
from dnnl.tools.cli import main
from tests.framework.models import make_model, model_of, node

Call = tuple[int, int, str]


def chain() -> Any:
    """Three kernels for four steps, and a constant that is packed."""
    nodes = [
        node("MatMul", ["x", "w"], "a"),
        node("Softmax", ["a"], "b"),
        node("Softmax", ["b"], "c"),
        node("ReduceMax", ["c"], "y", axes=[0]),
    ]
    weights = np.random.default_rng(1).standard_normal((40, 48))
    return make_model(nodes, {"x": (6, 40)}, ["y"], {"w": weights})


def check(calls: list[Call]) -> None:
    assert calls[0] == (0, 0, PLANNING)
    (total,) = {total for _, total, _ in calls[1:]}
    assert [done for done, _, _ in calls[1:]] == list(range(1, total + 1))
    assert len({what for *_, what in calls}) == total + 1


@pytest.fixture
def model() -> Model:
    return model_of(chain())


def test_each_kernel_is_told_once(model: Model) -> None:
    calls: list[Call] = []
    threads = set()

    def progress(done: int, total: int, what: str) -> None:
        calls.append((done, total, what))
        threads.add(threading.get_ident())

    primitive._cache.clear()
    with config.override("cache_limit", 0):
        session = model.compile(progress=progress)
    check(calls)
    assert threads == {threading.get_ident()}
    assert {what for *_, what in calls[1:]} <= {layer.name for layer in session.layers} | {"w"}
    known: list[Call] = []
    model.compile(progress=lambda *call: known.append(call))
    check(known)  # from the cache in memory
    assert len(known) == len(calls)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_what_it_raises_ends_the_compilation(model: Model, after: int) -> None:
    class Stopped(Exception):
        pass

    def progress(done: int, total: int, what: str) -> None:
        if done == after:
            raise Stopped(what)

    with pytest.raises(Stopped):
        model.compile(progress=progress)
    assert model.compile(progress=None)(np.ones((6, 40), np.float32)) is not None


def test_what_cannot_be_called_is_refused(model: Model) -> None:
    with pytest.raises(InvalidArguments, match=r"progress = 3: expected a function.*=print\)"):
        model.compile(progress=3)  # type: ignore[arg-type]


def test_the_command_shows_it_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, shown = tmp_path / "model.onnx", io.StringIO()
    onnx.save(chain(), path)
    assert main(["run", str(path), "--repeat", "1"]) == 0
    assert not capsys.readouterr().err
    terminal = Console(file=shown, force_terminal=True, width=80)
    monkeypatch.setattr(run, "Console", lambda **_: terminal)
    assert main(["run", str(path), "--repeat", "1"]) == 0
    assert re.search(r"(\d+)/\1", shown.getvalue())
