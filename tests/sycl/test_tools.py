"""The command line on a SYCL device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from dnnl import Arg, EltwiseDesc, Engine, Memory, MemoryDesc, Primitive, PrimitiveDesc, Stream
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.execute import Executor
from dnnl.tools.bench.result import Result, State
from dnnl.tools.cli import main
from tests.framework.models import make_model, node

ENGINES = [pytest.param(name, id=name) for name in ("sycl", "sycl:0")]


def results(line: str) -> list[Result]:
    executor = Executor()
    return [executor.run(case) for case in Interpreter().cases(line.split())]


@pytest.mark.parametrize(
    "line",
    [
        "--softmax --stag=abx,axb --attr-post-ops=add:f32:per_oc 3x19x5",
        "--conv --dt=f32,u8:s8:f32 ic16ih7oc32kh3ph1",
        "--matmul --bia-dt=f32 --attr-scales=wei:per_oc --dt=s8:s8:bf16 9x30:30x17",
        "--bnorm --dir=FWD_D,BWD_DW --flags=CH mb3ic19ih5",
        "--reorder --cross-engine=cpu2gpu,gpu2cpu --ddt=bf16 --dtag=aBx16b 2x17x3x4",
    ],
)
def test_cases_are_right(line: str) -> None:
    found = results(f"--engine=sycl {line}")
    assert {result.state for result in found} == {State.PASSED}, [r.lines for r in found]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_case_is_measured_by_the_device(engine: str) -> None:
    (result,) = results(f"--engine={engine} --mode=P --fix-times-per-prb=5 --softmax 300x1000")
    assert result.state is State.EXECUTED
    assert len(result.measured.runs) == 5
    assert 1e-3 < min(result.measured.runs) < 1e3


def test_events_know_what_the_device_took() -> None:
    engine, desc = Engine("sycl"), MemoryDesc((300, 1000), "f32")
    pd = PrimitiveDesc(EltwiseDesc.forward("forward_inference", "eltwise_tanh", desc, desc), engine)
    src = Memory.from_numpy(np.random.default_rng(1).standard_normal(desc.dims, "f4"), None, engine)
    args = {Arg.SRC: src, Arg.DST: Memory(desc, engine)}
    for in_order in (True, False):
        event = Primitive(pd).execute(Stream(engine, in_order=in_order, profiling=True), args)
        event.wait()
        assert event.seconds is not None
        assert 0 < event.seconds < 1
    event = Primitive(pd).execute(Stream(engine), args)
    event.wait()
    assert event.seconds is None


def test_what_the_device_lacks_is_not_implemented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dnnl.runtime.engines.sycl_devices.lacking", lambda *_: ["fp64"])
    (result,) = results("--engine=sycl --softmax 5x37")
    assert result.state is State.UNIMPLEMENTED
    assert result.reason.endswith(" has no fp64")


def test_a_model_is_run_and_compared(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        node("Conv", ["x", "w"], "a", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], "r"),
        node("GlobalAveragePool", ["r"], "y"),
    ]
    path, figures = tmp_path / "model.onnx", tmp_path / "run.json"
    weights = {"w": rng.standard_normal((8, 3, 3, 3))}
    onnx.save(make_model(nodes, {"x": [2, 3, 9, 9]}, ["y"], weights), path)
    arguments = ["run", str(path), "--engine", "sycl:0", "--repeat", "2", "--json", str(figures)]
    assert main([*arguments, "--compare", "onnxruntime"]) == 0
    report = json.loads(figures.read_text())
    assert report["engine"] == "sycl:0"
    assert report["comparison"]["equal"]
    assert all("spirv" in layer["implementation"] for layer in report["layers"])


def test_a_case_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["explain", "--measure", "--engine=sycl", "--matmul", "20x30:30x40"]
    assert main(line) == 0
    text = capsys.readouterr().out
    assert "spirv64" in text
    assert "measured    " in text
