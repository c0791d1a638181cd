"""Parameters of tests: not all combinations of values, but so many that any two values meet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from allpairspy import AllPairs


def every_pair(**parameters: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrize a test so that any two values of two of its parameters meet in some case."""
    every = [list(values) for values in parameters.values()]
    rows = [
        tuple(values[at] for values, at in zip(every, row, strict=True))
        for row in AllPairs([list(range(len(values))) for values in every])
    ]
    return pytest.mark.parametrize(tuple(parameters), rows, ids=str)
