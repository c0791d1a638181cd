"""Verbose lines: which levels print, the header, and what a bad setting is told."""

from __future__ import annotations

import threading
import time

import pytest

import dnnl
from dnnl import config, log
from dnnl.errors import InvalidArguments

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
