"""The integer of a type that is nearest to a number, and what is right of an integer in a float.

Integers saturate exactly: the largest number of 32 or 64 bits is no f32, and is chosen where the
value is beyond the largest float below it. A float becomes the nearest integer, the even one of
two. Truth values are bytes of 0 and 1, 1 for whatever is not zero.
"""

from __future__ import annotations

from llvmlite import ir

from dnnl.codegen.conversion import to_bytes
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, F64, I8, I32, Emitter
from dnnl.codegen.math.arithmetic import round_to_even, rounded_bits
from dnnl.types.dtype import DataType

_LEAST = -(2**31)
_BYTE, _SHORT = 8, 16
_DIGITS = {F32: 24, F64: 53}


def element(data_type: DataType) -> ir.IntType:
    """What an element of an integer type is in registers; codes of 4 bits fill bytes."""
    return ir.IntType(max(_BYTE, data_type.bits))


def from_float(e: Emitter, value: ir.Value, data_type: DataType) -> ir.Value:
    """The nearest integer, saturated; the least one for NaN, as a truth value 1."""
    if data_type is DataType.boolean:
        zero = vector.splat_constant(value.type, 0.0)
        return e.b.zext(e.b.fcmp_unordered("!=", value, zero), _like(value, I8))
    lanes, core = value.type.count, value.type.element
    low, high = float(data_type.min), float(data_type.max)
    if core is F32 and to_bytes.rounds(e.isa, lanes):
        if data_type.bits == _BYTE:
            return to_bytes.to_byte(e, value, signed=low < 0)
        if data_type is DataType.s32:
            return _to_s32(e, value)
    spare = max(0, data_type.digits - _DIGITS[core])
    most = 2.0**data_type.digits - 2.0**spare if spare else high
    held = vector.maximum(e, value, vector.splat_constant(value.type, low))
    held = vector.minimum(e, held, vector.splat_constant(value.type, most))
    if core is F32 and data_type.bits <= _SHORT:
        return e.b.trunc(rounded_bits(e, held), _like(value, element(data_type)))
    kind = _like(value, ir.IntType(max(I32.width, data_type.bits)))
    unsigned = data_type.bits >= I32.width and data_type.min == 0
    convert = e.b.fptoui if unsigned else e.b.fptosi
    number = convert(round_to_even(e, held), kind)
    if spare:
        beyond = e.b.fcmp_ordered(
            ">=", value, vector.splat_constant(value.type, 2.0**data_type.digits)
        )
        number = e.b.select(beyond, _splat(number, data_type.max), number)
    return number if kind.element.width == data_type.bits else _cut(e, number, data_type)


def from_integer(e: Emitter, value: ir.Value, source: DataType, data_type: DataType) -> ir.Value:
    """The nearest integer of ``data_type``, for values of the integer type ``source`` that a wider
    integer, or one as wide as both types, may hold."""
    if data_type is DataType.boolean:
        return truth(e, value, _like(value, I8))
    compare = e.b.icmp_signed if source.min < 0 else e.b.icmp_unsigned
    if source.max > data_type.max:
        limit = _splat(value, data_type.max)
        value = e.b.select(compare("<", value, limit), value, limit)
    if source.min < data_type.min:
        limit = _splat(value, data_type.min)
        value = e.b.select(compare(">", value, limit), value, limit)
    return _cut(e, value, data_type)


def truth(e: Emitter, value: ir.Value, kind: ir.Type) -> ir.Value:
    """0 or 1 of bytes, in integers of ``kind``."""
    return e.b.zext(e.b.icmp_unsigned("!=", value, _splat(value, 0)), kind)


def _cut(e: Emitter, value: ir.Value, data_type: DataType) -> ir.Value:
    kind = _like(value, element(data_type))
    return value if vector.bits(value.type) == kind.element.width else e.b.trunc(value, kind)


def _to_s32(e: Emitter, value: ir.Value) -> ir.Value:
    """By an instruction that makes -2^31 of what s32 does not hold."""
    parts = vector.split(e, value, min(value.type.count, e.isa.lanes))
    number = vector.join(e, [to_bytes.nearest(e, part) for part in parts])
    beyond = e.b.fcmp_ordered(">=", value, vector.splat_constant(value.type, -float(_LEAST)))
    return e.b.xor(number, e.b.sext(beyond, number.type))


def _splat(value: ir.Value, number: float) -> ir.Constant:
    return vector.splat_constant(value.type, int(number))


def _like(value: ir.Value, kind: ir.Type) -> ir.Type:
    return vector.vector_type(kind, value.type.count)
