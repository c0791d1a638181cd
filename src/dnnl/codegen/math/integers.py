"""Arithmetic on vectors of integers, which wraps.

``signed`` tells of each source whether it is. Where mathematics has no answer, one is chosen: a
quotient and a remainder by zero are 0, and so is what a shift by the width of the type or more
leaves (-1 for negative values that are shifted to the right).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, F64, Emitter, Values, i64

Signed = Sequence[bool]
Function = Callable[..., ir.Value]
"""``function(e, signed, *vectors)``."""


def _constant(value: ir.Value, number: int) -> ir.Constant:
    return vector.splat_constant(value.type, number)


def _is(e: Emitter, value: ir.Value, number: int) -> ir.Value:
    return e.b.icmp_unsigned("==", value, _constant(value, number))


def nonzero(e: Emitter, value: ir.Value) -> ir.Value:
    """The mask of the lanes that are not 0."""
    return e.b.icmp_unsigned("!=", value, _constant(value, 0))


def comparison(operator: str) -> Function:
    """The mask of the lanes where two integers compare so."""

    def compare(e: Emitter, signed: Signed, a: ir.Value, b: ir.Value) -> ir.Value:
        return (e.b.icmp_signed if signed[0] else e.b.icmp_unsigned)(operator, a, b)

    return compare


def extreme(operator: str) -> Function:
    """The first of two integers where they compare so, else the second."""
    compare = comparison(operator)
    return lambda e, signed, a, b: e.b.select(compare(e, signed, a, b), a, b)


def negative(e: Emitter, signed: Signed, a: ir.Value) -> ir.Value:
    """0 - a."""
    return e.b.sub(_constant(a, 0), a)


def absolute(e: Emitter, signed: Signed, a: ir.Value) -> ir.Value:
    """|a|, the least number for itself."""
    if not signed[0]:
        return a
    below = e.b.icmp_signed("<", a, _constant(a, 0))
    return e.b.select(below, negative(e, signed, a), a)


def sign(e: Emitter, signed: Signed, a: ir.Value) -> ir.Value:
    """-1, 0 or 1."""
    unit = e.b.zext(nonzero(e, a), a.type)
    if not signed[0]:
        return unit
    below = e.b.icmp_signed("<", a, _constant(a, 0))
    return e.b.select(below, _constant(a, -1), unit)


def _quotient(e: Emitter, signed: Signed, a: ir.Value, b: ir.Value) -> ir.Value:
    """a / b towards zero, where b is neither 0 nor -1.

    Processors have no division of integer vectors: a float with more digits than both sides have
    rounds to an integer only what is one.
    """
    width = vector.bits(a.type)
    if width == 64:
        return e.b.sdiv(a, b) if signed[0] else e.b.udiv(a, b)
    real = vector.vector_type(F32 if width <= 16 else F64, a.type.count)
    widen, narrow = (e.b.sitofp, e.b.fptosi) if signed[0] else (e.b.uitofp, e.b.fptoui)
    return narrow(e.b.fdiv(widen(a, real), widen(b, real)), a.type)


def quotient(e: Emitter, signed: Signed, a: ir.Value, b: ir.Value) -> ir.Value:
    """a / b towards zero. -1 is apart as the quotient of the least number would be too large."""
    none, minus = _is(e, b, 0), _is(e, b, -1)
    trap = e.b.or_(none, minus) if signed[0] else none
    found = _quotient(e, signed, a, e.b.select(trap, _constant(b, 1), b))
    if signed[0]:
        found = e.b.select(minus, negative(e, signed, a), found)
    return e.b.select(none, _constant(a, 0), found)


def remainder(e: Emitter, signed: Signed, a: ir.Value, b: ir.Value) -> ir.Value:
    """What division towards zero leaves: it has the sign of ``a``."""
    left = e.b.sub(a, e.b.mul(quotient(e, signed, a, b), b))
    return e.b.select(_is(e, b, 0), _constant(a, 0), left)


def modulo(e: Emitter, signed: Signed, a: ir.Value, b: ir.Value) -> ir.Value:
    """What division towards minus infinity leaves: it has the sign of ``b``."""
    left = remainder(e, signed, a, b)
    if not signed[0]:
        return left
    opposite = e.b.icmp_signed("<", e.b.xor(left, b), _constant(b, 0))
    wrong = e.b.and_(nonzero(e, left), opposite)
    return e.b.select(wrong, e.b.add(left, b), left)


def shifted(*, to_the_left: bool) -> Function:
    """A shift of the first source by the second."""

    def shift(e: Emitter, signed: Signed, a: ir.Value, count: ir.Value) -> ir.Value:
        width = vector.bits(a.type)
        far = e.b.icmp_unsigned(">=", count, _constant(count, width))  # negative counts as well
        most = e.b.select(far, _constant(count, width - 1), count)
        if signed[0] and not to_the_left:
            return e.b.ashr(a, most)
        move = e.b.shl if to_the_left else e.b.lshr
        return e.b.select(far, _constant(a, 0), move(a, most))

    return shift


def power(e: Emitter, signed: Signed, base: ir.Value, exponent: ir.Value) -> ir.Value:
    """base ** exponent, by squares. A negative exponent leaves 0 of all but 1 and -1, which differ
    by its lowest bit alone."""
    one = _constant(base, 1)
    lowest = e.b.and_(exponent, _constant(exponent, 1))
    below = e.b.icmp_signed("<", exponent, _constant(exponent, 0))

    def step(_: ir.Value, total: ir.Value, square: ir.Value, left: ir.Value) -> Values:
        odd = nonzero(e, e.b.and_(left, _constant(left, 1)))
        total = e.b.select(odd, e.b.mul(total, square), total)
        return total, e.b.mul(square, square), e.b.lshr(left, _constant(left, 1))

    carried = one, base, e.b.select(below, lowest, exponent) if signed[1] else exponent
    total, *_ = e.loop(i64(0), i64(vector.bits(exponent.type)), step, carried, unroll=False)
    if not signed[1]:
        return total
    unit = _is(e, base, 1)
    if signed[0]:
        unit = e.b.or_(unit, _is(e, base, -1))
    gone = e.b.and_(below, e.b.not_(unit))
    return e.b.select(gone, _constant(base, 0), total)
