"""Taps: values, with weights that are never 0."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from dnnl import InvalidArguments, Taps


def matrix(taps: Taps, old: int) -> np.ndarray[Any, Any]:
    """The weight of each of ``old`` elements in each other: [old, elements]."""
    found = np.zeros((old, taps.elements))
    for place, weight in zip(taps.places, taps.weights, strict=True):
        np.add.at(found, (place, np.arange(taps.elements)), weight)
    return found


def test_the_same_sums_without_weights_of_zero() -> None:
    rng = np.random.default_rng(1)
    for taps, elements, old in ((1, 5, 3), (4, 9, 5), (7, 6, 4), (12, 1, 30)):
        places = rng.integers(0, old, (taps, elements))
        weights = rng.standard_normal((taps, elements)) * (rng.random((taps, elements)) < 0.6)
        weights[0] += 1 - weights.sum(0)
        want = np.zeros((old, elements))
        np.add.at(want, (places, np.arange(elements)), weights)
        made = Taps(places, weights)
        np.testing.assert_allclose(matrix(made, old), want, atol=1e-12)
        assert made.weights.all()
        assert made.count == max(1, np.count_nonzero(np.abs(want) > 1e-9, 0).max())
        assert made.beyond == made.places.max() + 1


def test_taps_are_values() -> None:
    first, same = (Taps([[0, 0, 1], [0, 1, 1]], [[a, 0.5, 1], [1 - a, 0.5, 0]]) for a in (1, 0.5))
    other = Taps([[0, 0, 1], [0, 1, 1]], [[1, 0.25, 1], [0, 0.75, 0]])
    assert first == same == pickle.loads(pickle.dumps(first))
    assert hash(first) == hash(same)
    assert repr(first) == repr(same)
    assert first != other
    assert repr(first) != repr(other)
    assert len(repr(Taps([range(10000)], np.ones((1, 10000))))) < 100
    with pytest.raises(ValueError, match="read-only"):
        first.weights[0] = 2


WRONG: dict[str, tuple[Any, Any, str]] = {
    "empty": ([[]], [[]], r"an array \[taps, elements\]"),
    "flat": ([0, 1], [1, 1], r"an array \[taps, elements\]"),
    "ragged": ([[0], [1, 2]], [[1]], r"an array \[taps, elements\]"),
    "floats": ([[0.5]], [[1]], "integers from 0"),
    "negative": ([[-1]], [[1]], "integers from 0"),
    "far": ([[2**31]], [[1]], "integers from 0"),
    "shape": ([[0, 1]], [[1]], r"the shape of places, \(1, 2\)"),
    "infinite": ([[0]], [[np.inf]], "finite numbers"),
    "words": ([[0]], [["1"]], "finite numbers"),
    "sum": ([[0], [1]], [[1], [1]], "must sum up to 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_mean_is_refused(name: str) -> None:
    places, weights, reason = WRONG[name]
    with pytest.raises(InvalidArguments, match=reason):
        Taps(places, weights)
