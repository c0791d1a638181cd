"""Reorder of anything into anything: cases drawn by hypothesis.

DNNL_TEST_EXAMPLES=50 runs 50 times as many, and others each time (--hypothesis-seed=N for the
same ones). Where a guard page ends the process, -s --hypothesis-verbosity=verbose shows at what.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
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

weights = st.just("s8")
FACTOR = int(os.environ.get("DNNL_TEST_EXAMPLES", "1"))


def examples(count: int) -> settings:
    """``count`` examples that every run has, or ``FACTOR`` times as many that are new each time."""
    return settings(
        max_examples=count * FACTOR,
        derandomize=FACTOR == 1,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=FACTOR != 1,
    )


@pytest.mark.parametrize("processor", ["", "cascadelake"], indirect=True)
@examples(150)
@given(case=bare())
def test_layouts(processor: str, case: Case) -> None:
    run(case)


@pytest.mark.parametrize("processor", ["", "cascadelake"], indirect=True)
@examples(150)
@given(case=bare(dst=any_type))
def test_types(processor: str, case: Case) -> None:
    run(case)


@examples(150)
@given(with_attributes())
def test_attributes(case: Case) -> None:
    run(case)


@examples(150)
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
