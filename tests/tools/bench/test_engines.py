"""``--engine`` and ``--cross-engine``: cases on a device that the host cannot touch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dnnl import Engine, InvalidArguments, Memory, MemoryDesc
from dnnl.primitives.registry import OPERATIONS
from dnnl.primitives.transfer import Transfer
from dnnl.runtime.engine import missing
from dnnl.runtime.engines import sycl
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.command import run
from dnnl.tools.bench.execute import Executor
from dnnl.tools.bench.result import Result, State
from dnnl.tools.cli import main
from dnnl.tools.engines import named
from tests.device import FAR, FarBackend, FarQueue, Launch, backend_of

LINES = [
    f"--{operation.driver.name} {operation.examples[0]}"
    for operation in (desc.operation for desc in OPERATIONS.values())
]
REORDERS = (
    "--sdt=f32,s8 --ddt=bf16,s8 --stag=abx,axb --dtag=abx,aBx16b 2x17x3x4",
    "--attr-post-ops=sum:0.5 --attr-scales=src:per_dim_1 3x5",
    "--ddt=s8 --oflag=s8s8_comp:1 --dtag=aBx8b 9x5x3",
    "--runtime-dim-mask=1,3 4x6",
    "--strides=40x8x1:1x4x20 4x5x6",
    "--sdt=s4 --ddt=f32 --attr-zero-points=src:common:2 3x8",
    "0x3",
)


def results(line: str) -> list[Result]:
    executor = Executor()
    return [executor.run(case) for case in Interpreter().cases(line.split())]


@pytest.mark.parametrize("line", LINES)
def test_cases_of_every_driver_are_right_on_a_device(line: str) -> None:
    backend = backend_of(FAR)
    writes, reads = backend.writes, backend.reads
    found = results(f"--engine=far {line}")
    assert {result.state for result in found} <= {State.PASSED, State.MISTRUSTED}, found
    assert backend.writes > writes
    assert backend.reads > reads


@pytest.mark.parametrize("line", REORDERS)
@pytest.mark.parametrize("way", ["cpu2gpu", "gpu2cpu"])
def test_reorders_across_engines_are_right(way: str, line: str) -> None:
    found = results(f"--engine=far:1 --reorder --cross-engine={way} {line}")
    assert {result.state for result in found} == {State.PASSED}, [r.lines for r in found]


@pytest.mark.parametrize("way", ["cpu2gpu", "gpu2cpu"])
def test_what_crosses_is_checked(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies to the engine that executes, and those from it."""

    def zeros(own: Memory, other: Memory) -> None:
        own.write(np.zeros(own.desc.size, np.uint8))

    monkeypatch.setattr(Memory, "write_from", zeros)
    (result,) = results(f"--engine=far --reorder --cross-engine={way} 3x5")
    assert result.state is State.FAILED


def test_tensors_are_where_the_case_says(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    init = Transfer.__init__

    def noted(own: Transfer, pd: object, args: dict[int, Memory]) -> None:
        seen.append((args[1].engine.kind, args[17].engine.kind))
        init(own, pd, args)  # type: ignore[arg-type]

    monkeypatch.setattr(Transfer, "__init__", noted)
    results("--engine=far --reorder --cross-engine=none,cpu2gpu,gpu2cpu 3x5")
    assert seen == [("cpu", "far"), ("far", "cpu")]


def test_the_processor_alone_has_nothing_to_cross() -> None:
    for line in ("", "--engine=cpu:0 "):
        (result,) = results(f"{line}--reorder --cross-engine=gpu2cpu 3x5")
        assert (result.state, result.reason) == (State.SKIPPED, "Case not supported")


@pytest.mark.parametrize("mode", "IRSBP")
def test_every_mode_runs_on_a_device(mode: str) -> None:
    found = results(f"--engine=far --mode={mode} --fix-times-per-prb=3 --matmul 20x30:30x40")
    assert not any(result.state.bad for result in found), found
    if mode == "P":
        assert min(found[0].measured.runs) > 0


def test_an_execution_that_fails_fails_its_case_alone() -> None:
    backend_of(FAR).failure = RuntimeError("the device is gone")
    first, second = results("--engine=far --softmax 3x5 4x5")
    assert first.state is State.UNTESTED_FAILED
    assert "the device is gone" in first.lines[0]
    assert second.state is State.PASSED


def test_a_device_with_a_clock_times_its_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def make_queue(own: FarBackend, in_order: bool, profiling: bool = False) -> FarQueue:
        asked.append(profiling)
        return FarQueue(own, in_order)

    monkeypatch.setattr(FarBackend, "make_queue", make_queue)
    monkeypatch.setattr(Launch, "seconds", 0.25)
    (result,) = results("--engine=far --mode=P --fix-times-per-prb=3 --softmax 3x5")
    assert result.measured.runs == (250.0,) * 3
    results("--engine=far --softmax 3x5")
    assert asked == [True, False]


def test_what_only_describes_executes_nothing() -> None:
    (created,) = results("--engine=null --mode=I --softmax 3x5")
    assert created.state is State.INITIALIZED
    (result,) = results("--engine=null --softmax 3x5")
    assert (result.state, result.reason) == (
        State.UNIMPLEMENTED,
        "engine null executes nothing: --mode=I creates only",
    )


def test_names_of_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named("cpu") == named("cpu:0") == Engine("cpu")
    assert named("far:1") == Engine("far", 1)
    with pytest.raises(
        InvalidArguments, match=r"--engine = 'gpu': none of .*GPUs; there are cpu:0"
    ):
        named("gpu")
    with pytest.raises(InvalidArguments, match=r"--engine = 'far:2': there are 2 engines"):
        named("far:2")
    for wrong in ("fear", "cpu:", "cpu:first", "", "far:+1"):
        with pytest.raises(InvalidArguments, match=r"--engine = .*expected"):
            named(wrong)
    gpu = replace(FAR.features, flags=FAR.features.flags | {"gpu"})
    monkeypatch.setattr(FarBackend, "features", lambda _: gpu)
    assert [named("gpu"), named("gpu:1")] == [Engine("far"), Engine("far", 1)]


def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert missing("cpu") == ""
    monkeypatch.setattr(sycl.Engine, "count", classmethod(lambda _: 0))
    monkeypatch.setattr(sycl.Engine, "missing", classmethod(lambda _: "pip install 'dnnl[sycl]'"))
    assert run(["--engine=sycl", "--softmax", "3x5", "4x5"]) == 1
    assert run(["--engine=gpu", "--softmax", "3x5", "4x5"]) == 1
    assert run(["--engine=sycl", "--mode=L", "--softmax", "3x5"]) == 0
    assert main(["run", "absent.onnx", "--engine", "sycl"]) == 2
    assert main(["explain", "--engine=sycl", "--softmax", "3x5"]) == 0
    said = capsys.readouterr()
    assert said.err.count("pip install 'dnnl[sycl]'") == 3
    assert "here        refused: --engine = 'sycl': there are 0 engines" in said.out
    assert "PASSED" not in said.out
    assert main(["info"]) == 0
    assert "none: pip install 'dnnl[sycl]'" in capsys.readouterr().out


def test_explained_on_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["explain", "--measure", "--engine=far", "--matmul", "20x30:30x40"]
    assert main(line) == 0
    text = capsys.readouterr().out
    assert "limit       not predicted" in text
    assert "measured    " in text
    assert "dnnl bench --engine=far --matmul 20x30:30x40" in text


def test_filled_with_the_bytes_of_the_cpu() -> None:
    """Encoded tensors too, whose buffers are each filled apart."""
    line = "--matmul --encoding=csr+0.5:: --dt=f32 20x30:30x40"
    for engine in ("cpu", "far"):
        found = results(f"--engine={engine} {line}")
        assert {result.state for result in found} == {State.PASSED}, [r.lines for r in found]
    memory = Memory(MemoryDesc((2, 3), "f32"), FAR)
    assert (np.frombuffer(memory.read(), np.uint8) == 0xCD).all()
