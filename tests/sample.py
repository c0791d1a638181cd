"""The cases that the suite runs: a sample in which each value of each parameter occurs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from random import Random
from typing import Any

import pytest

_FEW = 6
"""Tests of so many cases run all of them."""


def sampled(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The cases that run and those that do not, which ``--every-case`` adds.

    Those are tests marked ``every``. Of a test that has many cases, four of five are left out,
    drawn by the name of the test, but for those that would be the last ones with some value of a
    parameter: of any, or of those that a mark ``covers`` names.
    """
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    deselected = {own for cases in tests.values() if len(cases) > _FEW for own in _spare(cases)}
    deselected |= {item for item in items if item.get_closest_marker("every") is not None}
    return [own for own in items if own not in deselected], list(deselected)


def _spare(cases: Sequence[pytest.Item]) -> Iterable[pytest.Item]:
    """The cases of one test that are left out."""
    left = Counter(value for own in cases for value in _values(own))
    drawn = Random(cases[0].nodeid).sample(cases, len(cases) * 4 // 5)
    for item in drawn:
        own = _values(item)
        if all(left[value] > 1 for value in own):
            left.subtract(own)
            yield item


def _values(item: Any) -> list[Hashable]:
    """The values of the parameters of a case that must occur, each with the parameter's name."""
    params, mark = item.callspec.params, item.get_closest_marker("covers")
    names = params if mark is None else mark.args
    return [(name, _key(params[name])) for name in names]


def _key(value: Any) -> Hashable:
    """The same for equal values of plain types, and for one object of others."""
    plain = isinstance(value, str | int | float | tuple | None)
    return repr(value) if plain else id(value)
