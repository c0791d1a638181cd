"""Normalizations and pooling as cases, and narrow products."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from bench import normalizations
from bench.contest import Contest
from bench.context import Context
from bench.narrow import KINDS
from bench.normalizations import FORWARD, GROUPS, UNIMPLEMENTED, Group
from bench.peers import Peers
from bench.report import Report
from dnnl import Engine, Unimplemented
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.creation import describe, skipped
from dnnl.tools.bench.drivers import description


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.driver)
def test_every_case_makes_sense_in_both_directions(group: Group) -> None:
    kind = description(group.cases(FORWARD)[0].driver)
    assert kind is not None
    lines = set()
    for direction, forward in ((FORWARD, True), (group.backward, False)):
        cases = group.cases(direction)
        for case in cases:
            assert skipped(case, kind.operation) is None
            assert describe(case, kind).propagation.is_forward == forward
        lines |= {case.line for case in cases}
        assert len(cases) >= 5
    assert len(lines) == len(group.cases(FORWARD)) + len(group.cases(group.backward))


def test_what_is_not_implemented_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def contest(context: Context, case: Case, *rest: Any) -> Contest:
        if "BWD" in case.line:
            raise Unimplemented("no way back")
        return Contest(context, case, *rest)

    group = Group("Softmax", "softmax", "BWD_D", ("3x5", "4x6"))
    monkeypatch.setattr(normalizations, "GROUPS", (group,))
    monkeypatch.setattr(normalizations, "Contest", contest)
    report = Report(Console(file=io.StringIO(), width=120))
    context = Context(Engine("cpu"), Peers({}, {}, {}), (1,), True)
    normalizations.run(context, report)
    forward, backward = report.tables
    assert all(isinstance(row["us"], float) for row in forward.rows)
    assert [row["impl"] for row in backward.rows] == [UNIMPLEMENTED] * 2
    assert backward.rows[0]["refusal"] == "no way back"
    assert backward.note.endswith("2 of 2 cases are not implemented.")
    assert [target.value for target in report.targets] == [None, None]


def test_narrow_products_have_names() -> None:
    assert [kind.name for kind in KINDS] == ["bf16", "u8 x s8"]
