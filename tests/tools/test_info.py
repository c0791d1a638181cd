"""``dnnl info`` shows every part, and says what is wrong instead of failing."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

import dnnl
from dnnl import config
from dnnl.tools.info import info, show


def shown() -> str:
    text = io.StringIO()
    show(Console(file=text, width=200))
    return text.getvalue()


def test_command() -> None:
    done = CliRunner().invoke(info)
    assert done.exit_code == 0
    assert dnnl.__version__ in done.output


def test_every_part_is_there() -> None:
    text = shown()
    for part in ("llvmlite", "cpu:0", "null:0", dnnl.Engine("cpu").features.cpu, "threads"):
        assert part in text
    for knob in config.KNOBS:
        assert knob.variables[0] in text


def test_cache_is_counted(tmp_path: Path) -> None:
    (tmp_path / "kernel").write_bytes(bytes(2**20))
    with config.override("cache_dir", tmp_path):
        assert "1, 1.0 MiB" in shown()
    with config.override("cache_dir", tmp_path / "absent"):
        assert "none (No such file" in shown()


def test_no_home_and_no_folder_that_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        config,
        "get",
        {**{k.name: None for k in config.KNOBS}, "max_cpu_isa": "default", "verbose": "none"}.get,
    )
    assert "none: this user has no home" in shown()
    monkeypatch.undo()
    monkeypatch.setenv("DNNL_CACHE_DIR", "~nobody-of-this-name/cache")
    assert "DNNL_CACHE_DIR" in shown()


def test_a_bad_setting_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DNNL_NUM_THREADS", "0")
    with config.override("jit_dump", True):  # makes the library look at its environment again
        text = shown()
    assert "refused: DNNL_NUM_THREADS = '0'" in text
