"""The matrices of minimal filtering compute correlations exactly, in rational numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dnnl.types.cook_toom import POINTS, TAPS, Matrix, composed, cook_toom, identity, of_points


def points(*given: float) -> tuple[Fraction, ...]:
    return tuple(map(Fraction, given))


SIZES = [
    (2, 3, points(0, 1, -1)),
    (3, 3, points(0, 1, -1, 2)),
    (4, 3, points(0, 1, -1, 2, -2)),
    (4, 3, POINTS[4]),
    (6, 3, points(0, 1, -1, 2, -2, 0.5, -0.5)),
    (3, 5, points(0, 1, -1, 2, -2, 0.75)),
    (1, 4, points(0, 1, 7)),
]


def dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def applied(matrix: Matrix, values: list[Fraction]) -> list[Fraction]:
    return [dot([*row], values) for row in matrix]


@pytest.mark.parametrize(("outputs", "taps", "given"), SIZES)
def test_correlation(outputs: int, taps: int, given: tuple[Fraction, ...]) -> None:
    made = of_points(outputs, taps, given)
    for shift in range(3):
        size = range(outputs + taps - 1)
        inputs = [Fraction((7 * n + shift) % 11 - 5, 1 + n % 3) for n in size]
        weights = [Fraction((5 * n + shift) % 7 - 3, 1 + n % 2) for n in range(taps)]
        pairs = zip(applied(made.of_taps, weights), applied(made.of_inputs, inputs), strict=True)
        want = [dot(weights, inputs[n : n + taps]) for n in range(outputs)]
        assert applied(made.of_products, [a * b for a, b in pairs]) == want


@pytest.mark.parametrize("outputs", POINTS)
def test_taps_are_recovered(outputs: int) -> None:
    made = cook_toom(outputs)
    assert composed(made.from_taps, made.of_taps) == identity(TAPS)
    # Least squares: what is left over is orthogonal to every transform.
    onto = composed(made.of_taps, made.from_taps)
    assert onto == tuple(zip(*onto, strict=True))
    assert composed(onto, onto) == onto != identity(outputs + TAPS - 1)


@pytest.mark.parametrize("given", [points(0, 1), points(0, 1, 1), points(1, 1, 1, 1)])
def test_points_that_do_not_suffice(given: tuple[Fraction, ...]) -> None:
    with pytest.raises(ValueError, match=r"F\(2, 3\) takes 3 different points"):
        of_points(2, 3, given)
