"""Quotients by a number that stays the same: a product with its reciprocal, corrected.

A division of 512 bits takes as long as a dozen multiply-adds. The reciprocal of what stays the same
for a whole kernel is one division; with r = 1 / d rounded, q = x * r is off by an ulp or two,
x - q * d is exact in one multiply-add, and q + (x - q * d) * r is the quotient: exactly wherever
that is representable, so that ties round as they do after a division.
"""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Emitter, Value
from dnnl.codegen.math.arithmetic import absolute

_FAR = 2.0**64
# Processors divide 256 bits at a time, in about the time that the correction takes.
_DIVIDER_BITS = 256


def inverts(e: Emitter, value: Value) -> bool:
    """Whether quotients of such vectors are better computed so."""
    return e.isa.fma and e.isa.vector_bits > _DIVIDER_BITS and value.type.element is F32


@dataclass(frozen=True)
class Divisor:
    """A number in all lanes, times the ``factor`` that brings it near to 1, and its ``inverse``."""

    factor: Value
    number: Value
    inverse: Value

    @staticmethod
    def of(e: Emitter, number: Value) -> Divisor:
        """What divides by a vector of one number of f32. Far from 1 its reciprocal would be
        infinite or lose digits: a power of two brings it nearer, and what is divided with it."""

        def constant(value: float) -> Value:
            return vector.splat_constant(number.type, value)

        size = absolute(e, number)
        up = e.b.fcmp_ordered("<", size, constant(1 / _FAR))
        down = e.b.fcmp_ordered(">", size, constant(_FAR))
        factor = e.b.select(down, constant(1 / _FAR), constant(1.0))
        factor = e.b.select(up, constant(_FAR), factor)
        number = e.b.fmul(number, factor)
        return Divisor(factor, number, e.b.fdiv(constant(1.0), number))

    def divide(self, e: Emitter, value: Value) -> Value:
        """value / the number. Infinities, NaN and zeros as in a division, but for the sign of a
        zero."""
        value = e.b.fmul(value, self.factor)
        first = e.b.fmul(value, self.inverse)
        left = vector.multiply_add(e, e.b.fneg(first), self.number, value)
        exact = vector.multiply_add(e, left, self.inverse, first)
        # What is infinite leaves no number: its quotient is the first one.
        return e.b.select(e.b.fcmp_ordered("ord", exact, exact), exact, first)
