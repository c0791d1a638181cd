"""Quotients by a number that stays the same: a product with its reciprocal, corrected.

A division of a vector takes as long as a dozen multiply-adds. The reciprocal of a loop invariant is
one itself; with r = 1 / d rounded, q = x * r is off by an ulp or two, x - q * d is exact in one
multiply-add, and q + (x - q * d) * r is the quotient: exactly wherever that is representable, so
that ties round as they do after a division. Divisors far from 1 are brought nearer by a power of
two, x with them, as their reciprocals would be infinite or lose digits.
"""

from __future__ import annotations

from dnnl.codegen import vector
from dnnl.codegen.builder import F32, I32, Emitter, Value

_FAR = 2.0**64
_MAGNITUDE = 0x7FFFFFFF


def divided(e: Emitter, value: Value, divisor: Value) -> Value:
    """value / divisor, for vectors of f32 of which the second is a loop invariant. Infinities, NaN
    and zeros as in a division, but for the sign of a zero."""
    if not e.isa.fma or e.isa.device is not None or value.type.element is not F32:
        return e.b.fdiv(value, divisor)
    factor = _nearer(e, divisor)
    value, divisor = e.b.fmul(value, factor), e.b.fmul(divisor, factor)
    inverse = e.b.fdiv(vector.splat_constant(value.type, 1.0), divisor)
    first = e.b.fmul(value, inverse)
    left = vector.multiply_add(e, e.b.fneg(first), divisor, value)
    exact = vector.multiply_add(e, left, inverse, first)
    # What is infinite leaves no number: its quotient is the first one.
    return e.b.select(e.b.fcmp_ordered("ord", exact, exact), exact, first)


def _nearer(e: Emitter, divisor: Value) -> Value:
    """A power of two that brings a divisor nearer to 1."""
    words = vector.vector_type(I32, divisor.type.count)
    bits = e.b.and_(e.b.bitcast(divisor, words), vector.splat_constant(words, _MAGNITUDE))
    size = e.b.bitcast(bits, divisor.type)

    def constant(number: float) -> Value:
        return vector.splat_constant(divisor.type, number)

    up = e.b.fcmp_ordered("<", size, constant(1 / _FAR))
    down = e.b.fcmp_ordered(">", size, constant(_FAR))
    near = e.b.select(down, constant(1 / _FAR), constant(1.0))
    return e.b.select(up, constant(_FAR), near)
