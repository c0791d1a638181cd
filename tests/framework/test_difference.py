"""The measure of difference."""

from __future__ import annotations

import numpy as np

from dnnl.tools.difference import FLOOR, TOLERANCE, compare


def test_equal_arrays() -> None:
    array = np.array([[1.0, -np.inf], [np.nan, 0.0]])
    found = compare("y", array, array)
    assert found.is_equal
    assert found.relative == 0.0


def test_worst_element_is_found() -> None:
    expected = np.array([[100.0, 10.0], [1.0, 50.0]])
    given = expected.copy()
    given[1, 0] += 0.01
    given[0, 0] += 0.02
    found = compare("y", given, expected)
    assert found.index == (1, 0)
    assert found.relative == np.float64(given[1, 0] - 1.0)
    assert found.exceeding == 1
    assert not found.is_equal
    assert "'y' at [1, 0]: 1.01 instead of 1" in str(found)


def test_small_elements_are_measured_at_the_floor() -> None:
    expected = np.array([1.0, 0.0])
    given = np.array([1.0, 0.5 * TOLERANCE * FLOOR])
    assert compare("y", given, expected).is_equal
    assert not compare("y", 3 * given - 2 * expected, expected).is_equal


def test_what_is_not_finite_must_be_equal() -> None:
    for given, expected in ((np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (1.0, -np.inf)):
        assert compare("y", np.array([given, 2.0]), np.array([expected, 2.0])).exceeding == 1


def test_shapes_must_agree() -> None:
    other = compare("y", np.ones(3), np.ones((3, 1)))
    assert not other.is_equal
    assert str(other) == "'y' has shape (3,) instead of (3, 1)"
    assert not compare("y", np.ones(3), np.ones(0)).is_equal
    assert compare("y", np.ones((0, 3)), np.ones((0, 3))).is_equal
