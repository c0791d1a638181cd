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
    if core is F32 and to_bytes.rounds(e.isa, lanes):
        if data_type.bits == _BYTE:
            return to_bytes.to_byte(e, value, signed=data_type.min < 0)
        if data_type is DataType.s32:
            return _to_s32(e, value)
    if core is F32 and data_type.bits <= _SHORT and e.isa.lanes > 1:
        # A sum has the integer in its last bits. Of scalars this is no gain, and NVIDIA's driver
        # 580 stores 255 for the last byte of a chosen float.
        held = _bounded(e, value, data_type)
        return e.b.trunc(rounded_bits(e, held), _like(value, element(data_type)))
    return _converted(e, value, round_to_even(e, _bounded(e, value, data_type)), data_type)


def towards_zero(e: Emitter, value: ir.Value, data_type: DataType) -> ir.Value:
    """What stands before the point, saturated. NaN becomes 0.

    LLVM's own conversion is one instruction, unless the target's overflows: then it is written lane
    by lane, which is faster for no more than two lanes.
    """
    overflows = to_bytes.rounds(e.isa, e.isa.lanes)
    if not overflows or e.isa.vector_bits <= 2 * data_type.bits:
        kind = _like(value, ir.IntType(data_type.bits))
        sign = "s" if data_type.min < 0 else "u"
        name = f"llvm.fpto{sign}i.sat.{vector.suffix(kind)}.{vector.suffix(value.type)}"
        return e.intrinsic(name, kind, [value])
    number = e.b.fcmp_ordered("ord", value, value)
    value = e.b.select(number, value, vector.splat_constant(value.type, 0.0))
    return _converted(e, value, _bounded(e, value, data_type), data_type)


def _spare(value: ir.Value, data_type: DataType) -> int:
    """How many digits the largest integer has that a float lacks."""
    return max(0, data_type.digits - _DIGITS[value.type.element])


def _bounded(e: Emitter, value: ir.Value, data_type: DataType) -> ir.Value:
    """The nearest float that is no larger or smaller than all integers."""
    spare = _spare(value, data_type)
    most = 2.0**data_type.digits - 2.0**spare if spare else float(data_type.max)
    held = vector.maximum(e, value, vector.splat_constant(value.type, float(data_type.min)))
    return vector.minimum(e, held, vector.splat_constant(value.type, most))


def _converted(e: Emitter, value: ir.Value, held: ir.Value, data_type: DataType) -> ir.Value:
    """``value`` as an integer, by way of the bounded float ``held``."""
    kind = _like(value, ir.IntType(max(I32.width, data_type.bits)))
    unsigned = data_type.bits >= I32.width and data_type.min == 0
    number = (e.b.fptoui if unsigned else e.b.fptosi)(held, kind)
    if _spare(value, data_type):
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
