"""Cases that leave sizes to executions, and what they are executed on."""

from __future__ import annotations

import pytest

from dnnl.language.errors import BadValue
from dnnl.primitives.desc import Desc
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.tools.bench.creation import create
from dnnl.tools.bench.drivers import description
from dnnl.tools.bench.execute import Executor
from dnnl.tools.bench.other_sizes import other_cases
from dnnl.tools.bench.result import State
from dnnl.types.arg import Arg
from dnnl.types.kinds import RUNTIME_DIM


def only(line: str) -> tuple[Case, type[Desc]]:
    (case,) = Interpreter().cases(line.split())
    kind = description(case.driver)
    assert kind is not None
    return case, kind


@pytest.mark.parametrize(
    ("line", "opened"),
    [
        ("--softmax --open=all 3x5", {Arg.SRC: "**"}),
        ("--softmax --open=1 3x5", {Arg.SRC: "*-"}),
        ("--softmax --open=none 3x5", {Arg.SRC: "--"}),
        ("--binary --open=all 3x5:1x5", {Arg.SRC: "**", Arg.SRC_1: "-*"}),
        (
            "--conv --open=batch+spatial ic3ih7oc5kh3ph1",
            {Arg.SRC: "*-**", Arg.WEIGHTS: "----", Arg.DST: "*-**"},
        ),
        (
            "--conv --dir=FWD_B --open=channels mb1ic3ih7oc5kh3",
            {Arg.SRC: "-*--", Arg.WEIGHTS: "**--", Arg.BIAS: "*", Arg.DST: "-*--"},
        ),
        ("--ip --open=spatial ic3ih4oc5", {Arg.SRC: "--**", Arg.WEIGHTS: "--**", Arg.DST: "--"}),
        ("--matmul --open=batch 3x5:5x7", {Arg.SRC: "*-", Arg.WEIGHTS: "--", Arg.DST: "*-"}),
    ],
)
def test_sizes_are_open_in_all_tensors(line: str, opened: dict[int, str]) -> None:
    case, kind = only(line)
    desc = create(case, kind).desc
    for argument, shape in opened.items():
        sizes = desc.desc_of(argument).dims
        assert "".join("*" if size == RUNTIME_DIM else "-" for size in sizes) == shape


@pytest.mark.parametrize(
    "line",
    [
        "--eltwise --open=all --sizes=10 3x5x7",
        "--concat --axis=1 --open=all --sizes=10 3x5x7:3x2x7",
        "--pool --dir=FWD_I --open=all --sizes=10 ic3ih9kh3sh2ph1",
        "--conv --dir=FWD_I --open=batch+spatial --sizes=10 g2ic4ih9oc6kh3sh2ph1",
    ],
)
def test_other_sizes_follow_the_rules(line: str) -> None:
    case, kind = only(line)
    others = [other for other, _ in other_cases(case, kind, create(case, kind))]
    texts = {other.problem.text for other in others}
    assert len(texts - {case.problem.text}) == len(others) == 9
    first = [other.shapes.dims[0] if "x" in text else other.sizes["mb"]
             for other, text in ((other, other.problem.text) for other in others)]  # fmt: skip
    assert {0, 1} <= set(first)
    assert all(other.repro.endswith(other.problem.text) for other in others)


@pytest.mark.parametrize(
    "line",
    [
        "--lrn --dir=FWD_I --open=batch --sizes=4 ic5ih4",
        "--reorder --open=all --sizes=4 --dtag=aBx8b 3x20x5",
        "--reorder --open=all --strides=40x8x1:1x4x20 4x5x6",
    ],
)
def test_they_pass(line: str) -> None:
    case, _ = only(line)
    assert Executor().run(case).state is State.PASSED


def test_a_failure_names_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    case, _ = only("--eltwise --open=all --sizes=4 3x5")
    check = Executor._check
    monkeypatch.setattr(
        Executor,
        "_check",
        lambda self, trial, stream: (
            check(self, trial, stream)
            if trial.case is case
            else check(self, trial, stream).__class__(State.FAILED, errors=1, lines=("wrong",))
        ),
    )
    result = Executor().run(case)
    assert result.state is State.FAILED
    assert result.lines == ("size 2 of 4, 0x5:", "wrong")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--softmax --open=rows 3x5", "expected a mask of dims, or none, batch"),
        ("--softmax --sizes=0 --open=all 3x5", "at least 1"),
    ],
)
def test_values_that_cannot_be_read(line: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        list(Interpreter().cases(line.split()))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--softmax --sizes=3 3x5", "only with --open are there other sizes"),
        ("--matmul --open=all --runtime_dims_masks=1:0 3x5:5x7", "one says it all"),
    ],
)
def test_options_that_do_not_agree(line: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        create(*only(line))
