"""Division by a loop-invariant number: multiply by its reciprocal and correct.

A 512-bit division takes as long as a dozen multiply-adds. With r = 1 / d rounded, q = x * r is off
by an ulp or two; x - q * d is exact in one multiply-add, and q + (x - q * d) * r is the quotient.
It is exact wherever the quotient is representable, so ties round as after a division.
"""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Emitter, Value
from dnnl.codegen.math.arithmetic import absolute

_FAR = 2.0**64
# Processors divide 256 bits at a time, in about the time of the correction.
_DIVIDER_BITS = 256


def inverts(e: Emitter, value: Value) -> bool:
    """Whether division by the reciprocal is faster for such vectors."""
    return e.isa.fma and e.isa.vector_bits > _DIVIDER_BITS and value.type.element is F32


@dataclass(frozen=True)
class Divisor:
    """A divisor in all lanes, scaled by ``factor`` to a magnitude near 1, and its ``inverse``."""

    factor: Value
    number: Value
    inverse: Value

    @staticmethod
    def of(e: Emitter, number: Value) -> Divisor:
        """The divisor of a vector with one f32 in all lanes. A power of two scales divisors far
        from 1, whose reciprocal would overflow or lose digits; dividends are scaled with it."""

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
        """value / divisor. Infinities, NaN and zeros as in a division, except for the sign of
        zeros."""
        value = e.b.fmul(value, self.factor)
        first = e.b.fmul(value, self.inverse)
        left = vector.multiply_add(e, e.b.fneg(first), self.number, value)
        exact = vector.multiply_add(e, left, self.inverse, first)
        # The correction of an infinite quotient is NaN: the uncorrected one is right.
        return e.b.select(e.b.fcmp_ordered("ord", exact, exact), exact, first)
