"""What instructions of AVX-512, VNNI and their kin compute, in generic code.

Numbers of bf16 are integers of 16 bits here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir

from dnnl.codegen.ir.builder import F32, F64, I1, I8, I16, I32, I64

Builder: TypeAlias = Any
Value: TypeAlias = ir.Value
Write = Callable[..., Value]

_MANTISSA_BITS = 52
_BIAS = 1023


def _vector(element: ir.Type, count: int) -> ir.VectorType:
    return ir.VectorType(element, count)


def _splat(kind: ir.VectorType, value: float) -> ir.Constant:
    return ir.Constant(kind, [value] * kind.count)


def _pick(b: Builder, value: Value, lanes: Sequence[int], other: Value | None = None) -> Value:
    """Lanes of a vector, or of two of them, of which the second one's are counted on."""
    second = ir.Constant(value.type, ir.Undefined) if other is None else other
    mask = ir.Constant(_vector(I32, len(lanes)), list(lanes))
    return b.shuffle_vector(value, second, mask)


def _call(b: Builder, name: str, kind: ir.Type, *args: Value) -> Value:
    module = b.module
    found = module.globals.get(name)
    if found is None:
        found = ir.Function(module, ir.FunctionType(kind, [arg.type for arg in args]), name)
    return b.call(found, args)


def _suffix(kind: ir.VectorType) -> str:
    return f"v{kind.count}{'f32' if kind.element == F32 else 'f64'}"


def _clamped(b: Builder, value: Value, low: int, high: int) -> Value:
    least, most = (_splat(value.type, bound) for bound in (low, high))
    value = b.select(b.icmp_signed("<", value, least), least, value)
    return b.select(b.icmp_signed(">", value, most), most, value)


def _sums(b: Builder, products: Value, group: int) -> Value:
    """The sum of each group of neighbours."""
    count = products.type.count
    parts = [_pick(b, products, range(first, count, group)) for first in range(group)]
    total = parts[0]
    for part in parts[1:]:
        total = b.add(total, part)
    return total


def _dot_of_bytes(b: Builder, total: Value, unsigned: Value, signed: Value) -> Value:
    count = 4 * total.type.count
    one, other = (b.bitcast(value, _vector(I8, count)) for value in (unsigned, signed))
    wide = _vector(I32, count)
    return b.add(total, _sums(b, b.mul(b.zext(one, wide), b.sext(other, wide)), 4))


def _pairs_of_bytes(b: Builder, unsigned: Value, signed: Value) -> Value:
    wide = _vector(I32, unsigned.type.count)
    products = b.mul(b.zext(unsigned, wide), b.sext(signed, wide))
    sums = _clamped(b, _sums(b, products, 2), -(2**15), 2**15 - 1)
    return b.trunc(sums, _vector(I16, sums.type.count))


def _dot_of_words(b: Builder, one: Value, other: Value) -> Value:
    wide = _vector(I32, one.type.count)
    return _sums(b, b.mul(b.sext(one, wide), b.sext(other, wide)), 2)


def _floats(b: Builder, bfloats: Value) -> Value:
    count = bfloats.type.count
    codes = b.zext(bfloats, _vector(I32, count))
    return b.bitcast(b.shl(codes, _splat(codes.type, 16)), _vector(F32, count))


def _dot_of_bfloats(b: Builder, total: Value, one: Value, other: Value) -> Value:
    first, second = _floats(b, one), _floats(b, other)
    for odd in (1, 0):
        lanes = range(odd, first.type.count, 2)
        factors = _pick(b, first, lanes), _pick(b, second, lanes)
        total = _call(b, f"llvm.fma.{_suffix(total.type)}", total.type, *factors, total)
    return total


def _doubles(b: Builder, value: Value) -> tuple[Value, Value]:
    """f32 as f64, in which none is denormal, and their bits."""
    wide = b.fpext(value, _vector(F64, value.type.count))
    return wide, b.bitcast(wide, _vector(I64, value.type.count))


def _scale(b: Builder, value: Value, by: Value, *_: Value) -> Value:
    (wide, bits), (exponent, _unused) = _doubles(b, value), _doubles(b, by)
    exponent = _call(b, f"llvm.floor.{_suffix(exponent.type)}", exponent.type, exponent)
    most = 1000.0
    for order, bound in ((">", most), ("<", -most)):
        limit = _splat(exponent.type, bound)
        exponent = b.select(b.fcmp_ordered(order, exponent, limit), limit, exponent)
    number = b.fcmp_ordered("ord", exponent, exponent)
    known = b.select(number, exponent, _splat(exponent.type, 0.0))
    power = b.add(b.fptosi(known, _vector(I64, value.type.count)), _splat(bits.type, _BIAS))
    factor = b.bitcast(b.shl(power, _splat(power.type, _MANTISSA_BITS)), wide.type)
    result = b.fmul(wide, b.select(number, factor, exponent))
    return b.fptrunc(result, value.type)


def _exponent_bits(b: Builder, bits: Value) -> Value:
    field = b.and_(b.lshr(bits, _splat(bits.type, _MANTISSA_BITS)), _splat(bits.type, 0x7FF))
    return b.sub(field, _splat(bits.type, _BIAS))


def _is(b: Builder, value: Value, what: float) -> Value:
    return b.fcmp_ordered("==", value, _splat(value.type, what))


def _mantissa(b: Builder, value: Value, *_: Value) -> Value:
    """In [3/4, 3/2), as all kernels ask for; NaN for negative values."""
    _, bits = _doubles(b, value)
    digits = b.and_(bits, _splat(bits.type, 2**_MANTISSA_BITS - 1))
    one = b.or_(digits, _splat(bits.type, _BIAS << _MANTISSA_BITS))
    found = b.bitcast(one, _vector(F64, value.type.count))
    large = b.fcmp_ordered(">=", found, _splat(found.type, 1.5))
    found = b.select(large, b.fmul(found, _splat(found.type, 0.5)), found)
    result = b.fptrunc(found, value.type)
    odd = b.or_(_is(b, value, 0.0), _is(b, value, float("inf")))
    result = b.select(odd, _splat(value.type, 1.0), result)
    nan = b.fcmp_unordered("<", value, _splat(value.type, 0.0))
    return b.select(nan, _splat(value.type, float("nan")), result)


def _exponent(b: Builder, value: Value, *_: Value) -> Value:
    _, bits = _doubles(b, value)
    result = b.sitofp(_exponent_bits(b, bits), value.type)
    infinite = b.or_(_is(b, value, float("inf")), _is(b, value, float("-inf")))
    result = b.select(infinite, _splat(value.type, float("inf")), result)
    result = b.select(_is(b, value, 0.0), _splat(value.type, float("-inf")), result)
    return b.select(b.fcmp_ordered("ord", value, value), result, value)


def _permute(b: Builder, *operands: Value) -> Value:
    """Elements of one register, or of two with the indices between them."""
    if len(operands) == 3:
        first, index, second = operands
        count = first.type.count
        table = _pick(b, first, range(2 * count), second)
    else:
        table, index = operands
    count = index.type.count
    result = ir.Constant(_vector(table.type.element, count), ir.Undefined)
    places = b.and_(index, _splat(index.type, table.type.count - 1))
    for lane in range(count):
        place = b.extract_element(places, ir.Constant(I32, lane))
        picked = b.extract_element(table, place)
        result = b.insert_element(result, picked, ir.Constant(I32, lane))
    return result


def _to_integers(b: Builder, value: Value, otherwise: Value, mask: Value, *_: Value) -> Value:
    kind = _vector(I32, value.type.count)
    whole = _call(b, f"llvm.roundeven.{_suffix(value.type)}", value.type, value)
    low, high = (_splat(value.type, bound) for bound in (-(2.0**31), 2.0**31))
    held = b.and_(b.fcmp_ordered(">=", whole, low), b.fcmp_ordered("<", whole, high))
    known = b.fptosi(b.select(held, whole, _splat(value.type, 0.0)), kind)
    result = b.select(held, known, _splat(kind, -(2**31)))
    return b.select(b.bitcast(mask, _vector(I1, kind.count)), result, otherwise)


def _packed(low: int, high: int) -> Write:
    """Two registers as one of elements of half the size, unit of 128 bits by unit."""

    def write(b: Builder, one: Value, other: Value) -> Value:
        kind, count = one.type.element, one.type.count
        unit = 128 // kind.width
        lanes = [
            side + lane
            for first in range(0, count, unit)
            for side in (0, count)
            for lane in range(first, first + unit)
        ]
        both = _clamped(b, _pick(b, one, lanes, other), low, high)
        return b.trunc(both, _vector(ir.IntType(kind.width // 2), 2 * count))

    return write


def _to_bfloats(b: Builder, *parts: Value) -> Value:
    """Of two registers the second one comes first."""
    codes = [_bfloat_codes(b, part) for part in reversed(parts)]
    return codes[0] if len(codes) == 1 else _pick(b, codes[0], range(32), codes[1])


def _bfloat_codes(b: Builder, value: Value) -> Value:
    kind = _vector(I32, value.type.count)

    def put(number: int) -> Value:
        return _splat(kind, number)

    bits = b.bitcast(value, kind)
    odd = b.and_(b.lshr(bits, put(16)), put(1))
    rounded = b.add(bits, b.add(odd, put(0x7FFF)))
    magnitude = b.and_(bits, put(0x7FFFFFFF))
    rounded = b.select(
        b.icmp_unsigned("<", magnitude, put(0x00800000)), b.and_(bits, put(-(2**31))), rounded
    )
    quiet = b.or_(bits, put(0x00400000))
    rounded = b.select(b.fcmp_unordered("uno", value, value), quiet, rounded)
    return b.trunc(b.lshr(rounded, put(16)), _vector(I16, kind.count))


def _classify(b: Builder, value: Value, _: Value) -> Value:
    """Whether values are denormal, as all kernels ask."""
    kind = _vector(I32, value.type.count)
    magnitude = b.and_(b.bitcast(value, kind), _splat(kind, 0x7FFFFFFF))
    small = b.icmp_unsigned("<", magnitude, _splat(kind, 0x00800000))
    return b.and_(small, b.icmp_unsigned("!=", magnitude, _splat(kind, 0)))


def _expand(b: Builder, values: Value, others: Value, mask: Value) -> Value:
    """The first values in the lanes of the mask, in order."""
    result, found = others, ir.Constant(I32, 0)
    for number in range(values.type.count):
        lane = ir.Constant(I32, number)
        there = b.extract_element(mask, lane)
        value = b.extract_element(values, found)
        kept = b.extract_element(others, lane)
        result = b.insert_element(result, b.select(there, value, kept), lane)
        following = b.add(found, b.zext(there, I32))
        found = b.and_(following, ir.Constant(I32, values.type.count - 1))
    return result


_MASKED = "avx512.mask."
BODIES: dict[str, Write] = {
    **{f"llvm.x86.avx512.vpdpbusd.{bits}": _dot_of_bytes for bits in (256, 512)},
    "llvm.x86.avx512bf16.dpbf16ps.512": _dot_of_bfloats,
    "llvm.x86.avx512.pmaddubs.w.512": _pairs_of_bytes,
    "llvm.x86.avx512.pmaddw.d.512": _dot_of_words,
    **{f"llvm.x86.{_MASKED}scalef.ps.{bits}": _scale for bits in (128, 256, 512)},
    **{f"llvm.x86.{_MASKED}getmant.ps.{bits}": _mantissa for bits in (128, 256, 512)},
    **{f"llvm.x86.{_MASKED}getexp.ps.{bits}": _exponent for bits in (128, 256, 512)},
    "llvm.x86.avx512.permvar.sf.512": _permute,
    "llvm.x86.avx512.permvar.hi.512": _permute,
    **{f"llvm.x86.avx512.vpermi2var.ps.{bits}": _permute for bits in (256, 512)},
    f"llvm.x86.{_MASKED}expand.v64i8": _expand,
    f"llvm.x86.{_MASKED}cvtps2dq.512": _to_integers,
    "llvm.x86.avx512.packssdw.512": _packed(-(2**15), 2**15 - 1),
    "llvm.x86.avx512.packsswb.512": _packed(-(2**7), 2**7 - 1),
    "llvm.x86.avx512.packuswb.512": _packed(0, 2**8 - 1),
    "llvm.x86.avx512bf16.cvtneps2bf16.512": _to_bfloats,
    "llvm.x86.avx512bf16.cvtne2ps2bf16.512": _to_bfloats,
    "llvm.x86.avx512.fpclass.ps.512": _classify,
}
"""What writes the body of each, by LLVM's name of it."""
