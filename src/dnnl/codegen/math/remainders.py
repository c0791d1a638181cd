"""Remainders of floats, exact: long division of the significands, bit by bit."""

from __future__ import annotations

import math

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I64, Emitter, Values, i64
from dnnl.codegen.ir.horizontal import reduce_lanes
from dnnl.codegen.math.arithmetic import absolute, constant, copy_sign


def remainder(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """What division towards zero leaves of f32 or f64: it has the sign of ``a``.

    NaN for an infinite ``a`` and a ``b`` of 0. The remainder of a prefix of the digits of ``a`` is
    doubled for each further digit, and for each step by which its exponent exceeds that of ``b``:
    as many iterations as the lane with the most of them takes.
    """
    width = vector.bits(a.type)
    digits, bias = (24, 127) if a.type.element == F32 else (53, 1023)
    whole = vector.vector_type(ir.IntType(width), a.type.count)

    def number(value: int) -> ir.Constant:
        return vector.splat_constant(whole, value)

    def parts(x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The significand, and its exponent where denormal numbers have the least one."""
        bits = e.b.bitcast(absolute(e, x), whole)
        field = e.b.lshr(bits, number(digits - 1))
        fraction = e.b.and_(bits, number(2 ** (digits - 1) - 1))
        normal = e.b.icmp_unsigned("!=", field, number(0))
        significand = e.b.or_(fraction, number(2 ** (digits - 1)))
        return (
            e.b.select(normal, significand, fraction),
            e.b.select(normal, field, number(1)),
        )

    def power(exponent: ir.Value) -> ir.Value:
        """2 to an exponent of a normal number."""
        biased = e.b.add(exponent, number(bias))
        return e.b.bitcast(e.b.shl(biased, number(digits - 1)), a.type)

    (dividend, high), (divisor, low) = parts(a), parts(b)
    distance = e.b.sub(high, low)
    finite = e.b.fcmp_ordered("<", absolute(e, a), constant(a, math.inf))
    divides = e.b.fcmp_ordered(">", absolute(e, b), constant(b, 0.0))
    valid = e.b.and_(finite, divides)
    smaller = e.b.icmp_signed("<", distance, number(0))
    count = e.b.add(distance, number(digits))
    count = e.b.select(e.b.and_(valid, e.b.not_(smaller)), count, number(0))

    def step(_: ir.Value, rest: ir.Value, digits_left: ir.Value, left: ir.Value) -> Values:
        digit = e.b.lshr(digits_left, number(digits - 1))
        longer = e.b.or_(e.b.shl(rest, number(1)), digit)
        fits = e.b.icmp_unsigned(">=", longer, divisor)
        longer = e.b.select(fits, e.b.sub(longer, divisor), longer)
        rest = e.b.select(e.b.icmp_signed(">", left, number(0)), longer, rest)
        following = e.b.and_(e.b.shl(digits_left, number(1)), number(2**digits - 1))
        return rest, following, e.b.sub(left, number(1))

    (most,) = reduce_lanes(e, (count,), _larger, scalar=True)
    trips = vector.lane(e, most, 0)
    trips = trips if width == I64.width else e.b.sext(trips, I64)
    carried = number(0), dividend, count
    rest, *_ = e.loop(i64(0), trips, step, carried, unroll=False)
    # In two steps, each by a normal number: the remainder may be denormal.
    exponent = e.b.sub(low, number(bias + digits - 1))
    half = e.b.ashr(exponent, number(1))
    found = e.b.fmul(e.b.sitofp(rest, a.type), power(half))
    found = copy_sign(e, e.b.fmul(found, power(e.b.sub(exponent, half))), a)
    return e.b.select(valid, e.b.select(smaller, a, found), constant(a, math.nan))


def modulo(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """What division towards minus infinity leaves: it has the sign of ``b``, if it is 0 as well."""
    left, zero = remainder(e, a, b), constant(a, 0.0)
    negative = e.b.fcmp_ordered("<", left, zero)
    wrong = e.b.xor(negative, e.b.fcmp_ordered("<", b, zero))
    moved = e.b.select(wrong, e.b.fadd(left, b), left)
    return e.b.select(e.b.fcmp_ordered("==", left, zero), copy_sign(e, zero, b), moved)


def _larger(e: Emitter, a: Values, b: Values) -> Values:
    return tuple(e.b.select(e.b.icmp_signed(">", x, y), x, y) for x, y in zip(a, b, strict=True))
