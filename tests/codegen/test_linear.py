"""Linear maps in registers: the steps that share products are the map."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dnnl.codegen.functions.linear import Matrix, _plan
from dnnl.types.cook_toom import POINTS, composed, cook_toom, identity

MAPS = {
    **{f"inputs{m}": cook_toom(m).of_inputs for m in POINTS},
    **{f"taps{m}": cook_toom(m).of_taps for m in POINTS},
    **{f"products{m}": cook_toom(m).of_products for m in POINTS},
    **{f"back{m}": cook_toom(m).from_taps for m in POINTS},
    "larger": composed(cook_toom(4).of_taps, cook_toom(2).from_taps),
    "rotated": composed(cook_toom(4).of_taps, cook_toom(2).from_taps[::-1]),
    "identity": identity(5),
    "zero": ((Fraction(0), Fraction(0)), (Fraction(0), Fraction(0))),
}


def butterflies(size: int, pairs: tuple[int, ...]) -> Matrix:
    rows = [list(row) for row in identity(size)]
    for first in pairs:
        a, b = rows[first], rows[first + 1]
        rows[first] = [x + y for x, y in zip(a, b, strict=True)]
        rows[first + 1] = [x - y for x, y in zip(a, b, strict=True)]
    return tuple(map(tuple, rows))


@pytest.mark.parametrize("name", MAPS)
def test_steps(name: str) -> None:
    matrix = MAPS[name]
    plan = _plan(matrix)
    before = butterflies(len(matrix[0]), plan.before)
    after = butterflies(len(matrix), plan.after)
    assert composed(after, composed(plan.matrix, before)) == matrix


@pytest.mark.parametrize(
    ("name", "alone", "shared"), [("inputs4", 16, 10), ("products4", 12, 6), ("taps4", 13, 7)]
)
def test_products_are_shared(name: str, alone: int, shared: int) -> None:
    def products(matrix: Matrix) -> int:
        return sum(abs(x) not in (0, 1) for row in matrix for x in row)

    assert (products(MAPS[name]), products(_plan(MAPS[name]).matrix)) == (alone, shared)
