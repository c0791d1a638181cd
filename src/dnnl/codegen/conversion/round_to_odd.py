"""Numbers rounded to odd, so that a second rounding, to a type of fewer digits, is the only one.

What is cut off a number and is not zero sets the last bit that is left. The result is then never a
tie of the next rounding by accident, and lies on the same side of each tie as the number, if that
rounding leaves two digits fewer at least::

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
    """The f32 of an f64, for types of at most 11 digits and no smaller numbers than bf16: 13 digits
    are left, which f32 holds wherever it is not zero in all of these types."""
    b = e.b
    bits = b.bitcast(value, vector.vector_type(I64, value.type.count))
    low = vector.splat_constant(bits.type, (1 << _CUT) - 1)
    # The sum carries into the last bit that is left unless all below are zero.
    marked = b.or_(bits, b.add(b.and_(bits, low), low))
    cut = b.and_(marked, vector.splat_constant(bits.type, -1 << _CUT))
    return b.fptrunc(b.bitcast(cut, value.type), vector.vector_type(F32, value.type.count))


def from_integer(e: Emitter, value: ir.Value, *, signed: bool) -> ir.Value:
    """The f32 of an integer of 32 or 64 bits."""
    if vector.bits(value.type) == I32.width:
        return _converted(e, _digits(e, value, 24, signed=signed), F32, signed=signed)
    return from_double(e, _converted(e, _digits(e, value, 53, signed=signed), F64, signed=signed))


def _digits(e: Emitter, value: ir.Value, digits: int, *, signed: bool) -> ir.Value:
    """The integer with no more than so many digits; below 2^digits as it is."""
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
