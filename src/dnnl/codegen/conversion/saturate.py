"""Conversion to integers: rounded to nearest even, saturated exactly.

The largest 32- and 64-bit integers are not f32 values; they are selected where the value exceeds
the largest float below them. Booleans are bytes: 0 for zero, else 1.
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
    """The type of an integer element in registers; 4-bit codes use bytes."""
    return ir.IntType(max(_BYTE, data_type.bits))


def from_float(e: Emitter, value: ir.Value, data_type: DataType) -> ir.Value:
    """The nearest integer, saturated. NaN becomes the minimum, or 1 as a boolean."""
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
    """Saturate integers of type ``source``, held in an integer at least as wide as both types, to
    ``data_type``."""
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
    """0 or 1 from bytes, as integers of ``kind``."""
    return e.b.zext(e.b.icmp_unsigned("!=", value, _splat(value, 0)), kind)


def _cut(e: Emitter, value: ir.Value, data_type: DataType) -> ir.Value:
    kind = _like(value, element(data_type))
    return value if vector.bits(value.type) == kind.element.width else e.b.trunc(value, kind)


def _to_s32(e: Emitter, value: ir.Value) -> ir.Value:
    """Convert with the instruction that gives -2^31 on overflow, and correct positive overflow."""
    parts = vector.split(e, value, min(value.type.count, e.isa.lanes))
    number = vector.join(e, [to_bytes.nearest(e, part) for part in parts])
    beyond = e.b.fcmp_ordered(">=", value, vector.splat_constant(value.type, -float(_LEAST)))
    return e.b.xor(number, e.b.sext(beyond, number.type))


def _splat(value: ir.Value, number: float) -> ir.Constant:
    return vector.splat_constant(value.type, int(number))


def _like(value: ir.Value, kind: ir.Type) -> ir.Type:
    return vector.vector_type(kind, value.type.count)
