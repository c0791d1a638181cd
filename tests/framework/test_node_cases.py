"""ONNX's node cases: none is wrong, and docs/operators.md says which are refused."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from dnnl.errors import Unimplemented
from tests.framework import operators_page
from tests.framework.node_cases import WRONG, Outcome, cases, outcome, reason_of
from tests.framework.operators_page import PAGE, page


@pytest.mark.filterwarnings("ignore")
def test_none_of_a_sample_is_wrong() -> None:
    every = [case for own in cases().values() for case in own]
    assert not [own for own in map(outcome, every[::3]) if own.state == WRONG]


@pytest.mark.every
@pytest.mark.filterwarnings("ignore")
def test_the_page_says_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Outcome] = []

    def noted(case: Any) -> Outcome:
        found.append(outcome(case))
        return found[-1]

    monkeypatch.setattr(operators_page, "outcome", noted)
    now = page()
    assert not [own for own in found if own.state == WRONG]
    assert len(found) == sum(map(len, cases().values()))
    text = PAGE.read_text(encoding="utf-8")
    if f"the package onnx {onnx.__version__} has" in text.replace("\n", " "):
        assert now == text, "python -m tests.framework.operators_page writes the page"


def test_reasons_name_neither_nodes_nor_numbers() -> None:
    reasons = ["nest: unsupported data type: f8_e4m3"]
    error = Unimplemented("node 'Cast_0' (Cast): nothing does exact 3x4", reasons)
    assert reason_of(error) == "nest: unsupported data type: f8_e4m3"
    error = Unimplemented("node 'a' (QuantizeLinear): block_size = 12: too large")
    assert reason_of(error) == "block_size = N: too large"
    unknown = ["operator Foo of 2 nodes, the first is node 'x'", "operator Bar of node 'y'"]
    error = Unimplemented("the model uses operators that this runner does not know", unknown)
    assert reason_of(error) == "not known: Bar, Foo"
