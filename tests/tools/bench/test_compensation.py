"""``--oflag``: sums behind the destination of a reorder, in cases and in verbose lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dnnl import Arg, Memory, Primitive, Stream, config
from dnnl.language.errors import BadValue
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.command import run
from dnnl.tools.bench.execute import Executor
from dnnl.tools.bench.result import Result, State
from dnnl.tools.bench.verbose_line import case_tokens

WEIGHTS = "--reorder --ddt=s8 --dtag=OIhw4i16o4i --oflag=s8s8_comp:1+zp_comp:3 20x17x3x3"


def results(line: str) -> list[Result]:
    executor = Executor()
    return [executor.run(case) for case in Interpreter().cases(line.split())]


@pytest.mark.parametrize(
    "line",
    [
        "--reorder --sdt=f32,s8,bf16 --ddt=s8 --dtag=xba --oflag=zp_comp:1 2x16x3x4 1x17x5x3",
        "--reorder --ddt=s8 --oflag=s8s8_comp:3 --strides=:2x8x40x120 4x5x3x3",
        "--reorder --ddt=s8 --dtag=gOIhw4i16o4i --oflag=s8s8_comp:3+zp_comp:1 2x20x5x3x3",
        "--mode=B --reorder --ddt=s8 --dtag=aBx16b --oflag=s8s8_comp:2 --ctx-exe=2 9x17x3x4",
        "--reorder --ddt=s8 --oflag=s8s8_comp:1 --attr-post-ops=sum:0.5 --attr-scales=dst:1 17x5",
        "--reorder --ddt=s8 --oflag=s8s8_comp:1 --attr-zero-points=dst:per_dim_0 17x5",
    ],
)
def test_right_results(line: str) -> None:
    found = results(line)
    assert {result.state for result in found} == {State.PASSED}, [r.lines for r in found]


def test_modes_and_repro() -> None:
    for mode, state in (
        ("C", "PASSED"),
        ("R", "EXECUTED"),
        ("P", "EXECUTED"),
        ("I", "INITIALIZED"),
    ):
        (result,) = results(f"--mode={mode} --fix-times-per-prb=2 {WEIGHTS}")
        assert result.state.name == state
    (case,) = Interpreter().cases(WEIGHTS.split())
    assert "--dtag=OIhw4i16o4i --oflag=s8s8_comp:1+zp_comp:3 20x17x3x3" in case.repro


@pytest.mark.parametrize(
    ("line", "state", "reason"),
    [
        ("--ddt=u8 --oflag=zp_comp:1 3x4", State.SKIPPED, "Case not supported"),
        (
            "--ddt=s8 --oflag=zp_comp:1 --runtime-dim-mask=1 3x4",
            State.SKIPPED,
            "Case not supported",
        ),
        ("--ddt=s8 --oflag=zp_comp:4 3x4", State.INVALID_ARGUMENTS, ""),
        ("--ddt=s8 --oflag=s8s8_comp:0 3x4", State.INVALID_ARGUMENTS, ""),
    ],
)
def test_other_states(line: str, state: State, reason: str) -> None:
    (result,) = results(f"--reorder {line}")
    assert (result.state, result.reason) == (state, reason)


@pytest.mark.parametrize(
    ("at", "lines"),
    [
        (-1, ["[DST zero_points]: 1 elements of the padding are not zero"]),
        (32 * 32 * 9 + 4 * 19, ["[DST s8s8][19:0:0:0] exp_f32:"]),
        (0, ["[DST][0:0:0:0]", "[DST s8s8][0:0:0:0]", "[DST zero_points][0:0:0:0]"]),
    ],
)
def test_a_wrong_byte_is_found(at: int, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte of the weights, of a sum or of the padding behind the sums."""
    execute = Primitive.execute

    def spoiled(primitive: Primitive, stream: Stream, args: Mapping[Any, Memory]) -> None:
        execute(primitive, stream, args)
        args[Arg.DST].data[at] ^= 0x55

    monkeypatch.setattr(Primitive, "execute", spoiled)
    (result,) = results(WEIGHTS)
    assert (result.state, result.errors) == (State.FAILED, len(lines))
    for line in lines:
        assert any(line in shown for shown in result.lines), result.lines


def test_our_own_lines_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    with config.override("verbose", "profile_exec"):
        assert run(WEIGHTS.split()) == 0
    out = capsys.readouterr().out
    (line,) = [text for text in out.splitlines() if text.startswith("dnnl_verbose,v1,primitive")]
    assert "dst:s8:p:blocked:ABcd4b16a4b::f9:s8m1:zpm3" in line
    (case,) = Interpreter().cases(case_tokens(line))
    assert case["oflag"] == "s8s8_comp:1+zp_comp:3"


HEAD = "onednn_verbose,v1,primitive,exec,cpu"


def test_strides_come_back_too() -> None:
    line = f"{HEAD},reorder,jit:uni,undef,src:f32::blocked:ab::f0 dst:s8::blocked:ab:9x1:f8:zpm1"
    (case,) = Interpreter().cases(case_tokens(f"{line},,,3x4,0.1"))
    assert case.repro == (
        "--reorder --sdt=f32 --ddt=s8 --stag=ab --dtag=abx --strides=:9x1 --oflag=zp_comp:1 3x4"
    )


@pytest.mark.parametrize(
    ("src", "dst", "message"),
    [
        ("f32::blocked:ab::f0", "s8::blocked:ab::f3:s8m1:sa0.5", "adjusted scale"),
        ("s8::blocked:ab::f1:s8m1", "f32::blocked:ab::f0", "from weights with compensation"),
    ],
)
def test_lines_that_no_case_can_follow(src: str, dst: str, message: str) -> None:
    line = f"{HEAD},reorder,jit:uni,undef,src:{src} dst:{dst},,,3x4,0.1"
    with pytest.raises(BadValue, match=message):
        case_tokens(line)
