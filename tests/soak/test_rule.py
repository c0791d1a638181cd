"""The rule on lines that were made up: those that rise are found, those that do not are left."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.soak.rule import LEAST, judged, rise

Values = NDArray[np.float64]
TIMES = np.linspace(0, 600, 500)
ABSOLUTE, RELATIVE = 4.0, 0.02

FLAT: dict[str, Callable[[np.random.Generator], Values]] = {
    "constant": lambda _: np.full(TIMES.size, 300.0),
    "noise": lambda rng: rng.normal(300, 15, TIMES.size),
    "outliers": lambda rng: np.where(rng.random(TIMES.size) < 0.2, 900, 300) + 0.0,
    "filling caches": lambda rng: 300 - 150 * np.exp(-TIMES / 60) + rng.normal(0, 3, TIMES.size),
    "saw": lambda rng: 300 + (TIMES + 40 * rng.random()) % 40,
    "one step": lambda rng: 300 + 60 * (rng.uniform(310, 590) < TIMES) + rng.normal(0, 1, 500),
    "falling": lambda rng: 400 - TIMES / 10 + rng.normal(0, 3, TIMES.size),
    "little": lambda rng: 300 + TIMES / 100 + rng.normal(0, 3, TIMES.size),
}
RISING: dict[str, Callable[[np.random.Generator], Values]] = {
    "slope": lambda _: 300 + TIMES / 10,
    "noise": lambda rng: 300 + TIMES / 10 + rng.normal(0, 10, TIMES.size),
    "outliers": lambda rng: 300 + TIMES / 10 + np.where(rng.random(500) < 0.2, 600, 0),
    "saw": lambda rng: 300 + TIMES / 10 + (TIMES + 40 * rng.random()) % 40,
    "stairs": lambda rng: 300 + 5 * ((TIMES + 50 * rng.random()) // 50),
}
each_seed = pytest.mark.parametrize("seed", range(20))


@each_seed
@pytest.mark.parametrize("name", FLAT)
def test_what_does_not_rise_is_left(name: str, seed: int) -> None:
    values = FLAT[name](np.random.default_rng(seed))
    assert rise(list(TIMES), list(values), ABSOLUTE, RELATIVE) is None


@each_seed
@pytest.mark.parametrize("name", RISING)
def test_what_rises_is_found_with_its_slope(name: str, seed: int) -> None:
    values = RISING[name](np.random.default_rng(seed))
    assert rise(list(TIMES), list(values), ABSOLUTE, RELATIVE) == pytest.approx(360, rel=0.35)


def test_how_much_is_allowed() -> None:
    times, values = list(TIMES), list(300 + TIMES / 10)  # 20 between the outer thirds
    assert rise(times, values, 25.0, 0.0) is None
    assert rise(times, values, 15.0, 0.0) is not None
    assert rise(times, values, 0.0, 0.07) is None
    assert rise(times, values, 0.0, 0.04) is not None


@pytest.mark.parametrize("count", [0, 1, LEAST, 2 * LEAST - 2])
def test_nothing_is_said_of_few_samples(count: int) -> None:
    assert not judged(list(range(count)))
    assert rise(list(range(count)), list(range(count)), 0.0, 0.0) is None


def test_something_is_said_of_enough_samples() -> None:
    times = list(range(2 * LEAST))
    assert judged(times)
    assert rise(times, times, 0.0, 0.0) == pytest.approx(3600)
