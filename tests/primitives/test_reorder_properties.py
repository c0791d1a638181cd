"""Reorder of anything into anything: cases drawn by hypothesis; `tests/properties.py` says how
many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.primitives.reorder_cases import (
    Case,
    any_type,
    at_run_time,
    bare,
    run,
    with_attributes,
    without_elements,
)
from tests.properties import examples

weights = st.just("s8")


@pytest.mark.parametrize("processor", ["", "cascadelake"], indirect=True)
@examples(75)
@given(case=bare())
def test_layouts(processor: str, case: Case) -> None:
    run(case)


@pytest.mark.parametrize("processor", ["", "cascadelake"], indirect=True)
@examples(75)
@given(case=bare(dst=any_type))
def test_types(processor: str, case: Case) -> None:
    run(case)


@examples(75)
@given(with_attributes())
def test_attributes(case: Case) -> None:
    run(case)


@examples(75)
@given(at_run_time())
def test_runtime_sizes(case: Case) -> None:
    run(case)


@examples(25)
@given(bare(src=any_type, dst=weights))
def test_sums_behind_weights(case: Case) -> None:
    run(case)


@examples(25)
@given(with_attributes(dst=weights))
def test_sums_and_attributes(case: Case) -> None:
    run(case)


@examples(20)
@given(without_elements)
def test_without_elements(case: Case) -> None:
    run(case)
