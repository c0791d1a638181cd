"""Taking the exponent of f32 vectors out, and putting one in.

Some targets have an instruction for each; everywhere else the bits of the format do it.
"""

from __future__ import annotations

import math

from llvmlite import ir

from dnnl.codegen import vector
from dnnl.codegen.builder import I32, Emitter

_CURRENT_ROUNDING = 4
# Mantissas in [3/4, 3/2); NaN for negative values.
_MANTISSA_NEAR_ONE = 0b1011

_MANTISSA_BITS = 23
_BITS_OF_THREE_QUARTERS = 0x3F400000
_SMALLEST_NORMAL = 2.0**-126
_DENORMAL_SHIFT = 24


def is_native(e: Emitter, kind: ir.VectorType) -> bool:
    """Whether the target scales vectors of this type by powers of two in one instruction."""
    return e.isa.instruction("scale", "f32", kind.count) is not None


def scale(e: Emitter, value: ir.Value, exponent: ir.Value) -> ir.Value:
    """value * 2^exponent, rounded once; f32 both, and only where ``is_native``."""
    return _native(e, "scale", value, exponent)


def split(e: Emitter, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(m, k), f32 both, with x = m * 2^k and 3/4 <= m < 3/2.

    k is -inf for zero, inf for inf, and one of both is NaN for negative x and for NaN; the other
    one is then finite or NaN.
    """
    if is_native(e, x.type):
        mantissa = _native(e, "mantissa", x, ir.Constant(I32, _MANTISSA_NEAR_ONE))
        # The exponent belongs to mantissas in [1, 2); those below 1 were halved once more.
        exponent = e.b.fsub(_native(e, "exponent", x), _native(e, "exponent", mantissa))
        return mantissa, exponent
    return _split_bits(e, x)


def _split_bits(e: Emitter, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    b, integers = e.b, vector.vector_type(I32, x.type.count)

    def real(value: float) -> ir.Constant:
        return vector.splat_constant(x.type, value)

    denormal = b.fcmp_ordered("<", x, real(_SMALLEST_NORMAL))
    bits = b.bitcast(b.select(denormal, b.fmul(x, real(2.0**_DENORMAL_SHIFT)), x), integers)
    base = vector.splat_constant(integers, _BITS_OF_THREE_QUARTERS)
    width = vector.splat_constant(integers, _MANTISSA_BITS)
    power = b.ashr(b.sub(bits, base), width)
    mantissa = b.bitcast(b.sub(bits, b.shl(power, width)), x.type)
    shift = b.select(denormal, real(_DENORMAL_SHIFT), real(0.0))
    exponent = b.fsub(b.sitofp(power, x.type), shift)
    exponent = b.select(b.fcmp_ordered("<", x, real(math.inf)), exponent, x)
    zero = b.fcmp_ordered("==", x, real(0.0))
    odd = b.select(zero, real(-math.inf), real(math.nan))
    return mantissa, b.select(b.fcmp_ordered("<=", x, real(0.0)), odd, exponent)


def _native(e: Emitter, operation: str, x: ir.Value, *operands: ir.Value) -> ir.Value:
    """An instruction on all lanes: with what masked-off lanes hold, and a mask that has them all.
    Those of whole registers are told how to round."""
    lanes = x.type.count
    mask = ir.Constant(ir.IntType(max(lanes, 8)), -1)
    args = [x, *operands, ir.Constant(x.type, ir.Undefined), mask]
    if lanes == e.isa.lanes:
        args.append(ir.Constant(I32, _CURRENT_ROUNDING))
    name = e.isa.instruction(operation, "f32", lanes)
    assert name is not None, "only where it is native"
    return e.intrinsic(name, x.type, args)
