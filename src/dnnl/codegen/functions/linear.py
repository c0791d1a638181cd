"""Linear maps with known coefficients, of vectors in registers.

Two neighbouring rows that differ only in signs share their products: the sum of one part of the
terms, plus and minus that of the others. Two such columns share their sum and their difference::

    | a b |  x    even = a x          | a  a |  x    a (x + y)
    | a-b |  y    odd  = b y          | b -b |  y    b (x - y)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Value, Values

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class _Map:
    """A map in three steps: sums and differences of the pairs of inputs that begin at each of
    ``before``, the products of ``matrix``, sums and differences of the pairs ``after``."""

    before: tuple[int, ...]
    matrix: Matrix
    after: tuple[int, ...]


def transform(e: Emitter, matrix: Matrix, values: Sequence[Value]) -> Values:
    """The results of ``matrix``, one for each row, of one vector for each column."""
    plan = _plan(matrix)
    inputs = _butterflies(e, list(values), plan.before)
    rows = [_combined(e, row, inputs) for row in plan.matrix]
    return tuple(_butterflies(e, rows, plan.after))


def transform_rows(
    e: Emitter, matrix: Matrix, columns: Iterable[Sequence[Value]]
) -> Iterator[Values]:
    """The rows of ``matrix`` X ``matrix``', from the columns of X."""
    done = [transform(e, matrix, column) for column in columns]
    for row in zip(*done, strict=True):
        yield transform(e, matrix, row)


@cache
def _plan(matrix: Matrix) -> _Map:
    after = tuple(_pairs(matrix))
    columns = _transposed(_halved(matrix, after))
    before = tuple(_pairs(columns))
    return _Map(before, _transposed(_halved(columns, before)), after)


def _pairs(rows: Matrix) -> Iterator[int]:
    """The first of each two neighbouring rows that differ in some signs, and in nothing else."""
    number = 0
    while number + 1 < len(rows):
        pair = list(zip(rows[number], rows[number + 1], strict=True))
        mirrored = all(abs(a) == abs(b) for a, b in pair)
        both = any(a == b != 0 for a, b in pair) and any(a == -b != 0 for a, b in pair)
        if mirrored and both:
            yield number
            number += 1
        number += 1


def _halved(rows: Matrix, pairs: Sequence[int]) -> Matrix:
    """The rows with half the sum and half the difference in the place of each pair."""
    found = list(rows)
    for number in pairs:
        both = list(zip(rows[number], rows[number + 1], strict=True))
        found[number] = tuple((a + b) / 2 for a, b in both)
        found[number + 1] = tuple((a - b) / 2 for a, b in both)
    return tuple(found)


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def _butterflies(e: Emitter, values: list[Value], pairs: Sequence[int]) -> list[Value]:
    for number in pairs:
        a, b = values[number : number + 2]
        values[number : number + 2] = e.b.fadd(a, b), e.b.fsub(a, b)
    return values


def _combined(e: Emitter, row: Sequence[Fraction], values: Sequence[Value]) -> Value:
    """The sum of the values, each multiplied by its coefficient; the terms without a product come
    first."""
    terms = [pair for pair in zip(row, values, strict=True) if pair[0]]
    terms.sort(key=lambda term: (abs(term[0]) != 1, term[0] < 0))
    total = None
    for factor, value in terms:
        if abs(factor) == 1 and total is not None:
            total = e.b.fadd(total, value) if factor == 1 else e.b.fsub(total, value)
        elif factor == 1:
            total = value
        else:
            scale = vector.splat_constant(value.type, float(factor))
            if total is None:
                total = e.b.fmul(value, scale)
            else:
                total = vector.multiply_add(e, value, scale, total)
    return vector.splat_constant(values[0].type, 0.0) if total is None else total
