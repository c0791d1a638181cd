"""Round to odd, so that a second rounding to fewer digits gives the correctly rounded result.

If the truncated part is not zero, the last remaining bit is set. The result is then on the same
side of every tie of the second rounding as the number, provided that rounding drops at least two
digits::

    number     1.0110 1000 0001      to 4 digits: above the tie, up
    nearest    1.0110 1000           a tie, down: rounded twice
    to odd     1.0110 1001           above the tie, up
"""

from __future__ import annotations

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, F64, I32, I64, Emitter

_CUT = 53 - 13  # digits


def from_double(e: Emitter, value: ir.Value) -> ir.Value:
    """Round f64 to f32, to odd, for a final type with at most 11 digits and no smaller numbers than
    bf16. 13 digits remain, which f32 holds wherever the final type is not zero."""
    b = e.b
    bits = b.bitcast(value, vector.vector_type(I64, value.type.count))
    low = vector.splat_constant(bits.type, (1 << _CUT) - 1)
    # The sum carries into the last remaining bit unless all lower bits are zero.
    marked = b.or_(bits, b.add(b.and_(bits, low), low))
    cut = b.and_(marked, vector.splat_constant(bits.type, -1 << _CUT))
    return b.fptrunc(b.bitcast(cut, value.type), vector.vector_type(F32, value.type.count))


def from_integer(e: Emitter, value: ir.Value, *, signed: bool) -> ir.Value:
    """Round integers of 32 or 64 bits to f32, to odd."""
    if vector.bits(value.type) == I32.width:
        return _converted(e, _digits(e, value, 24, signed=signed), F32, signed=signed)
    return from_double(e, _converted(e, _digits(e, value, 53, signed=signed), F64, signed=signed))


def _digits(e: Emitter, value: ir.Value, digits: int, *, signed: bool) -> ir.Value:
    """Round an integer to ``digits`` significant bits, to odd; exact below 2^digits."""
    b, kind = e.b, value.type

    def put(number: int) -> ir.Constant:
        return vector.splat_constant(kind, number)

    last = 1 << (vector.bits(kind) - digits)
    mark = b.and_(b.add(b.and_(value, put(last - 1)), put(last - 1)), put(last))
    cut = b.or_(b.and_(value, put(-last)), mark)
    limit = 1 << digits
    place = b.add(value, put(limit)) if signed else value
    small = b.icmp_unsigned("<", place, put(2 * limit if signed else limit))
    return b.select(small, value, cut)


def _converted(e: Emitter, value: ir.Value, real: ir.Type, *, signed: bool) -> ir.Value:
    convert = e.b.sitofp if signed else e.b.uitofp
    return convert(value, vector.vector_type(real, value.type.count))
