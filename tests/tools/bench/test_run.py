"""Cases that run: states, summaries, exit statuses, repro lines, performance lines, JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dnnl.primitives.binary import BinaryDesc
from dnnl.primitives.eltwise import EltwiseDesc
from dnnl.reference.arrays import Array
from dnnl.reference.rule import Rule, compare
from dnnl.tools.bench import bench
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.command import run
from dnnl.tools.bench.creation import create
from dnnl.tools.bench.execute import Executor
from dnnl.tools.bench.result import Result, State
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType


def results(line: str) -> list[Result]:
    executor = Executor()
    return [executor.run(case) for case in Interpreter().cases(line.split())]


def states(line: str) -> list[str]:
    return [result.state.name for result in results(line)]


RIGHT = [
    "--reorder --stag=abx,axb,aBx16b --dtag=abx,aBx8b,xba 2x17x3x4 5x20",
    "--reorder --attr-post-ops=sum:0.5 3x5",
    "--reorder --sdt=f32,f64 --ddt=f64 --attr-post-ops=,sum+prelu 1 3x77",  # 2^24 + 1
    "--reorder --ddt=e8m0 --dtag=aBx8b 2x2",
    "--softmax --ddt=f16 --alg=LOGSOFTMAX --attr-scales=dst:common:0.25+src:per_dim_01 2x2x2x2x2",
    "--lnorm --stat_tag=a,A4a 2x16 5x16 1x16",
    "--reorder --strides=40x8x1:1x4x20 4x5x6",
    "--softmax --alg=SOFTMAX,LOGSOFTMAX --axis=0,1 --inplace=true,false 16x16 3x19x5",
    "--softmax --attr-post-ops=add:f32:per_oc,linear:0.5:2 3x19",
    "--softmax --attr-dropout=0.5,0.75:843921:undef:5,0.25:7:aBx16b:8:false --stag=axb 3x19x5",
    "--eltwise --alg=square --attr-dropout=0.5:1:any:2 --attr-post-ops=,add:f32 --inplace=1 3x19",
    "--eltwise --alg=relu,tanh,gelu_erf,gelu_tanh,log,exp,logistic,mish,square,sqrt 3x77",
    "--eltwise --alpha=-2 --beta=3 --alg=clip,linear,hardswish --tag=axb --inplace=1 2x3x4",
    "--eltwise --attr-post-ops=mul:f32:per_oc+sum:0.5 --inplace=0,1 3x77",
    "--eltwise --alg=tanh,gelu_erf,exp,log --dt=f32,f16,bf16 --attr-post-ops=sum:0.5 3x77x5",
    "--binary --alg=ADD,MUL,MAX,MIN,DIV,SUB,GE,GT,LE,LT,EQ,NE 3x15x6:1x15x6 5x40:5x40",
    "--binary --attr-post-ops=sum:0.25+relu:-0.01+add:f32:per_tensor 32x17x2:32x17",
    "--binary --alg=ADD,SELECT --attr-post-ops=select:f32.per_oc+linear:2:1:-3 9x17x2:9x17",
    "--matmul --attr-post-ops=tanh:0:0:0.5+select:bf16.3.ba 20x30:30x17",
    "--eltwise --dir=BWD_D --alg=exp_dst,elu_dst --dt=f32,f64 --inplace=0,1 --alpha=2 3x77x5",
    "--concat --sdt=s8 --ddt=f32 --attr-scales=msrc1:common:2.5 --axis=1 3x7x5:3x4x5",
    "--sum --sdt=f32:f32:f32 --stag=abx,axb --scales=0.25:2:0.5 3x17x5",
    "--exact --sdt=u32 --ddt=u32 --alg=neg,not 17 --alg=sub 2x17:2x17",
    "--concat --ddt=s8,bf16 --dtag=aBx8b 2x15x2x2:2x2x2x2",
    "--concat --axis=0,1 --dtag=undef,axb 3x5x7:3x5x7",
    "--bnorm --dir=FWD_I --flags=G,GC,GCH,GR --tag=abx,axb,aBx16b --inplace=1,0 mb3ic19ih5",
    "--pool --dir=FWD_I --alg=max,avg_np,avg_p --tag=abx,axb ic17ih13kh3sh2ph1",
    "--conv --dir=FWD_B,FWD_I ic16ih7oc32kh3ph1 g4ic8ih9oc8kh3sh2ph1 ic3id4oc5kd2pd1",
    "--conv ic16iw14oc32kw3sw2pw0",
    "--pool --dir=FWD_I --alg=max,avg_p ic16ih14kh3sh2ph0",
    "--conv --attr-post-ops=sum+relu --stag=axb --dtag=axb ic16ih7oc32kh1",
    "--ip --dir=FWD_B mb3ic16ih3oc33",
    "--conv --dir=BWD_D,BWD_WB --dt=bf16:f32:bf16,f16 g4ic8ih9oc8kh3sh2ph1 ic3id4oc5kd2pd1",
    "--deconv --dir=BWD_D,BWD_WB --dt=f64,f8_e5m2 g4ic8ih9oc8kh3sh2ph1",
    "--ip --dir=BWD_D,BWD_WB --dt=f64,bf16:bf16:f32 --stag=aBx16b mb3ic20ih3oc33",
    "--matmul --bia-dt=f32 --stag=abx,axb --wtag=abx,axb 3x20x30:3x30x17 9x5:5x1",
    "--matmul --attr-post-ops=prelu:per_oc 20x30:30x17",
    "--matmul --grouped=0:4:8+0+16+8 --attr-post-ops=,mul:f32:3:grouped 32x64:4x64x24",
    "--matmul --dt=f32:f32:bf16 --attr-zero-points=dst:common:3 --attr-post-ops=,sum 9x30:30x17",
    "--conv --dt=u8:s8:f32 --attr-zero-points=src:common:31+dst:common:15 ic16ih7oc17kh3ph1",
    "--ip --dt=f32,s8:s8:f16 --attr-zero-points=dst:common:2 mb3ic16ih3oc33",
]


@pytest.mark.parametrize("line", RIGHT)
def test_right_results(line: str) -> None:
    found = results(line)
    assert {result.state for result in found} == {State.PASSED}, [r.lines for r in found]


@pytest.mark.parametrize(
    ("line", "expected", "reason"),
    [
        ("--softmax --inplace=1 --sdt=f32 --ddt=s8 2x3", State.SKIPPED, "Invalid case"),
        ("--softmax --inplace=1 --dtag=axb 2x3x4", State.SKIPPED, "Invalid case"),
        ("--binary --inplace=1 1x3:2x3", State.SKIPPED, "Invalid case"),
        ("--binary --inplace=1 --attr-post-ops=sum 2x3:2x3", State.SKIPPED, "Invalid case"),
        ("--eltwise --alg=clip --alpha=2 --beta=1 3", State.SKIPPED, "Invalid case"),
        ("--eltwise --alg=relu --dir=BWD_D --inplace=1 3", State.SKIPPED, "Invalid case"),
        ("--eltwise --alg=relu_dst --alpha=-1 3", State.SKIPPED, "Invalid case"),
        ("--reorder --attr-zero-points=src:common:1 3", State.SKIPPED, "Invalid case"),
        ("--pool --alg=avg_np --dir=FWD_I ic1ih3kh2ph2", State.SKIPPED, "Invalid case"),
        ("--matmul --runtime_dims_masks=1:0 2x3:3x4", State.SKIPPED, "Invalid case"),
        ("--reorder --cross-engine=cpu2gpu 3", State.SKIPPED, "Case not supported"),
        ("--softmax --impl=nothing 2x3", State.SKIPPED, "Skip-impl option hit"),
        ("--softmax --skip-impl=nest 2x3", State.SKIPPED, "Skip-impl option hit"),
        (
            "--softmax --sdt=s4 --ddt=s4 2x3",
            State.UNIMPLEMENTED,
            (
                "nest: unsupported data type: s4; "
                "it takes f16, bf16, f32, s32, s8, u8, f64, f8_e5m2 or f8_e4m3"
            ),
        ),
        (
            "--binary --attr-dropout=0.5:1:any 2x3:2x3",
            State.UNIMPLEMENTED,
            "nest: unsupported attribute: dropout",
        ),
        ("--zeropad 2", State.UNIMPLEMENTED, "no primitive for --zeropad"),
        ("--softmax --axis=5 2x3", State.INVALID_ARGUMENTS, ""),
        ("--softmax --stag=abc 2x3", State.INVALID_ARGUMENTS, ""),
        ("--reorder --attr-scales=src:per_oc 2x3", State.INVALID_ARGUMENTS, ""),
        ("--matmul --attr-scales=wei:per_dim_0 2x3:3x4", State.INVALID_ARGUMENTS, ""),
    ],
)
def test_other_states(line: str, expected: State, reason: str) -> None:
    (result,) = results(line)
    assert (result.state, result.reason) == (expected, reason), result.lines


@pytest.mark.parametrize(
    ("mode", "expected"), [("I", "INITIALIZED"), ("R", "EXECUTED"), ("S", "EXECUTED")]
)
def test_modes_that_compare_nothing(mode: str, expected: str) -> None:
    assert states(f"--mode={mode} --softmax --inplace=1 3x4") == [expected]


def test_two_executions_give_the_same_bits() -> None:
    assert states("--mode=B --softmax 3x40") == ["PASSED"]
    assert states("--mode=B --matmul --ctx-exe=2 30x40:40x50") == ["PASSED"]


def wrong(desc: object, values: dict[int, Array]) -> dict[int, Array]:
    values_wrong: Array = np.full(next(iter(values.values())).shape, 0.25)
    values_wrong.reshape(-1)[-1] = 7
    return {Arg.DST: values_wrong}


def test_a_failure_is_shown_and_its_repro_fails_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(EltwiseDesc.operation.reference, "compute", wrong)
    line = "--eltwise --alg=relu,square --tag=axb 2x3x4 5"
    assert run(line.split()) == 1
    out = capsys.readouterr().out
    assert "tests:4 passed:0 skipped:0 mistrusted:0 unimplemented:0 invalid_arguments:0 " in out
    assert re.search(r"\[   0\]\[DST\]\[0:0:0\] exp_f32: +0.25 exp: +0.25 got:", out)
    assert "= Failed cases summary (--summary=no-failures to disable) = 4 =" in out
    failed = re.findall(r"1:FAILED \(errors:(\d+) total:(\d+)\) \(\d+ ms\) __REPRO: (.*)", out)
    errors, total, repro = failed[0]
    assert (repro, total) == ("--eltwise --tag=axb --alg=square --alpha=0 --beta=0 2x3x4", "24")
    assert run(repro.split()) == 1
    again = capsys.readouterr().out
    assert f"0:FAILED (errors:{errors} total:{total})" in again


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("--softmax --sdt=s4 --ddt=s4 --stag=axb 2x3x4_nname", "UNIMPLEMENTED"),
        ("--softmax --axis=1,7 --attr-post-ops=add:f32:per_oc+sum:0.5 8x10", "INVALID_ARGUMENTS"),
    ],
)
def test_printed_repro_lines_can_be_pasted(line: str, state: str) -> None:
    def printed(arguments: str) -> list[str]:
        command = [sys.executable, "-m", "dnnl", "bench", *arguments.split()]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 1, done.stdout + done.stderr
        return re.findall(f"[0-9]+:{state} .*__REPRO: (.*)", done.stdout)

    first = printed(line)[0]
    assert printed(first)[0] == first


def test_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    for line, status in (
        ("--softmax 3x4", 0),
        ("--softmax --inplace=1 --ddt=s8 3x4", 0),
        ("--softmax --sdt=s4 3x4", 1),
        ("--softmax --axis=x 3x4", 1),
        ("--softmax --nothing=1 3x4", 2),
        ("--softmax --stag=zz 3x4", 2),
        ("--softmax", 1),
        ("", 1),
        ("--softmax 3x4 --eltwise 3x4", 2),
        ("--softmax --match=nothing 3x4", 0),
    ):
        assert run(line.split()) == status, line
    captured = capsys.readouterr()
    assert "dnnl bench: error: unknown option '--nothing=1'" in captured.err
    assert "tests:0 passed:0" in captured.out


def test_start_and_repeats() -> None:
    runner = CliRunner()
    line = "--start=2 --repeats-per-prb=2 --mode=I --softmax 3x4 5x6"
    out = runner.invoke(bench, line.split(), standalone_mode=False)
    assert out.return_value == 0
    assert "1:SKIPPED (Skip-start option hit)" in out.output
    assert "2:INITIALIZED" in out.output
    assert "tests:4 passed:2 skipped:2" in out.output


def test_performance_lines(capsys: pytest.CaptureFixture[str]) -> None:
    line = "--mode=P --fix-times-per-prb=3 --matmul --dt=f32 --inplace"
    assert run(line.split()) == 2
    line = "--mode=P --fix-times-per-prb=3 --matmul 20x30:30x40 2x2:2x2_nlast"
    assert run(line.split()) == 0
    template, header, first, second, *rest = capsys.readouterr().out.splitlines()
    assert template.startswith("Template entries: perf,%engine%,%impl%,%name%,%prb%,%Gops%,")
    names = "perf,engine,impl,name,prb,Gops,max_ctime,min_time,min_Gflops,avg_time,avg_Gflops"
    assert header == names
    fields = dict(zip(names.split(","), first.split(","), strict=True))
    assert fields["prb"] == "--mode=P --fix-times-per-prb=3 --matmul 20x30:30x40"
    assert float(fields["Gops"]) == pytest.approx(2 * 20 * 30 * 40 / 1e9)
    least = float(fields["min_time"])
    assert 0 < least <= float(fields["avg_time"])
    assert float(fields["min_Gflops"]) == pytest.approx(4.8e-5 / (least / 1e3), rel=1e-3)
    assert second.split(",")[3] == "last"
    assert any(re.fullmatch(r"total perf: min\(ms\):\S+ avg\(ms\):\S+", line) for line in rest)


def test_own_templates(capsys: pytest.CaptureFixture[str]) -> None:
    template = "%idx%,%driver%,%sdt%,%attr%,%desc%,%dir%,%Kibytes%,%obytes%,%Miobytes%"
    attributes = "--attr-post-ops=relu --attr-deterministic=true"
    line = f"--mode=P --fix-times-per-prb=1 --softmax --perf-template={template} {attributes}"
    assert run([*line.split(), "10x100_nx"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[2] == f"0,softmax,f32,{attributes},10x100,FWD_D,4,4000,0.008"
    assert run(["--softmax", "--perf-template=%nonsense%", "3"]) == 1


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    line = ["--json", str(path), "--softmax", "--sdt=f32,s4", "3x4"]
    out = CliRunner().invoke(bench, line, standalone_mode=False)
    assert out.return_value == 1
    data = json.loads(path.read_text())
    assert (data["tests"], data["passed"], data["unimplemented"]) == (2, 1, 1)
    assert data["cases"][0]["repro"] == "--softmax 3x4"
    assert data["cases"][1]["state"] == "UNIMPLEMENTED"
    assert "unsupported data type: s4" in data["cases"][1]["reason"]


@pytest.mark.parametrize("option", ["json", "report"])
def test_a_folder_is_no_file_for_results(option: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(bench, [f"--{option}={tmp_path}", "--softmax", "3x4"])
    assert "this is a folder" in done.output
    assert "PASSED" not in done.output


def judged(got: float, want: float, kind: str = "f32", **rule: float | Array) -> bool:
    verdict = compare(
        "DST",
        np.array([got]),
        np.array([want]),
        DataType[kind],
        DataType.f32,
        Rule(rule.pop("threshold", 0.0), **rule),  # type: ignore[arg-type]
    )
    return verdict.errors == 0


def test_what_is_accepted() -> None:
    assert judged(1.0, 1.0)
    assert not judged(1.001, 1.0)
    assert judged(1.001, 1.0, threshold=0.002)
    assert judged(1.001, 1.0, slack=0.002)
    assert judged(0.002, 0.001, threshold=0.002, size=np.array([0.5]))
    assert not judged(0.003, 0.001, threshold=0.002, size=np.array([0.5]))
    assert judged(1e-8, 0.0)
    assert not judged(1e-6, 0.0)
    assert judged(np.nan, np.nan, non_finite=True)
    assert not judged(np.nan, np.nan)
    assert judged(np.inf, np.inf, non_finite=True)
    assert not judged(-np.inf, np.inf, non_finite=True)
    assert judged(3.0, np.nan, "s8")
    assert judged(3.0, 2.5, "s8")
    assert judged(2.0, 2.5, "s8")
    assert not judged(3.0, 2.4, "s8")
    assert not judged(4.0, 2.5, "s8")
    assert judged(2147483647.0, 2.0**40, "s32")
    assert not judged(2147483520.0, 2.0**40, "s32")


def test_too_many_zeros_are_mistrusted() -> None:
    zeros, some = np.zeros(10), np.arange(10.0)
    for want, expected in ((zeros, True), (some, False), (zeros[:9], False)):
        verdict = compare("DST", want, want, DataType.f32, DataType.f32, Rule(0.0))
        assert (verdict.errors, verdict.mistrusted) == (0, expected)


def test_padding_must_be_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "--reorder --dtag=aBx16b 2x17x3x4"
    assert states(line) == ["PASSED"]
    # Without an execution the destination is still poison, its padding too.
    monkeypatch.setattr(
        "dnnl.primitives.primitive.Primitive.execute", lambda self, stream, args: None
    )
    (result,) = results(line)
    assert result.state is State.FAILED
    assert any("360 elements of the padding" in text for text in result.lines)


def test_the_factor_of_an_eltwise_post_op_is_a_post_op_behind_it() -> None:
    line = "--binary --attr-post-ops=relu:0.5:0:3+add:f32 2x3:2x3"
    (case,) = Interpreter().cases(line.split())
    post_ops = create(case, BinaryDesc).attr.post_ops
    assert str(post_ops) == "eltwise_relu:0.5+eltwise_linear:3+binary_add:f32:0:any"
