"""Conversion between the stored type of elements and the type of computation, the *core*.

A `Storage` row for each data type has the element's type in IR and the conversions to the core and
back. The core is f32 by default; f64 if an operand is f64; i32 for integer counts; i16 for the bits
of bf16, between bf16 and a narrower type; a `Number` between integers, and from integers to floats
that would be rounded twice through f32; or an integer as wide as the elements, for copies.

Elements of 4 bits are codes in the low half of an i8; ``nibbles`` packs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from llvmlite import ir

from dnnl.codegen.conversion import bfloat, round_to_odd, saturate, small_float, to_bytes
from dnnl.codegen.conversion.small_float import Format
from dnnl.codegen.ir import lookup, vector
from dnnl.codegen.ir.builder import F32, F64, I8, I16, I32, Emitter
from dnnl.codegen.isa import Isa
from dnnl.types.dtype import DataType

Conversion = Callable[[Emitter, ir.Value], ir.Value]

# The values of 4-bit codes.
_U4 = tuple(map(float, range(16)))
_S4 = (*_U4[:8], *(value - 16.0 for value in _U4[8:]))
_F4 = tuple(
    sign * size for sign in (1.0, -1.0) for size in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
)


@dataclass(frozen=True)
class Storage:
    """The stored form of a data type, and its conversions to the core and back."""

    element: ir.Type
    to_core: Conversion
    from_core: Conversion


def _same(_: Emitter, value: ir.Value) -> ir.Value:
    return value


def _like(value: ir.Value, element: ir.Type) -> ir.VectorType:
    return vector.vector_type(element, value.type.count)


def _to_float(e: Emitter, value: ir.Value, data_type: DataType, core: ir.Type = F32) -> ir.Value:
    if data_type is DataType.boolean:
        value = saturate.truth(e, value, _like(value, I32))
    signed = data_type.min < 0
    if value.type.element.width < I32.width:
        value = (e.b.sext if signed else e.b.zext)(value, _like(value, I32))
        signed = True
    return (e.b.sitofp if signed else e.b.uitofp)(value, _like(value, core))


def _from_s4(e: Emitter, code: ir.Value) -> ir.Value:
    four = vector.splat_constant(code.type, 4)
    return _to_float(e, e.b.ashr(e.b.shl(code, four), four), DataType.s4)


def _extended_s4(e: Emitter, code: ir.Value) -> ir.Value:
    """Sign-extend 4-bit codes whose high half is zero, to s8."""
    sign = vector.splat_constant(code.type, 8)
    return e.b.sub(e.b.xor(code, sign), sign)


def _integer(data_type: DataType, core: ir.Type = F32) -> Storage:
    return Storage(
        saturate.element(data_type),
        partial(_to_float, data_type=data_type, core=core),
        partial(saturate.from_float, data_type=data_type),
    )


def _coded(element: ir.Type, widen: Conversion, narrow: Conversion) -> Storage:
    """A float type whose code is an integer of type ``element``."""

    def to_core(e: Emitter, value: ir.Value) -> ir.Value:
        return widen(e, e.b.zext(value, _like(value, I32)))

    def from_core(e: Emitter, value: ir.Value) -> ir.Value:
        return e.b.trunc(narrow(e, value), _like(value, element))

    return Storage(element, to_core, from_core)


def _small(element: ir.Type, form: Format) -> Storage:
    return _coded(
        element, partial(small_float.widen, form=form), partial(small_float.narrow, form=form)
    )


def _f8(form: Format) -> Storage:
    row = _small(I8, form)

    def to_core(e: Emitter, value: ir.Value) -> ir.Value:
        return small_float.widen_by_f16(e, value, form) if e.isa.half else row.to_core(e, value)

    return replace(row, to_core=to_core)


def _of_table(table: Sequence[float], row: Storage) -> Storage:
    """The row of a 4-bit type whose values are in ``table``."""

    def to_core(e: Emitter, code: ir.Value) -> ir.Value:
        if not lookup.is_native(e, _like(code, F32)):
            return row.to_core(e, code)
        return lookup.pick(e, table, e.b.zext(code, _like(code, I32)), F32)

    return replace(row, to_core=to_core)


def unpack_elements(e: Emitter, packed: ir.Value, data_type: DataType, bit: int) -> ir.Value:
    """Convert the elements at ``bit`` of each packed 32-bit integer to f32."""
    kind, real = packed.type, _like(packed, F32)
    up, down = 32 - data_type.bits - bit, 32 - data_type.bits

    def shifted(shift: Callable[..., ir.Value], value: ir.Value, by: int) -> ir.Value:
        return shift(value, vector.splat_constant(kind, by)) if by else value

    if data_type in _TABLES and lookup.is_native(e, real):
        return lookup.pick(e, _TABLES[data_type], shifted(e.b.lshr, packed, bit), F32)
    if data_type in (DataType.u4, DataType.s4):
        return _of_mantissa(e, packed, data_type, bit)
    top = shifted(e.b.shl, packed, up)
    if data_type is DataType.s8:
        return e.b.sitofp(shifted(e.b.ashr, top, down), real)
    if data_type in (DataType.bf16, DataType.f32):
        upper = vector.splat_constant(kind, -1 << down)
        return e.b.bitcast(e.b.and_(packed, upper) if bit and not up else top, real)
    low = shifted(e.b.lshr, packed, bit)
    if data_type is DataType.f16:
        row = _IN_F32[data_type]
        return row.to_core(e, e.b.trunc(low, _like(packed, row.element)))
    return e.b.sitofp(e.b.and_(low, vector.splat_constant(kind, (1 << data_type.bits) - 1)), real)


def unpack_bf16(e: Emitter, packed: ir.Value, data_type: DataType, bit: int) -> ir.Value:
    """Convert the 4-bit elements at ``bit`` of each half of packed 32-bit integers to bf16,
    interleaved. Only where the target looks up i16 (`lookup.is_native`)."""
    codes = [bfloat.bits(value) for value in _TABLES[data_type]]
    moved = e.b.lshr(packed, vector.splat_constant(packed.type, bit)) if bit else packed
    halves = vector.vector_type(I16, 2 * packed.type.count)
    return lookup.pick(e, codes, e.b.bitcast(moved, halves), I16)


def _of_mantissa(e: Emitter, packed: ir.Value, data_type: DataType, bit: int) -> ir.Value:
    """`unpack_elements` of 4-bit integers. The bits are used in place as the last bits of an f32
    with a suitable exponent; a subtraction removes the offset. Few positions need a shift."""
    kind = packed.type
    if bit > _LAST_IN_MANTISSA:
        packed = e.b.lshr(packed, vector.splat_constant(kind, _MOVED))
        bit -= _MOVED
    unit = _MANTISSA - bit
    half = 8 if data_type is DataType.s4 else 0
    number = (_BIAS + unit) << _MANTISSA ^ half << bit
    found = e.b.and_(packed, vector.splat_constant(kind, 0xF << bit))
    placed = e.b.bitcast(e.b.xor(found, vector.splat_constant(kind, number)), _like(packed, F32))
    return e.b.fsub(placed, vector.splat_constant(placed.type, float((1 << unit) + half)))


_MANTISSA, _BIAS = 23, 127  # of f32
_LAST_IN_MANTISSA, _MOVED = (
    16,
    12,
)  # bits: the last position that is used in place, and the shift of those above
_TABLES = {DataType.u4: _U4, DataType.s4: _S4, DataType.f4_e2m1: _F4}
_F16 = _small(I16, small_float.F16)


def _from_f16(e: Emitter, value: ir.Value) -> ir.Value:
    if not e.isa.half:
        return _F16.to_core(e, value)
    return e.b.fpext(e.b.bitcast(value, _like(value, ir.HalfType())), _like(value, F32))


def _to_f16(e: Emitter, value: ir.Value) -> ir.Value:
    if not e.isa.half:
        return _F16.from_core(e, value)
    return e.b.bitcast(e.b.fptrunc(value, _like(value, ir.HalfType())), _like(value, I16))


_IN_F32 = {
    DataType.f32: Storage(F32, _same, _same),
    DataType.f16: Storage(I16, _from_f16, _to_f16),
    DataType.bf16: Storage(I16, bfloat.widen, bfloat.narrow),
    DataType.f64: Storage(
        F64,
        lambda e, value: e.b.fptrunc(value, _like(value, F32)),
        lambda e, value: e.b.fpext(value, _like(value, F64)),
    ),
    **{kind: _integer(kind) for kind in DataType if kind.is_integer},
    DataType.f8_e5m2: _f8(small_float.F8_E5M2),
    DataType.f8_e4m3: _f8(small_float.F8_E4M3),
    DataType.s4: _of_table(_S4, replace(_integer(DataType.s4), to_core=_from_s4)),
    DataType.f4_e2m1: _of_table(
        _F4, _coded(I8, partial(small_float.widen, form=small_float.F4_E2M1), small_float.narrow_f4)
    ),
    DataType.e8m0: _coded(I8, small_float.widen_e8m0, small_float.narrow_e8m0),
}


def _integer_in_i32(extend: Conversion) -> Storage:
    """An integer of at most 8 bits in i32; conversion back truncates."""
    return Storage(I8, extend, lambda e, value: e.b.trunc(value, _like(value, I8)))


_IN_I32 = {
    DataType.s8: _integer_in_i32(lambda e, value: e.b.sext(value, _like(value, I32))),
    DataType.u8: _integer_in_i32(lambda e, value: e.b.zext(value, _like(value, I32))),
    DataType.s4: _integer_in_i32(lambda e, code: e.b.sext(_extended_s4(e, code), _like(code, I32))),
    DataType.u4: _integer_in_i32(lambda e, code: e.b.zext(code, _like(code, I32))),
}


def _in_bf16(widen: Conversion, narrow: Conversion) -> Storage:
    """A type of at most 8 bits where the core is the code of a bf16."""

    def from_core(e: Emitter, code: ir.Value) -> ir.Value:
        return e.b.trunc(narrow(e, code), _like(code, I8))

    return Storage(I8, widen, from_core)


def _integer_in_bf16(data_type: DataType, extend: Conversion) -> Storage:
    def widen(e: Emitter, value: ir.Value) -> ir.Value:
        return bfloat.from_integer(e, extend(e, value))

    low, high = float(data_type.min), float(data_type.max)
    return _in_bf16(widen, partial(bfloat.to_integer, low=low, high=high))


def _float_in_bf16(form: Format) -> Storage:
    def widen(e: Emitter, value: ir.Value) -> ir.Value:
        return bfloat.from_float(e, _wide(e, value), form)

    return _in_bf16(widen, partial(bfloat.to_float, form=form))


def _of_bf16_table(table: Sequence[float], row: Storage) -> Storage:
    """The row of a 4-bit type whose values are in ``table``."""
    codes = [bfloat.bits(value) for value in table]

    def to_core(e: Emitter, code: ir.Value) -> ir.Value:
        if not lookup.is_native(e, _like(code, I16)):
            return row.to_core(e, code)
        return lookup.pick(e, codes, _wide(e, code), I16)

    return replace(row, to_core=to_core)


def _wide(e: Emitter, value: ir.Value) -> ir.Value:
    return e.b.zext(value, _like(value, I16))


def _signed(e: Emitter, value: ir.Value) -> ir.Value:
    return e.b.sext(value, _like(value, I16))


def _signed_s4(e: Emitter, code: ir.Value) -> ir.Value:
    return _signed(e, _extended_s4(e, code))


_IN_BF16 = {
    DataType.s8: _integer_in_bf16(DataType.s8, _signed),
    DataType.u8: _integer_in_bf16(DataType.u8, _wide),
    DataType.f8_e5m2: _float_in_bf16(small_float.F8_E5M2),
    DataType.f8_e4m3: _float_in_bf16(small_float.F8_E4M3),
    DataType.s4: _of_bf16_table(_S4, _integer_in_bf16(DataType.s4, _signed_s4)),
    DataType.u4: _of_bf16_table(_U4, _integer_in_bf16(DataType.u4, _wide)),
    DataType.f4_e2m1: _of_bf16_table(_F4, _float_in_bf16(small_float.F4_E2M1)),
}
_IN_F64 = {
    DataType.f64: Storage(F64, _same, _same),
    DataType.f32: Storage(
        F32,
        lambda e, value: e.b.fpext(value, _like(value, F64)),
        lambda e, value: e.b.fptrunc(value, _like(value, F32)),
    ),
    **{kind: _integer(kind, F64) for kind in DataType if kind.is_integer and kind.bits >= 8},
}


class Number(ir.IntType):  # type: ignore[misc]
    """The core of integers of type ``source``. They are rounded or saturated once, when they are
    stored."""

    source: DataType

    def __new__(cls, bits: int, source: DataType) -> Number:
        number: Number = object.__new__(cls)  # plain IntTypes are one shared object for each width
        number.width, number.source = bits, source
        return number


def _of_number(data_type: DataType, core: Number) -> Storage:
    """The row of a type where the core is a `Number`."""
    signed = core.source.min < 0

    def to_core(e: Emitter, value: ir.Value) -> ir.Value:
        kind = _like(value, core)
        if data_type is DataType.boolean:
            return saturate.truth(e, value, kind)
        if data_type is DataType.s4:
            value = _extended_s4(e, value)
        if vector.bits(value.type) == core.width:
            return value
        return (e.b.sext if data_type.min < 0 else e.b.zext)(value, kind)

    def from_core(e: Emitter, value: ir.Value) -> ir.Value:
        if data_type.is_integer:
            return saturate.from_integer(e, value, core.source, data_type)
        if data_type in (DataType.f32, DataType.f64):
            return _to_float(e, value, core.source, F64 if data_type is DataType.f64 else F32)
        return _IN_F32[data_type].from_core(e, round_to_odd.from_integer(e, value, signed=signed))

    kind = saturate.element(data_type) if data_type.is_integer else _IN_F32[data_type].element
    return Storage(kind, to_core, from_core)


def _through_f32(row: Storage) -> Storage:
    """The row, with f64 as core, of a float whose values f32 represents."""

    def to_core(e: Emitter, value: ir.Value) -> ir.Value:
        return e.b.fpext(row.to_core(e, value), _like(value, F64))

    def from_core(e: Emitter, value: ir.Value) -> ir.Value:
        return row.from_core(e, round_to_odd.from_double(e, value))

    return Storage(row.element, to_core, from_core)


_F32_DIGITS = 24
_F8 = frozenset({DataType.f8_e5m2, DataType.f8_e4m3})


def bare_core(src: DataType, dst: DataType) -> ir.Type:
    """The core of a conversion without arithmetic."""
    if src is dst and src is not DataType.f32:
        return ir.IntType(max(8, src.bits))
    if src.is_integer and (dst.is_integer or src.digits > _F32_DIGITS):
        return Number(max(8, src.bits, dst.bits if dst.is_integer else 0), src)
    if DataType.bf16 in (src, dst) and not _IN_BF16.keys().isdisjoint((src, dst)):
        return I16
    return F64 if src is DataType.f64 else F32


def conversion_group(isa: Isa, data_type: DataType, core: ir.Type = F32) -> int:
    """How many registers of ``core`` should be converted at once. Narrowing several at once makes
    stores wider. Rounding to 8-bit floats needs too many registers for two."""
    if data_type.bits >= vector.bits(core) or data_type in _F8 or isa.lanes == 1:
        return 1
    bytewise = data_type in (DataType.s8, DataType.u8) and core is F32
    group = to_bytes.GROUP if bytewise and to_bytes.rounds(isa, isa.lanes) else 2
    return min(group, isa.most_registers(isa.vector_bits // vector.bits(core)))


def storage(data_type: DataType, core: ir.Type = F32) -> Storage:
    """The row of a data type for a core."""
    if isinstance(core, Number):
        return _of_number(data_type, core)
    if isinstance(core, ir.IntType):
        wider = {16: _IN_BF16, 32: _IN_I32}.get(core.width, {})
        return wider.get(data_type) or Storage(ir.IntType(max(8, data_type.bits)), _same, _same)
    if core is F32:
        return _IN_F32[data_type]
    return _IN_F64.get(data_type) or _through_f32(_IN_F32[data_type])
