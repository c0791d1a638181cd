"""Split f32 and f64 vectors into mantissa and exponent, and scale f32 by powers of two.

Some targets have instructions for both; elsewhere bits are manipulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F64, I32, I64, Emitter

_CURRENT_ROUNDING = 4
# Mantissas in [3/4, 3/2); NaN for negative values.
_MANTISSA_NEAR_ONE = 0b1011


@dataclass(frozen=True)
class _Format:
    """The bit layout of a float type."""

    integer: ir.IntType
    mantissa_bits: int
    three_quarters: int
    smallest_normal: float
    denormal_shift: int


_FORMAT_F32 = _Format(I32, 23, 0x3F400000, 2.0**-126, 24)
_FORMAT_F64 = _Format(I64, 52, 0x3FE8000000000000, 2.0**-1022, 54)


def is_native(e: Emitter, kind: ir.VectorType) -> bool:
    """Whether scaling by a power of two is one instruction for this type."""
    native = e.isa.instruction("scale", "f32", kind.count) is not None
    return native and kind.element is not F64


def scale(e: Emitter, value: ir.Value, exponent: ir.Value) -> ir.Value:
    """value * 2^exponent, rounded once. Both are f32. Only where `is_native`."""
    return _native(e, "scale", value, exponent)


def split(e: Emitter, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(m, k) with x = m * 2^k and 3/4 <= m < 3/2, both of the type of x.

    k is -inf for zero and inf for inf. For negative x and NaN, m or k is NaN, and the other one is
    finite or NaN.
    """
    if is_native(e, x.type):
        mantissa = _native(e, "mantissa", x, ir.Constant(I32, _MANTISSA_NEAR_ONE))
        # The exponent instruction assumes mantissas in [1, 2); those below 1 were halved once more.
        exponent = e.b.fsub(_native(e, "exponent", x), _native(e, "exponent", mantissa))
        return mantissa, exponent
    return _split_bits(e, x)


def _split_bits(e: Emitter, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    form = _FORMAT_F64 if x.type.element is F64 else _FORMAT_F32
    b, integers = e.b, vector.vector_type(form.integer, x.type.count)

    def real(value: float) -> ir.Constant:
        return vector.splat_constant(x.type, value)

    denormal = b.fcmp_ordered("<", x, real(form.smallest_normal))
    bits = b.bitcast(b.select(denormal, b.fmul(x, real(2.0**form.denormal_shift)), x), integers)
    base = vector.splat_constant(integers, form.three_quarters)
    width = vector.splat_constant(integers, form.mantissa_bits)
    power = b.ashr(b.sub(bits, base), width)
    mantissa = b.bitcast(b.sub(bits, b.shl(power, width)), x.type)
    shift = b.select(denormal, real(form.denormal_shift), real(0.0))
    if form.integer is I64:  # few targets convert i64 vectors
        power = b.trunc(power, vector.vector_type(I32, x.type.count))
    exponent = b.fsub(b.sitofp(power, x.type), shift)
    exponent = b.select(b.fcmp_ordered("<", x, real(math.inf)), exponent, x)
    zero = b.fcmp_ordered("==", x, real(0.0))
    odd = b.select(zero, real(-math.inf), real(math.nan))
    return mantissa, b.select(b.fcmp_ordered("<=", x, real(0.0)), odd, exponent)


def _native(e: Emitter, operation: str, x: ir.Value, *operands: ir.Value) -> ir.Value:
    """Emit an instruction on all lanes: undefined pass-through, full mask. The form for whole
    registers takes a rounding mode."""
    lanes = x.type.count
    mask = ir.Constant(ir.IntType(max(lanes, 8)), -1)
    args = [x, *operands, ir.Constant(x.type, ir.Undefined), mask]
    if lanes == e.isa.lanes:
        args.append(ir.Constant(I32, _CURRENT_ROUNDING))
    name = e.isa.instruction(operation, "f32", lanes)
    assert name is not None, "only where it is native"
    return e.intrinsic(name, x.type, args)
