"""From a kernel to its image: loops and their addresses, no disk cache, dumps that fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from llvmlite import ir

from dnnl import config
from dnnl.codegen.compile import jit
from dnnl.codegen.ir.builder import F32, I64, Module, i64
from dnnl.codegen.ir.kernel import Kernel, Recipe
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.runtime.engine import Engine
from tests.codegen.lanes import runnable_rows
from tests.launch import launch


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


def _strided(hidden: bool) -> Module:
    """A loop over every third float, at addresses that LLVM sees unless they are ``hidden``."""
    module = Module("strided", runnable_rows()[0])
    phase = PhaseFunction(module, "strided", (0,))
    e, (pointer,) = phase.e, phase.arguments.values()
    start = e.opaque(pointer) if hidden else pointer

    def body(index: ir.Value) -> None:
        place = e.element(start, e.mul(index, 3), F32)
        e.b.store(e.b.fadd(e.b.load(place, typ=F32), ir.Constant(F32, 1)), place)

    e.loop(i64(0), i64(1000), body, unroll=False)
    phase.end(1)
    return module


def test_opaque_pointers_have_cheap_addresses() -> None:
    """Loops without them keep LLVM's search for such, whatever was compiled before."""
    seen, hidden = _strided(False), _strided(True)
    before = jit.assembly(seen)
    plain = jit.assembly(hidden)
    assert jit.assembly(seen) == before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit, "OPAQUE", "another name")
        assert jit.assembly(hidden) != plain
        patch.setattr(jit, "OPAQUE", "")
        assert jit.assembly(seen) != before


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("begin", "end", "step"), [(0, 10, 3), (1, 10, 3), (2, 9, 1), (4, 4, 2)])
def test_the_trips_of_a_loop(begin: int, end: int, step: int, known: bool) -> None:
    """Also where steps do not divide the range, or there are none."""

    def build(conf: str, isa: Isa) -> Kernel:
        module = Module(conf, isa)
        phase = PhaseFunction(module, conf, (0,))
        e, (pointer,) = phase.e, phase.arguments.values()

        def body(index: ir.Value) -> None:
            e.b.store(index, e.element(pointer, index, I64))

        def one_item(_: ir.Value) -> None:
            bounds = i64(begin), i64(end)
            if not known:
                bounds = tuple(e.b.load(e.element(pointer, i64(n), I64), typ=I64) for n in (16, 17))
            e.loop(*bounds, body, step=step, unroll=False)

        phase.each_item(1, one_item)
        return Kernel(module, (phase.end(1),), (0,))

    places = np.full(18, -1, np.int64)
    places[16:] = begin, end
    with config.override("cache_limit", 0):
        image, _ = jit.image(Recipe("trips", runnable_rows()[0], build))
    launch(Engine("cpu").load(image), (places.ctypes.data,))
    assert places[:16][places[:16] >= 0].tolist() == list(range(begin, end, step))
