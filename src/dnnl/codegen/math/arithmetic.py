"""Arithmetic on vectors of f32 or f64, from which the elementary functions are built."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F64, I32, Emitter

ROUNDING_SHIFT = 1.5 * 2.0**23
"""Adding this constant to a small f32 rounds it to an integer, found in the lowest bits of the
sum."""


def constant(x: ir.Value, value: float) -> ir.Constant:
    """``value`` in every lane of a vector like ``x``."""
    return vector.splat_constant(x.type, value)


def at_least(e: Emitter, x: ir.Value, low: float) -> ir.Value:
    """max(x, low); NaN stays NaN."""
    return vector.maximum(e, constant(x, low), x)


def at_most(e: Emitter, x: ir.Value, high: float) -> ir.Value:
    """min(x, high); NaN stays NaN."""
    return vector.minimum(e, constant(x, high), x)


def clamp(e: Emitter, x: ir.Value, low: float, high: float) -> ir.Value:
    """x clamped to low ... high; NaN stays NaN."""
    return at_most(e, at_least(e, x, low), high)


def polynomial(e: Emitter, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """The sum of coefficients[i] * x^i."""
    *lower, highest = coefficients
    total: ir.Value = constant(x, highest)
    for coefficient in reversed(lower):
        total = vector.multiply_add(e, total, x, constant(x, coefficient))
    return total


def absolute(e: Emitter, x: ir.Value) -> ir.Value:
    """|x|."""
    return e.intrinsic(f"llvm.fabs.{vector.suffix(x.type)}", x.type, [x])


def copy_sign(e: Emitter, magnitude: ir.Value, sign: ir.Value) -> ir.Value:
    """|magnitude| with the sign of ``sign``."""
    kind = magnitude.type
    return e.intrinsic(f"llvm.copysign.{vector.suffix(kind)}", kind, [magnitude, sign])


def square_root(e: Emitter, x: ir.Value) -> ir.Value:
    """The square root, correctly rounded; -0 for -0."""
    return e.intrinsic(f"llvm.sqrt.{vector.suffix(x.type)}", x.type, [x])


def reciprocal(e: Emitter, x: ir.Value) -> ir.Value:
    """1 / x, correctly rounded."""
    return e.b.fdiv(constant(x, 1.0), x)


def reciprocal_root(e: Emitter, x: ir.Value) -> ir.Value:
    """1 / sqrt(x) of normal positive numbers, within 4 ulps. LLVM uses an estimate and a Newton
    step where the target has them: a third of the time of a root and a division."""
    return e.b.fdiv(constant(x, 1.0), square_root(e, x), flags=("arcp",))


def round_to_even(e: Emitter, x: ir.Value) -> ir.Value:
    """x rounded to the nearest integer, ties to even."""
    if e.isa.rounding:
        return e.intrinsic(f"llvm.roundeven.{vector.suffix(x.type)}", x.type, [x])
    # All floats from here on are integers, so adding this number rounds smaller ones.
    integers_from = constant(x, 2.0**52 if x.type.element is F64 else 2.0**23)
    size = absolute(e, x)
    rounded = e.b.fsub(e.b.fadd(size, integers_from), integers_from)
    fractional = e.b.fcmp_ordered("<", size, integers_from)
    return e.b.select(fractional, copy_sign(e, rounded, x), x)


def round_down(e: Emitter, x: ir.Value) -> ir.Value:
    """The largest integer not above x."""
    nearest = round_to_even(e, x)
    above = e.b.fcmp_ordered(">", nearest, x)
    lower = e.b.fsub(nearest, e.b.select(above, constant(x, 1.0), constant(x, 0.0)))
    return copy_sign(e, lower, x)


def rounded_bits(e: Emitter, x: ir.Value, slope: float = 1.0, start: float = 0.0) -> ir.Value:
    """An i32 whose lowest 22 bits are slope * x + start, rounded to nearest even. The result is at
    most 2^21, and ``slope`` a power of two."""
    base = constant(x, ROUNDING_SHIFT + start)
    shifted = (
        e.b.fadd(x, base) if slope == 1.0 else vector.multiply_add(e, x, constant(x, slope), base)
    )
    return e.b.bitcast(shifted, vector.vector_type(I32, x.type.count))
