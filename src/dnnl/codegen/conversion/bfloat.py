"""bf16: rounding f32 to it, and conversion between it and types of at most 8 bits.

A code is the bits of a bf16 in an i16. All functions take vectors. Conversions between bf16 and
narrower types work on i16 lanes, twice as many as f32 would have. Conversions to bf16 are exact.
"""

from __future__ import annotations

import struct
from functools import partial, reduce

from llvmlite import ir

from dnnl.codegen.conversion.small_float import Format, with_nan
from dnnl.codegen.ir import lookup, vector
from dnnl.codegen.ir.builder import BF16, F32, I1, I16, I32, Emitter, Values
from dnnl.codegen.math import f32

_MANTISSA = 7
_BIAS = 127
_SIGN = 0x8000
_MAGNITUDE = 0x7FFF
_INFINITY = 0x7F80
_QUIET = 0x40

_DENORMALS = 0x20
# The elements of a table of i16.
_TABLE = 32


def bits(value: float) -> int:
    """The code of a number that bf16 represents exactly."""
    (whole,) = struct.unpack("<I", struct.pack("<f", value))
    return int(whole) >> 16


def narrow(e: Emitter, value: ir.Value) -> ir.Value:
    """Round f32 to bf16, ties to even."""
    instruction = e.isa.instruction("narrow to bf16", "f32", value.type.count)
    if instruction is None:
        return _narrow_several(e, value)
    # The instruction flushes denormals to zero.
    parts = vector.split(e, value, e.isa.lanes)
    denormal = reduce(e.b.or_, [_is_denormal(e, part) for part in parts])

    def round_normal() -> Values:
        kind = vector.vector_type(BF16, value.type.count)
        rounded = e.intrinsic(instruction, kind, parts[::-1])
        return (e.b.bitcast(rounded, _like(value, I16)),)

    some = vector.any_lane(e, denormal)
    return e.branch(some, lambda: (_narrow_bits(e, value),), round_normal)[0]


def pairs(e: Emitter, even: ir.Value, odd: ir.Value) -> ir.Value:
    """Round two vectors of f32 to bf16 and interleave them. Denormals are flushed to zero, as the
    dot-product instructions do."""
    lanes = even.type.count
    name = e.isa.instruction("narrow to bf16", "f32", 2 * lanes)
    assert name is not None, "what multiplies pairs of bf16 makes them"
    codes = e.intrinsic(name, vector.vector_type(BF16, 2 * lanes), [odd, even])
    codes = e.b.bitcast(codes, vector.vector_type(I16, 2 * lanes))
    lanes_in_turn = [lane + side for lane in range(lanes) for side in (0, lanes)]
    return vector.shuffle(e, codes, codes, lanes_in_turn)


def widen(e: Emitter, code: ir.Value) -> ir.Value:
    """Convert codes to f32."""
    upper = e.b.shl(e.b.zext(code, _like(code, I32)), _put(_like(code, I32), 16))
    return e.b.bitcast(upper, _like(code, F32))


def from_integer(e: Emitter, value: ir.Value) -> ir.Value:
    """The code of an integer of at most 8 bits (i16)."""
    whole = e.b.bitcast(e.b.sitofp(value, _like(value, F32)), _like(value, I32))
    return e.b.trunc(e.b.lshr(whole, _put(whole.type, 16)), value.type)


def from_float(e: Emitter, code: ir.Value, form: Format) -> ir.Value:
    """Convert codes of the float type ``form`` (i16) to bf16."""
    if form.width == 7 and lookup.is_native(e, code.type):
        return _from_f8(e, code, form)
    b, put = e.b, partial(_put, code.type)
    magnitude = b.and_(code, put((1 << form.width) - 1))
    sign = b.shl(b.and_(code, put(1 << form.width)), put(15 - form.width))
    shifted = b.shl(magnitude, put(_MANTISSA - form.mantissa))
    value = b.add(shifted, put((_BIAS - form.bias) << _MANTISSA))
    # The highest set bit of a denormal becomes the hidden bit: one case for each position.
    for place in reversed(range(form.mantissa)):
        power = _BIAS + 1 - form.bias - form.mantissa + place
        up = b.shl(magnitude, put(_MANTISSA - place))
        denormal = b.add(up, put((power - 1) << _MANTISSA))
        small = b.icmp_signed("<", magnitude, put(2 << place))
        value = b.select(small, denormal, value)
    value = b.select(b.icmp_signed("==", magnitude, put(0)), put(0), value)
    if form.infinity is not None:
        odd = b.icmp_signed(">=", magnitude, put(form.infinity))
        value = b.select(odd, b.or_(shifted, put(_INFINITY)), value)
        nan = b.icmp_signed(">", magnitude, put(form.infinity))
        value = b.or_(value, b.select(nan, put(_QUIET), put(0)))
    value = with_nan(e, value, magnitude, form, _INFINITY | _QUIET)
    return b.or_(value, sign)


def _from_f8(e: Emitter, code: ir.Value, form: Format) -> ir.Value:
    """Convert codes of an 8-bit ``form`` (i16) to bf16. Codes that are not normal are looked up by
    their lowest bits."""
    b, put = e.b, partial(_put, code.type)
    first, end = 1 << form.mantissa, form.infinity or form.overflow
    places, base = _MANTISSA - form.mantissa, (_BIAS - form.bias) << _MANTISSA

    def special(lowest: int) -> int:
        """The bf16 of the denormal, infinity or NaN whose lowest bits are these."""
        if lowest < first:
            return bits(lowest * form.smallest)
        magnitude = (1 << form.width) - _TABLE + lowest
        quiet = 0 if magnitude == form.infinity else _QUIET
        return ((magnitude << places) + base) | _INFINITY | quiet

    magnitude = b.and_(code, put((1 << form.width) - 1))
    normal = b.add(b.shl(magnitude, put(places)), put(base))
    odd = b.icmp_unsigned(">=", b.sub(magnitude, put(first)), put(end - first))
    table = [special(lowest) for lowest in range(_TABLE)]
    value = b.select(odd, lookup.pick(e, table, code, I16), normal)
    return b.or_(value, b.and_(b.shl(code, put(8)), put(_SIGN)))


def to_integer(e: Emitter, code: ir.Value, low: float, high: float) -> ir.Value:
    """Round to an integer of at most 8 bits, in the low bits of an i16: ties to even, saturated,
    any value for NaN. ``low`` is not above zero."""
    # As signed integers, codes order like positive numbers; negative ones order in reverse.
    top = _put(code.type, bits(high))
    code = _combine(e, "smin", code, top)
    if low == 0:
        code = _combine(e, "smax", code, _put(code.type, 0))
    else:
        code = _combine(e, "umin", code, _put(code.type, bits(low)))
    if code.type.count < 4:  # too few lanes for two halves
        return e.b.trunc(f32.rounded_bits(e, widen(e, code)), code.type)
    even, odd = (f32.rounded_bits(e, half) for half in _halves(e, code))
    return _interleave_low(e, even, odd)


def to_float(e: Emitter, code: ir.Value, form: Format) -> ir.Value:
    """Round to the float type ``form`` of at most 8 bits, ties to even; the code is in the low bits
    of an i16.

    The code is first built in the highest bits, below the sign, with the fraction that is rounded
    off.
    """
    b, put = e.b, partial(_put, code.type)
    fraction = 15 - form.width
    up = fraction + form.mantissa - _MANTISSA
    first = _BIAS - form.bias + 1  # the exponent of the smallest normal number
    magnitude = b.and_(code, put(_MAGNITUDE))
    is_nan = b.icmp_unsigned(">", magnitude, put(_INFINITY))
    magnitude = _combine(e, "umin", magnitude, put(bits(_number(form.overflow, form))))
    digits = b.shl(magnitude, put(up))
    normal = b.sub(digits, put(((first - 1) << (_MANTISSA + up)) & 0xFFFF))
    # The digits of a denormal, including the hidden bit, are shifted down by its exponent.
    digits = b.or_(b.and_(digits, put(0x7F << up)), put(0x80 << up))
    down = _combine(e, "usub.sat", put(first), b.lshr(magnitude, put(_MANTISSA)))
    denormal = b.lshr(digits, _combine(e, "umin", down, put(15)))
    small = b.icmp_unsigned("<", magnitude, put(first << _MANTISSA))
    exact = b.select(small, denormal, normal)
    half = 1 << (fraction - 1)
    odd = b.icmp_signed("!=", b.and_(exact, put(1 << fraction)), put(0))
    rounded = b.add(exact, b.select(odd, put(half), put(half - 1)))
    if form.nan is not None:
        rounded = b.select(is_nan, put(form.nan << fraction), rounded)
    return b.lshr(b.or_(rounded, b.and_(code, put(_SIGN))), put(fraction))


def _number(code: int, form: Format) -> float:
    """The value of a positive code read as a normal number, even if it stands for infinity."""
    exponent, digits = divmod(code, 1 << form.mantissa)
    return float((digits + (1 << form.mantissa)) * form.smallest * 2.0 ** (exponent - 1))


def _narrow_several(e: Emitter, value: ir.Value) -> ir.Value:
    """`_narrow_bits` of several registers. Where selects are slow, NaN is tested once for all of
    them."""
    if e.isa.merging or value.type.count < 2 * e.isa.lanes:
        return _narrow_bits(e, value)
    parts = iter(vector.split(e, value, e.isa.lanes))
    found = [e.b.fcmp_unordered("uno", a, b) for a, b in zip(parts, parts, strict=True)]
    some = vector.any_lane(e, reduce(e.b.or_, found))
    kind = _like(value, I16)
    return e.branch(
        some,
        lambda: (_narrow_bits(e, value),),
        lambda: (e.b.trunc(_rounded(e, value), kind),),
    )[0]


def _rounded(e: Emitter, value: ir.Value) -> ir.Value:
    """Round f32 that are not NaN to bf16 (i32)."""
    b, kind = e.b, _like(value, I32)
    whole = b.bitcast(value, kind)
    odd = b.and_(b.lshr(whole, _put(kind, 16)), _put(kind, 1))
    return b.lshr(b.add(b.add(whole, _put(kind, 0x7FFF)), odd), _put(kind, 16))


def _narrow_bits(e: Emitter, value: ir.Value) -> ir.Value:
    b, kind = e.b, _like(value, I32)
    upper = b.lshr(b.bitcast(value, kind), _put(kind, 16))
    is_nan = b.fcmp_unordered("uno", value, value)
    code = b.select(is_nan, b.or_(upper, _put(kind, _QUIET)), _rounded(e, value))
    return b.trunc(code, _like(value, I16))


def _is_denormal(e: Emitter, value: ir.Value) -> ir.Value:
    name = e.isa.instruction("classify", "f32", value.type.count)
    assert name is not None, "what rounds by an instruction classifies by one"
    return e.intrinsic(name, _like(value, I1), [value, ir.Constant(I32, _DENORMALS)])


def _halves(e: Emitter, code: ir.Value) -> list[ir.Value]:
    """The f32 of the even and of the odd lanes."""
    lanes = code.type.count // 2
    pairs = e.b.bitcast(code, vector.vector_type(I32, lanes))
    apart = e.b.shl(pairs, _put(pairs.type, 16)), e.b.and_(pairs, _put(pairs.type, 0xFFFF0000))
    return [e.b.bitcast(part, vector.vector_type(F32, lanes)) for part in apart]


def _interleave_low(e: Emitter, even: ir.Value, odd: ir.Value) -> ir.Value:
    """Interleave the lower halves of i32 vectors, as i16."""
    low = e.b.and_(even, _put(even.type, 0xFFFF))
    pairs = e.b.or_(low, e.b.shl(odd, _put(odd.type, 16)))
    return e.b.bitcast(pairs, vector.vector_type(I16, 2 * even.type.count))


def _combine(e: Emitter, which: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """A binary integer intrinsic of LLVM."""
    return e.intrinsic(f"llvm.{which}.{vector.suffix(a.type)}", a.type, [a, b])


def _like(value: ir.Value, element: ir.Type) -> ir.Type:
    return vector.vector_type(element, value.type.count)


def _put(kind: ir.Type, value: int) -> ir.Constant:
    return vector.splat_constant(kind, value)
