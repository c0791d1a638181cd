"""Verbose lines: which levels print, the header, and what a bad setting is told."""

from __future__ import annotations

import threading

import pytest

import dnnl
from dnnl import config, log
from dnnl.errors import InvalidArguments

PRINTING = ["error", "warn", "check", "dispatch", "profile_create", "profile_exec"]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing printed so far, nothing described, nothing set."""
    monkeypatch.setattr(log, "_printed", set())
    monkeypatch.setattr(log, "_descriptions", {})
    monkeypatch.setattr(log, "_generation", -1)
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
        ("all", " ".join(PRINTING)),
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
        ("1,loud", "DNNL_VERBOSE = '1,loud': no such level: 'loud'; there are none, error, "),
        (
            "filter=(",
            "DNNL_VERBOSE = 'filter=(': the filter is no regular expression: missing )",
        ),
    ],
)
def test_a_bad_setting_is_explained(text: str, message: str) -> None:
    with config.override("verbose", text), pytest.raises(InvalidArguments) as caught:
        log.enabled("error")
    assert str(caught.value).startswith(message)


def test_the_header_comes_once_and_each_description_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.describe("runtime", lambda: "cpu,runtime:native,nthr:2")
    log.describe("runtime", lambda: "a key keeps its first text")
    log.line("primitive", "exec", "cpu", 0.123456789)
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
