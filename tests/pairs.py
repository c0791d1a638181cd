"""Parameters of tests: not all combinations of values, but so many that any two values meet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import pytest
from allpairspy import AllPairs

_LONGEST = 30
Case = tuple[str, Sequence[Any], Iterable[Any]]
"""The text, the values and the marks of a row."""


def every_pair(*marks: pytest.MarkDecorator, **parameters: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize a test so that any two values of two of its parameters meet in some case; of
    many cases the suite runs a sample (`tests/sample.py`).

    What one of ``marks`` names, each a `pytest.mark.parametrize`, is one parameter. A parameter
    without values, such as instruction sets that this machine lacks, skips the test as there.
    """
    single = [pytest.mark.parametrize(name, own) for name, own in parameters.items()]
    given = [*marks, *single]
    every = [_cases(mark) for mark in given]
    rows = AllPairs([list(range(len(cases))) for cases in every]) if all(every) else ()
    met = [[cases[place] for cases, place in zip(every, row, strict=True)] for row in rows]
    params = [
        pytest.param(
            *(value for _, values, _ in cases for value in values),
            marks=[mark for _, _, own in cases for mark in own],
            id="-".join(text for text, _, _ in cases),
        )
        for cases in met
    ]
    return pytest.mark.parametrize([name for mark in given for name in _names(mark)], params)


def _names(mark: pytest.MarkDecorator) -> list[str]:
    names = mark.args[0]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def _cases(mark: pytest.MarkDecorator) -> list[Case]:
    """The rows of a mark."""
    names, ids = _names(mark), mark.kwargs.get("ids")
    alone = isinstance(mark.args[0], str) and len(names) == 1
    found: list[Case] = []
    for place, row in enumerate(mark.args[1]):
        if isinstance(row, type(pytest.param())):
            values, marks, text = row.values, row.marks, str(row.id or "")
        else:
            values, marks, text = (row,) if alone else row, (), ""
        if not text and ids is not None and not callable(ids):
            text = list(ids)[place]
        texts = map(ids, values) if callable(ids) else map(_text, names, values, repeat(place))
        found.append((text or "-".join(map(str, texts)), values, marks))
    return found


def _text(name: str, value: Any, place: int) -> str:
    """The value if it is short, and so the same in each process."""
    text = str(value)
    return text if len(text) <= _LONGEST else f"{name}{place}"
