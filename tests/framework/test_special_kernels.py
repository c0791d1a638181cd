"""Kernels of one size for what is called often: when they are made, and that results stay."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl import config
from dnnl.framework import background
from dnnl.framework.model import Model
from dnnl.framework.plans import Plans
from tests.forking import DONE, forked
from tests.framework.models import graph_of, make_model, node, plans_of

RNG = np.random.default_rng(362)
AT_ONCE = dnnl.SpecialKernels("often", seconds=0.0)


def network(policy: dnnl.SpecialKernels) -> Model:
    nodes = [
        node("MatMul", ["x", "w"], "m"),
        node("Relu", ["m"], "r"),
        node("MatMul", ["r", "v"], "y"),
    ]
    random = np.random.default_rng(1)
    constants = {
        "w": random.standard_normal((40, 72), dtype=np.float32),
        "v": random.standard_normal((72, 24), dtype=np.float32),
    }
    proto = make_model(nodes, {"x": ("n", 40)}, ["y"], constants)
    return Model(graph_of(proto)).with_special_kernels(policy)


def rows(count: int) -> np.ndarray:
    return RNG.standard_normal((count, 40), dtype=np.float32)


def assert_close(got: object, want: object) -> None:
    """Equal but for the order in which up to 72 products of some units are added."""
    assert isinstance(got, np.ndarray)
    assert isinstance(want, np.ndarray)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3)


def sizes_of(model: Model) -> list[int]:
    return [shapes["x"][0] for shapes in model.special_sizes]


def wait_for(model: Model, *counts: int) -> None:
    """Wait until the sizes with kernels of their own are these."""
    end = time.monotonic() + 120
    while sizes_of(model) != list(counts):
        assert time.monotonic() < end, sizes_of(model)
        time.sleep(0.02)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is asked for in the background, which is not done."""
    found: list[Any] = []
    monkeypatch.setattr(background._builder, "add", found.append)
    return found


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The lines of the log of what is created and of warnings."""
    found: list[str] = []
    with (
        config.override("verbose", "warn,profile_create"),
        config.override("verbose_sink", found.append),
    ):
        yield found


def test_a_size_that_is_met_often_gets_its_own_kernels(lines: list[str]) -> None:
    model, x = network(AT_ONCE), rows(13)
    model(rows(8))
    before = model(x)
    wait_for(model, 8, 13)
    plans = plans_of(model)
    special = plans.sessions[1]
    use = plans._use(*asked(plans, x))
    assert use.session is special
    assert not special.is_open
    after = model(x, num_threads=1)
    assert_close(after, before)
    assert any("create:special_kernels,x:13x40" in line for line in lines)


def asked(plans: Plans, x: np.ndarray) -> tuple[Any, Any, Any]:
    from dnnl.framework.plans import _key

    arrays, contents = plans._given({"x": x})
    return _key(arrays, contents), arrays, contents


def test_constants_in_the_same_layout_are_shared() -> None:
    model = network(AT_ONCE)
    model(rows(8))
    model(rows(70))
    wait_for(model, 8, 70)
    _, special, opened = plans_of(model).sessions
    shared = {own.pointer for own in opened.compiled.constants.values()}
    own = [memory.pointer in shared for memory in special.compiled.constants.values()]
    assert any(own)


def test_seconds_are_those_of_all_runs_of_a_size(jobs: list[Any]) -> None:
    model = network(dnnl.SpecialKernels("often", seconds=1000.0))
    model(rows(8))
    plans = plans_of(model)
    for count in (5, 6):
        model(rows(count))
        use = plans._use(*asked(plans, rows(count)))
        assert 0 < use.seconds < 1000
        use.seconds = 1000.0 if count == 6 else 500.0
    model(rows(5))
    assert not jobs
    model(rows(6))
    model(rows(6))
    assert len(jobs) == 1


def test_never_and_always(jobs: list[Any]) -> None:
    never = network(dnnl.SpecialKernels("never", seconds=0.0))
    for count in (4, 5, 6, 5):
        never(rows(count))
    assert sizes_of(never) == [4]
    always = network(dnnl.SpecialKernels("always", most=2))
    want = {count: never(rows_of(count)) for count in (4, 5, 6)}
    for count in (4, 5, 4, 6):
        assert_close(always(rows_of(count)), want[count])
    assert sizes_of(always) == [4, 6]  # 5 is the least recently used
    assert not any(session.is_open for session in plans_of(always).sessions)
    assert not jobs


def rows_of(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 40), dtype=np.float32)


def test_the_environment_decides_where_the_policy_does_not(jobs: list[Any]) -> None:
    assert dnnl.SpecialKernels().decided == "often"
    with config.override("special_kernels", "always"):
        model = network(dnnl.SpecialKernels())
        for count in (4, 5):
            model(rows(count))
        assert sizes_of(model) == [4, 5]
    with config.override("special_kernels", "never"):
        model = network(dnnl.SpecialKernels(seconds=0.0))
        for count in (4, 5):
            model(rows(count))
        assert not jobs
        assert dnnl.SpecialKernels("Often").decided == "often"


def test_sessions_for_several_sizes(lines: list[str]) -> None:
    session = network(AT_ONCE).compile(sizes={"n": (2, 64)})
    x = rows(9)
    before = session(x)
    runner = session._runner  # type: ignore[attr-defined]
    end = time.monotonic() + 120
    while len(runner.sessions) < 2:
        assert time.monotonic() < end, lines
        time.sleep(0.02)
    assert_close(session(x), before)


def test_what_fails_is_a_line_of_the_log(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model = network(AT_ONCE)
    model(rows(8))
    done = threading.Event()
    add = background._builder.add

    def added(job: Callable[[], None]) -> None:
        add(job)
        add(done.set)

    monkeypatch.setattr(background._builder, "add", added)
    monkeypatch.setattr(background, "_PROGRAM", "dnnl.no_such_module")
    before = model(x := rows(30))
    assert done.wait(60)
    assert any("special kernels for x:30x40: " in line for line in lines)
    assert any("no_such_module" in line for line in lines)
    np.testing.assert_array_equal(model(x), before)
    assert sizes_of(model) == [8]


def test_calls_go_on_while_a_plan_is_compiled() -> None:
    model = network(AT_ONCE)
    model(rows(8))
    want = {count: model(rows_of(count)) for count in range(20, 24)}
    for _ in range(50):
        for count, expected in want.items():
            assert_close(model(rows_of(count)), expected)
    wait_for(model, 8, 20, 21, 22, 23)
    for count, expected in want.items():
        assert_close(model(rows_of(count)), expected)


def test_nothing_is_left_of_a_model_that_nobody_has() -> None:
    model = network(AT_ONCE)
    model(rows(8))
    model(rows(12))
    wait_for(model, 8, 12)
    plans = plans_of(model)
    assert plans._source is not None
    folder, gone = plans._source.folder, weakref.ref(plans)
    assert folder.stat().st_mode & 0o77 == 0
    del model, plans
    gc.collect()
    assert gone() is None
    assert not folder.exists()


def test_a_model_that_is_gone_is_not_compiled_for(jobs: list[Any]) -> None:
    model = network(AT_ONCE)
    model(rows(8))
    model(rows(12))
    del model
    gc.collect()
    (job,) = jobs
    job()  # would fail for want of a model


def test_a_job_that_fails_does_not_end_the_thread(lines: list[str]) -> None:
    done = threading.Event()

    def fail() -> None:
        raise RuntimeError("by accident")

    background._builder.add(fail)
    background._builder.add(done.set)
    assert done.wait(60)
    assert any("RuntimeError: by accident" in line for line in lines)


def test_two_that_ask_at_once_get_one_plan(jobs: list[Any], lines: list[str]) -> None:
    model, x = network(AT_ONCE), rows(12)
    model(rows(8))
    model(x)
    plans = plans_of(model)
    plans._build_special(*asked(plans, x), plans.sessions[-1])
    first, second = jobs
    first()
    made = plans.sessions
    second()
    assert plans.sessions == made
    assert sum("create:special_kernels" in line for line in lines) == 1


def test_the_other_process_takes_no_modules_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('of the current folder')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    model = network(AT_ONCE)
    model(rows(8))
    model(rows(12))
    wait_for(model, 8, 12)


def test_a_child_of_a_fork_has_them_too() -> None:
    model = network(AT_ONCE)
    model(rows(8))
    model(rows(12))
    wait_for(model, 8, 12)

    def child() -> None:
        model(rows(15))
        wait_for(model, 8, 12, 15)

    assert forked(child) == DONE


def test_models_of_a_model_have_its_policy() -> None:
    model = network(AT_ONCE)
    for own in (model.with_memory_budget(1 << 20), pickle.loads(pickle.dumps(model))):
        assert own.special_kernels == AT_ONCE
    assert model.with_batch(4).special_kernels == AT_ONCE


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"when": "sometimes"}, "when"),
        ({"when": 3}, "when"),
        ({"seconds": -1.0}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"seconds": "1"}, "seconds"),
        ({"most": 0}, "most"),
        ({"most": 2.0}, "most"),
    ],
)
def test_wrong_policies_are_refused(given: dict[str, Any], named: str) -> None:
    with pytest.raises(dnnl.InvalidArguments, match=named):
        dnnl.SpecialKernels(**given)
    with pytest.raises(dnnl.InvalidArguments, match="policy"):
        network(AT_ONCE).with_special_kernels(given)  # type: ignore[arg-type]


def test_the_other_process_has_the_knobs_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with (
        config.override("num_threads", 1),
        config.override("oversubscribe", True),
        config.override("verbose_sink", print),
    ):
        found = config.environment()
    assert found["DNNL_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in found
    assert found["DNNL_OVERSUBSCRIBE"] == "1"
    assert "DNNL_VERBOSE_SINK" not in found
    assert config.environment()["OMP_NUM_THREADS"] == os.environ["OMP_NUM_THREADS"]
