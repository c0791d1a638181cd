"""The way to an image: without a cache on disk, and with a dump that cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from dnnl import config
from dnnl.codegen.compile import jit
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Kernel, Recipe
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.phase import PhaseFunction
from tests.codegen.lanes import runnable_rows


def _nothing(conf: str, isa: Isa) -> Kernel:
    module = Module(conf, isa)
    return Kernel(module, (PhaseFunction(module, conf, ()).end(1),), ())


def _recipe() -> Recipe:
    return Recipe("nothing", runnable_rows()[0], _nothing)


def test_a_user_without_a_home_builds_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("DNNL_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    for _ in range(2):
        image, cached = jit.image(_recipe())
        assert image.code
        assert not cached


def test_a_dump_lies_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with config.override("cache_dir", tmp_path / "cache"), config.override("jit_dump", True):
        jit.image(_recipe())
    dumped = sorted(file.suffix for file in tmp_path.glob("dnnl_dump_cpu_nothing.*"))
    assert dumped == [".ll", ".o", ".s"]


def test_a_dump_that_cannot_be_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, text: str) -> None:
        raise PermissionError(f"no place for {path.name}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "write_text", refuse)
    with config.override("cache_dir", tmp_path / "cache"), config.override("jit_dump", True):
        assert jit.image(_recipe())[0].code
        assert capsys.readouterr().out == ""
        with config.override("verbose", "warn"):
            jit.image(_recipe())
    assert "common,warn,kernel dump dnnl_dump_cpu_nothing" in capsys.readouterr().out


def test_lines_for_who_works_on_the_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verbose = config.override("verbose", "profile_externals,debuginfo=2")
    with config.override("cache_dir", tmp_path), verbose:
        for _ in range(2):
            jit.image(_recipe())
    lines = [line for line in capsys.readouterr().out.splitlines() if ",common," in line]
    name = jit.key(_recipe())
    kernel = f"dnnl_verbose,v1,common,debuginfo,kernel,{name}"
    told = [line.rpartition(",")[0] if "externals" in line else line for line in lines]
    assert told[0] == "dnnl_verbose,v1,common,profile_externals,llvm,nothing"
    assert [line.partition(f"{name},")[2].split(",")[0] for line in told[1:]] == [
        "generated",
        told[2].rpartition(",")[2],
        "disk",
        told[4].rpartition(",")[2],
    ]
    assert told[1].startswith(kernel)
