"""The matrices of Winograd's minimal filtering, computed exactly from interpolation points.

F(m, r) computes m outputs of a correlation with r taps by n = m + r - 1 multiplications instead of
m * r::

    y = A' ((G g) * (B' d))        d: n inputs, g: r taps, y: m outputs, *: element by element

G evaluates the polynomial whose coefficients are the taps at n - 1 finite points and at infinity,
A is the same for m coefficients, and B interpolates (Cook and Toom). In two dimensions each matrix
is applied to columns and to rows.

Points come in pairs p and -p: their rows differ only in the signs of odd powers, which halves the
multiplications of a transform. Powers of small points are exact in binary, and points near 1 in
magnitude keep rounding errors small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod

Matrix = tuple[tuple[Fraction, ...], ...]

TAPS = 3
"""The taps of a kernel in each dimension."""

POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(5, 8), Fraction(-5, 8), Fraction(3, 2), Fraction(-3, 2)),
}
"""The finite interpolation points of F(m, 3) for each m."""


@dataclass(frozen=True)
class CookToom:
    """F(m, r): the transforms of inputs (B'), taps (G) and products (A')."""

    of_inputs: Matrix
    of_taps: Matrix
    of_products: Matrix

    @property
    def from_taps(self) -> Matrix:
        """The least-squares inverse of the transform of taps: exact for what is the transform of
        some taps."""
        gram = _times(_transposed(self.of_taps), self.of_taps)
        return _times(_inverse(gram), _transposed(self.of_taps))


@cache
def cook_toom(outputs: int) -> CookToom:
    """F(``outputs``, 3)."""
    return of_points(outputs, TAPS, POINTS[outputs])


def of_points(outputs: int, taps: int, points: Sequence[Fraction]) -> CookToom:
    """F(``outputs``, ``taps``) with these finite points and infinity."""
    size = outputs + taps - 1
    if len(set(points)) != size - 1:
        raise ValueError(f"F({outputs}, {taps}) takes {size - 1} different points")
    others = [[q for q in points if q != p] for p in points]
    scaled = [
        (p, prod((p - q for q in rest), start=Fraction(1)))
        for p, rest in zip(points, others, strict=True)
    ]
    of_taps = [[p**k / scale for k in range(taps)] for p, scale in scaled]
    of_inputs = [[*_coefficients(rest), Fraction(0)] for rest in others]
    powers = [[p**k for k in range(outputs)] for p in points]
    return CookToom(
        _frozen([*of_inputs, _coefficients(points)]),
        _frozen([*of_taps, _last(taps)]),
        _transposed(_frozen([*powers, _last(outputs)])),
    )


def identity(size: int) -> Matrix:
    """The identity."""
    return _frozen([[Fraction(int(i == j)) for j in range(size)] for i in range(size)])


def composed(outer: Matrix, inner: Matrix) -> Matrix:
    """The map ``outer`` of the results of ``inner``."""
    return _times(outer, inner)


def _coefficients(roots: Sequence[Fraction]) -> list[Fraction]:
    """The polynomial with these roots, lowest power first."""
    found = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *found]
        pairs = zip(shifted, [*found, Fraction(0)], strict=True)
        found = [high - root * low for high, low in pairs]
    return found


def _last(size: int) -> list[Fraction]:
    """The value of a polynomial at infinity: its highest coefficient."""
    return [Fraction(int(k == size - 1)) for k in range(size)]


def _frozen(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(map(tuple, rows))


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def _times(a: Matrix, b: Matrix) -> Matrix:
    columns = _transposed(b)
    return _frozen([[_dot(row, column) for column in columns] for row in a])


def _dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    products = [x * y for x, y in zip(a, b, strict=True)]
    return sum(products, Fraction(0))


def _inverse(matrix: Matrix) -> Matrix:
    """By elimination; the leading minors of a Gram matrix are positive, so that no row is
    exchanged."""
    size = len(matrix)
    rows = [[*row, *unit] for row, unit in zip(matrix, identity(size), strict=True)]
    for i in range(size):
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(size):
            if j != i:
                factor = rows[j][i]
                rows[j] = [
                    own - factor * other for own, other in zip(rows[j], rows[i], strict=True)
                ]
    return _frozen([row[size:] for row in rows])
