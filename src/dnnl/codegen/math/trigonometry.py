"""Sine and cosine of f32 vectors over the whole range of f32.

The argument is reduced to x = rest + n * pi / 2 with minimal |rest|, in f64. NaN and infinities
give NaN. Errors are below 1.6 ulps everywhere.
"""

from __future__ import annotations

import math
from fractions import Fraction

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F64, I32, I64, Emitter, Values
from dnnl.codegen.math.arithmetic import (
    ROUNDING_SHIFT,
    absolute,
    constant,
    polynomial,
    round_to_even,
)

# sin r = r + r^3 p(r^2) and cos r = 1 + r^2 p(r^2): |r| <= 1.02 pi / 4, 2^-32.5.
_SIN = (-1.6666667e-01, 8.333378e-03, -1.9852062e-04, 2.8202396e-06)
_COS = (-0.5, 4.166664e-02, -1.388713e-03, 2.4412086e-05)
# pi / 2 in two parts. Up to _NEAR the product of n and the first is exact in f64.
_HALF_PI_HIGH = 1.57079632673412561417e00
_HALF_PI_LOW = 6.07710050650619224932e-11
_NEAR = 2.0**17
# The biased exponents of _NEAR and of the largest number.
_FIRST, _LAST = 144, 254
# 2 / pi, truncated after 2^-280.
_TWO_OVER_PI = Fraction(
    0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E, 2**280
)
# Numbers of this many bits have exact f64 products with the 24 bits of an f32.
_PIECE = 29


def _pieces(exponent: int) -> list[float]:
    """2^(exponent - 150) * 2 / pi modulo 4, as a sum of numbers of _PIECE bits."""
    rest = Fraction(2) ** (exponent - 150) * _TWO_OVER_PI % 4
    pieces = []
    for _ in range(3):
        last = math.frexp(float(rest))[1] - _PIECE
        piece = Fraction(2) ** last * (rest // Fraction(2) ** last)
        pieces.append(float(piece))
        rest -= piece
    return pieces


_TABLES = tuple(zip(*(_pieces(exponent) for exponent in range(_FIRST, _LAST + 1)), strict=True))


def sin(e: Emitter, x: ir.Value) -> ir.Value:
    """The sine of an angle in radians; 1.6 ulps; f32 only."""
    value, number = _wave(e, absolute(e, x), 0)
    sign = e.b.and_(e.b.bitcast(x, number.type), _whole(number, -(2**31)))
    return _negated(e, value, e.b.xor(sign, _half_turns(e, number)))


def cos(e: Emitter, x: ir.Value) -> ir.Value:
    """The cosine of an angle in radians; 1.6 ulps; f32 only."""
    value, number = _wave(e, absolute(e, x), 1)
    return _negated(e, value, _half_turns(e, number))


def _whole(like: ir.Value, value: int) -> ir.Constant:
    return vector.splat_constant(like.type, value)


def _half_turns(e: Emitter, number: ir.Value) -> ir.Value:
    """The sign bit of results in the second half turn: where bit 1 of the quadrant is set."""
    return e.b.shl(e.b.and_(number, _whole(number, 2)), _whole(number, 30))


def _negated(e: Emitter, value: ir.Value, sign: ir.Value) -> ir.Value:
    return e.b.bitcast(e.b.xor(e.b.bitcast(value, sign.type), sign), value.type)


def _wave(e: Emitter, size: ir.Value, quarters: int) -> tuple[ir.Value, ir.Value]:
    """The magnitude of sin(size + quarters * pi / 2), and the number of the quadrant."""
    large = e.b.fcmp_ordered(">", size, constant(size, _NEAR))
    near, count = _near(e, size)

    def far() -> Values:
        rest, number = _far(e, size)
        return e.b.select(large, rest, near), e.b.select(large, number, count)

    rest, number = e.branch(vector.any_lane(e, large), far, lambda: (near, count))
    if quarters:
        number = e.b.add(number, _whole(number, quarters))
    square = e.b.fmul(rest, rest)
    cube = e.b.fmul(rest, square)
    sine = vector.multiply_add(e, cube, polynomial(e, square, _SIN), rest)
    cosine = vector.multiply_add(e, square, polynomial(e, square, _COS), constant(size, 1.0))
    even = e.b.icmp_signed("==", e.b.and_(number, _whole(number, 1)), _whole(number, 0))
    return e.b.select(even, sine, cosine), number


def _near(e: Emitter, size: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The rest and the lowest bits of n for 0 <= size <= _NEAR."""
    wide = vector.vector_type(F64, size.type.count)
    shift = constant(size, ROUNDING_SHIFT)
    shifted = vector.multiply_add(e, size, constant(size, 2.0 / math.pi), shift)
    number, rest = e.b.fpext(e.b.fsub(shifted, shift), wide), e.b.fpext(size, wide)
    for part in (_HALF_PI_HIGH, _HALF_PI_LOW):
        rest = vector.multiply_add(e, number, constant(rest, -part), rest)
    bits = e.b.bitcast(shifted, vector.vector_type(I32, size.type.count))
    return e.b.fptrunc(rest, size.type), bits


def _far(e: Emitter, size: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The rest and the lowest bits of n for _NEAR <= size; NaN for infinity.

    Payne-Hanek reduction: only those bits of the product with 2 / pi are computed that are below
    whole turns. Tables hold them for each exponent.
    """
    lanes = size.type.count
    wide, places = vector.vector_type(F64, lanes), vector.vector_type(I64, lanes)
    bits = e.b.bitcast(size, vector.vector_type(I32, lanes))
    digits = e.b.or_(e.b.and_(bits, _whole(bits, 2**23 - 1)), _whole(bits, 2**23))
    index = e.b.sub(e.b.lshr(bits, _whole(bits, 23)), _whole(bits, _FIRST))
    index = e.b.select(
        e.b.icmp_unsigned("<=", index, _whole(bits, _LAST - _FIRST)), index, _whole(bits, 0)
    )
    mantissa = e.b.sitofp(digits, wide)
    first, second, third = (
        e.b.fmul(
            mantissa,
            vector.gather(e, e.module.table(F64, table), e.b.zext(index, places), wide),
        )
        for table in _TABLES
    )
    turns = round_to_even(e, first)
    rest = e.b.fadd(e.b.fsub(first, turns), second)
    more = round_to_even(e, rest)
    rest = e.b.fadd(e.b.fsub(rest, more), third)
    rest = e.b.fptrunc(e.b.fmul(rest, constant(rest, math.pi / 2.0)), size.type)
    number = e.b.fptosi(e.b.fadd(turns, more), bits.type)
    return e.b.fadd(rest, e.b.fsub(size, size)), number
