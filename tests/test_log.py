"""Verbose lines: which levels print, the header, and what a bad setting is told."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import dnnl
from dnnl import config, log
from dnnl.errors import InvalidArguments
from tests.forking import DONE, forked

PRINTING = [
    "error", "warn", "check", "dispatch", "profile_create", "profile_exec", "profile_externals",
    "debuginfo=1", "debuginfo=2",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing printed so far, nothing described, nothing set."""
    monkeypatch.setattr(log, "_printed", set())
    monkeypatch.setattr(log, "_descriptions", {})
    monkeypatch.setattr(log, "_generation", -1)
    monkeypatch.setattr(log, "_stamped", False)
    monkeypatch.setattr(log, "_sink", "stdout")
    monkeypatch.delenv("DNNL_VERBOSE", raising=False)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("none", ""),
        ("0", ""),
        ("error", "error"),
        ("check", "error check"),
        ("dispatch", "error dispatch"),
        ("1", "error profile_exec"),
        ("profile_exec", "error profile_exec"),
        ("2", "error profile_create profile_exec"),
        ("profile", "error profile_create profile_exec"),
        ("dispatch, Warn", "error warn dispatch"),
        ("profile_externals", "error profile_externals"),
        ("all", " ".join(PRINTING[:7])),
        ("debuginfo=1", "error debuginfo=1"),
        ("warn,debuginfo=127", "error warn debuginfo=1 debuginfo=2"),
        ("debuginfo=0", "error"),
    ],
)
def test_levels(text: str, levels: str) -> None:
    with config.override("verbose", text):
        assert [level for level in PRINTING if log.enabled(level)] == levels.split()


def test_errors_are_reported_by_default() -> None:
    assert [level for level in PRINTING if log.enabled(level)] == ["error"]


def test_the_last_filter_selects_components() -> None:
    with config.override("verbose", "1,filter=softmax,filter=^(conv|matmul)"):
        assert log.enabled("profile_exec")
        assert log.enabled("profile_exec", "convolution")
        assert not log.enabled("profile_exec", "deconvolution")
        assert not log.enabled("profile_exec", "softmax")
        assert not log.enabled("dispatch", "convolution")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,loud", "no such level: 'loud'; there are none, error, "),
        ("filter=(", "the filter is no regular expression: missing )"),
        ("debuginfo=", "the level of debuginfo must be an integer of 0..127"),
        ("debuginfo=128", "the level of debuginfo must be an integer of 0..127"),
    ],
)
def test_a_bad_setting_is_explained(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        config.set("verbose", text)
    assert str(caught.value).startswith(f"verbose = {text!r}: {message}")
    monkeypatch.setenv("DNNL_VERBOSE", text)
    with pytest.raises(InvalidArguments) as caught:
        log.enabled("error")
    assert str(caught.value).startswith(f"DNNL_VERBOSE = {text!r}: {message}")


def test_the_header_comes_once_and_each_description_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.describe("runtime", lambda: "cpu,runtime:native,nthr:2")
    log.describe("runtime", lambda: "a key keeps its first text")
    log.line("primitive", "exec", "cpu", ms=0.123456789)
    log.describe("isa", lambda: "cpu,isa:some")
    log.line("primitive", "exec", "cpu", 12)
    log.line("last")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"dnnl_verbose,v1,info,dnnl v{dnnl.__version__}",
        "dnnl_verbose,v1,info,cpu,runtime:native,nthr:2",
        "dnnl_verbose,v1,primitive,exec,cpu,0.123457",
        "dnnl_verbose,v1,info,cpu,isa:some",
        "dnnl_verbose,v1,primitive,exec,cpu,12",
        "dnnl_verbose,v1,last",
    ]


def test_a_timestamp_is_of_the_beginning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.25)
    with config.override("verbose_timestamp", True):
        assert log.enabled("error")
        log.line("primitive", "exec", "cpu", ms=1.5)
        log.line("common", "warn", "what")
    assert capsys.readouterr().out.splitlines()[1:] == [
        "dnnl_verbose,v1,1700000000248.500,primitive,exec,cpu,1.5",
        "dnnl_verbose,v1,1700000000250.000,common,warn,what",
    ]


def test_lines_of_several_threads_stay_whole(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        for _ in range(200):
            log.line("x" * 20, "y" * 20)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 800
    assert lines[0].startswith("dnnl_verbose,v1,info,dnnl v")
    assert set(lines[1:]) == {f"dnnl_verbose,v1,{'x' * 20},{'y' * 20}"}


@pytest.fixture
def relu() -> Callable[[], None]:
    """An execution, whose result is checked."""
    md, engine = dnnl.MemoryDesc((4,), "f32"), dnnl.Engine("cpu")
    desc = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", md, md)
    primitive = dnnl.Primitive(dnnl.PrimitiveDesc(desc, engine))

    def run() -> None:
        src, dst = dnnl.Memory.from_numpy(np.array([-1, 2, -3, 4], "f4")), dnnl.Memory(md, engine)
        primitive(dnnl.Stream(engine, 1), {dnnl.Arg.SRC: src, dnnl.Arg.DST: dst})
        assert dst.numpy().tolist() == [0, 2, 0, 4]

    return run


def test_a_function_gets_each_line(
    relu: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    with config.override("verbose_sink", lines.append), config.override("verbose", "1"):
        relu()
        relu()
    assert lines[0] == f"dnnl_verbose,v1,info,dnnl v{dnnl.__version__}"
    assert [line.split(",")[3:6] for line in lines[-2:]] == [["exec", "cpu", "eltwise"]] * 2
    with config.override("verbose", "1"):
        relu()
    assert capsys.readouterr().out.startswith("dnnl_verbose,v1,primitive,exec,cpu,eltwise,")


def test_lines_go_to_logging(relu: Callable[[], None], caplog: pytest.LogCaptureFixture) -> None:
    with config.override("verbose_sink", "logging"), config.override("verbose", "1"):
        relu()
        assert not caplog.records  # as a logger lets warnings pass by itself
        with caplog.at_level(logging.DEBUG, logger="dnnl"):
            relu()
            log.line("common", "warn", "100% of what")
            log.line("common", "debuginfo", "code")
    levels = [(record.name, record.levelname) for record in caplog.records]
    assert levels == [("dnnl", "INFO"), ("dnnl", "WARNING"), ("dnnl", "DEBUG")]
    assert caplog.messages[0].startswith("dnnl_verbose,v1,primitive,exec,cpu,eltwise,")
    assert caplog.messages[1] == "dnnl_verbose,v1,common,warn,100% of what"


def test_the_sink_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DNNL_VERBOSE_SINK", "Logging")
    assert config.get("verbose_sink") == "logging"
    monkeypatch.setenv("DNNL_VERBOSE_SINK", "syslog")
    with pytest.raises(
        InvalidArguments, match=r"DNNL_VERBOSE_SINK = 'syslog': .* to stdout or log"
    ):
        config.get("verbose_sink")


def test_what_a_function_raises_breaks_no_execution(
    relu: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(line: str) -> None:
        raise OSError(f"no place for {line[:12]}")

    with config.override("verbose_sink", fails), config.override("verbose", "1"):
        relu()
    assert "OSError: no place for dnnl_verbose" in capsys.readouterr().err


def test_a_function_that_executes_is_not_called_for_that(relu: Callable[[], None]) -> None:
    lines: list[str] = []

    def executes(line: str) -> None:
        lines.append(line)
        relu()

    with config.override("verbose_sink", executes), config.override("verbose", "1"):
        relu()
    assert sum(",exec," in line for line in lines) == 1


def test_a_function_with_a_lock_that_others_have(relu: Callable[[], None]) -> None:
    """While one thread is in the function, waiting, another one writes lines under its lock."""
    lock, inside = threading.Lock(), threading.Event()
    lines: list[str] = []

    def locks(line: str) -> None:
        inside.set()
        if threading.current_thread() is not owner:
            lock.acquire(timeout=30)
            lines.append(line)
            lock.release()

    owner = threading.current_thread()
    with config.override("verbose_sink", locks), config.override("verbose", "1"):
        with lock:
            other = threading.Thread(target=relu)
            other.start()
            assert inside.wait(30)
            relu()
        other.join(30)
    assert not other.is_alive()
    assert ",exec," in lines[-1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is POSIX")
def test_lines_of_the_child_of_a_fork(relu: Callable[[], None]) -> None:
    """Whatever other threads were writing at the time."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            relu()

    def child() -> None:
        lines: list[str] = []
        config.set("verbose_sink", lines.append)
        relu()
        assert sum(",exec," in line for line in lines) == 1

    with config.override("verbose_sink", lambda line: None), config.override("verbose", "1"):
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            assert [forked(child) for _ in range(5)] == [DONE] * 5
        finally:
            stop.set()
            for thread in threads:
                thread.join()
