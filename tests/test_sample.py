"""Which cases the suite runs."""

from __future__ import annotations

import pytest

from tests.sample import sampled

pytest_plugins = ["pytester"]

CASES = """
import pytest

@pytest.mark.parametrize("kind", ["f32", "bf16", "u8", "s8", "f64"])
@pytest.mark.parametrize("sizes", [(1, 2), (3, 4), (5, 6), (7, 8)])
def test_products(kind, sizes):
    pass

@pytest.mark.parametrize("count", range(40))
def test_single(count):
    pass

@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("count", range(3))
def test_few(kind, count):
    pass

@pytest.mark.covers("kind")
@pytest.mark.parametrize(("kind", "line"), [(n % 3, n) for n in range(40)])
def test_lines(kind, line):
    pass

@pytest.mark.every
def test_all():
    pass
"""


@pytest.fixture
def selected(pytester: pytest.Pytester) -> dict[str, list[dict[str, object]]]:
    """The parameters of the cases that run, by the name of their test."""
    pytester.makeini("[pytest]\nmarkers =\n    every\n    covers")
    pytester.makepyfile(CASES)
    items, _ = pytester.inline_genitems()
    found: dict[str, list[dict[str, object]]] = {}
    for item in sampled(items)[0]:
        assert isinstance(item, pytest.Function)
        found.setdefault(item.originalname, []).append(
            dict(item.callspec.params) if hasattr(item, "callspec") else {}
        )
    return found


def test_each_value_occurs_in_a_fifth_of_many_cases(
    selected: dict[str, list[dict[str, object]]],
) -> None:
    own = selected["test_products"]
    assert 5 <= len(own) <= 7
    assert {case["kind"] for case in own} == {"f32", "bf16", "u8", "s8", "f64"}
    assert {case["sizes"] for case in own} == {(1, 2), (3, 4), (5, 6), (7, 8)}


def test_values_that_occur_once_stay(selected: dict[str, list[dict[str, object]]]) -> None:
    assert len(selected["test_single"]) == 40


def test_values_that_need_not_occur_go(selected: dict[str, list[dict[str, object]]]) -> None:
    own = selected["test_lines"]
    assert 8 <= len(own) <= 10
    assert {case["kind"] for case in own} == {0, 1, 2}


def test_a_few_cases_stay(selected: dict[str, list[dict[str, object]]]) -> None:
    assert len(selected["test_few"]) == 6


def test_what_is_marked_waits_for_every_case(selected: dict[str, list[dict[str, object]]]) -> None:
    assert "test_few" in selected
    assert "test_all" not in selected
