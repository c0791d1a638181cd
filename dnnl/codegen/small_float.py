"""Floats below 32 bits, by integer arithmetic: the same on every target, and exact.

A code is the bits of such a float in the low bits of an i32, if nothing else is said. All functions
take vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce

from llvmlite import ir

from dnnl.codegen import vector
from dnnl.codegen.builder import BF16, F32, I1, I16, I32, Emitter, Values

_F32_MANTISSA = 23
_F32_BIAS = 127
_F32_INFINITY = 0x7F800000
_F32_MAGNITUDE = 0x7FFFFFFF
_F32_QUIET_NAN = 0x7FC00000
_BF16_MANTISSA = 7
_BF16_INFINITY = 0x7F80
_BF16_QUIET = 0x40

# Instructions on a register of 16 lanes, by the lanes that they round: the upper register first.
_REGISTER = 16
_TO_BF16 = {
    _REGISTER: "llvm.x86.avx512bf16.cvtneps2bf16.512",
    2 * _REGISTER: "llvm.x86.avx512bf16.cvtne2ps2bf16.512",
}
_CLASSIFY = "llvm.x86.avx512.fpclass.ps.512"
_DENORMALS = 0x20


@dataclass(frozen=True)
class Format:
    """The bits of a float: sign, ``exponent`` bits, ``mantissa`` bits.

    ``overflow`` is the code of what is too large. ``infinity``, where there is one, begins the
    codes that are not finite; ``nan`` is the code that NaN gets if overflow does not say it.
    """

    exponent: int
    mantissa: int
    overflow: int
    infinity: int | None = None
    nan: int | None = None

    @property
    def bias(self) -> int:
        """What is added to the exponent of a number."""
        return int(2 ** (self.exponent - 1) - 1)

    @property
    def width(self) -> int:
        """The bits of a magnitude, and the place of the sign."""
        return self.exponent + self.mantissa

    @property
    def smallest(self) -> float:
        """The smallest positive number: the step between denormals."""
        return 2.0 ** (1 - self.bias - self.mantissa)


F16 = Format(5, 10, overflow=0x7C00, infinity=0x7C00, nan=0x7E00)
F8_E5M2 = Format(5, 2, overflow=0x7C, infinity=0x7C, nan=0x7E)
F8_E4M3 = Format(4, 3, overflow=0x7F)
F4_E2M1 = Format(2, 1, overflow=0x7)


def widen(e: Emitter, code: ir.Value, form: Format) -> ir.Value:
    """The f32 that a code stands for."""
    b, put = e.b, _constants(code.type)
    real = vector.vector_type(F32, code.type.count)
    magnitude = b.and_(code, put((1 << form.width) - 1))
    sign = b.shl(b.and_(code, put(1 << form.width)), put(31 - form.width))
    shifted = b.shl(magnitude, put(_F32_MANTISSA - form.mantissa))
    normal = b.add(shifted, put((_F32_BIAS - form.bias) << _F32_MANTISSA))
    step = vector.splat_constant(real, form.smallest)
    denormal = b.bitcast(b.fmul(b.sitofp(magnitude, real), step), code.type)
    small = b.icmp_signed("<", magnitude, put(1 << form.mantissa))
    value = b.select(small, denormal, normal)
    if form.infinity is not None:
        odd = b.icmp_signed(">=", magnitude, put(form.infinity))
        value = b.select(odd, b.or_(shifted, put(_F32_INFINITY)), value)
    elif form is F8_E4M3:
        nan = b.icmp_signed("==", magnitude, put(form.overflow))
        value = b.select(nan, put(_F32_QUIET_NAN), value)
    return b.bitcast(b.or_(value, sign), real)


def widen_to_bf16(e: Emitter, code: ir.Value, form: Format) -> ir.Value:
    """The bf16, as bits, that a code of at most 8 bits stands for; both are i16."""
    b, put = e.b, _constants(code.type)
    magnitude = b.and_(code, put((1 << form.width) - 1))
    sign = b.shl(b.and_(code, put(1 << form.width)), put(15 - form.width))
    shifted = b.shl(magnitude, put(_BF16_MANTISSA - form.mantissa))
    value = b.add(shifted, put((_F32_BIAS - form.bias) << _BF16_MANTISSA))
    # The highest bit of a denormal becomes the hidden one: a case for each place it may have.
    for place in reversed(range(form.mantissa)):
        power = _F32_BIAS + 1 - form.bias - form.mantissa + place
        up = b.shl(magnitude, put(_BF16_MANTISSA - place))
        denormal = b.add(up, put((power - 1) << _BF16_MANTISSA))
        small = b.icmp_signed("<", magnitude, put(2 << place))
        value = b.select(small, denormal, value)
    value = b.select(b.icmp_signed("==", magnitude, put(0)), put(0), value)
    if form.infinity is not None:
        odd = b.icmp_signed(">=", magnitude, put(form.infinity))
        value = b.select(odd, b.or_(shifted, put(_BF16_INFINITY)), value)
        nan = b.icmp_signed(">", magnitude, put(form.infinity))
        value = b.or_(value, b.select(nan, put(_BF16_QUIET), put(0)))
    elif form is F8_E4M3:
        nan = b.icmp_signed("==", magnitude, put(form.overflow))
        value = b.select(nan, put(_BF16_INFINITY | _BF16_QUIET), value)
    return b.or_(value, sign)


def narrow(e: Emitter, value: ir.Value, form: Format) -> ir.Value:
    """The code nearest to an f32, the even one of two."""
    b = e.b
    kind = vector.vector_type(I32, value.type.count)
    put = _constants(kind)
    bits = b.bitcast(value, kind)
    magnitude = b.and_(bits, put(_F32_MAGNITUDE))
    sign = b.and_(b.lshr(bits, put(31 - form.width)), put(1 << form.width))
    shift = _F32_MANTISSA - form.mantissa
    # Half of the last place, less one where that is even, carries into it what rounds up.
    odd = b.and_(b.lshr(magnitude, put(shift)), put(1))
    offset = (1 << (shift - 1)) - 1 - ((_F32_BIAS - form.bias) << _F32_MANTISSA)
    normal = b.lshr(b.add(b.add(magnitude, put(offset)), odd), put(shift))
    # The last place of this number is the step between denormals: adding it rounds to them.
    ruler = vector.splat_constant(value.type, form.smallest * 2.0**_F32_MANTISSA)
    ruled = b.fadd(b.bitcast(magnitude, value.type), ruler)
    denormal = b.sub(b.bitcast(ruled, kind), b.bitcast(ruler, kind))
    smallest_normal = (_F32_BIAS - form.bias + 1) << _F32_MANTISSA
    code = b.select(b.icmp_signed("<", magnitude, put(smallest_normal)), denormal, normal)
    code = b.select(b.icmp_signed("<", code, put(form.overflow)), code, put(form.overflow))
    if form.nan is not None:
        nan = b.icmp_signed(">", magnitude, put(_F32_INFINITY))
        code = b.select(nan, put(form.nan), code)
    return b.or_(code, sign)


def widen_bf16(e: Emitter, code: ir.Value) -> ir.Value:
    """The f32 whose upper half a code is."""
    upper = e.b.shl(code, _constants(code.type)(16))
    return e.b.bitcast(upper, vector.vector_type(F32, code.type.count))


def narrow_bf16(e: Emitter, value: ir.Value) -> ir.Value:
    """The nearest bf16, the even one of two, as bits in i16."""
    instruction = _TO_BF16.get(value.type.count)
    if not e.isa.bfloat or instruction is None:
        return _narrow_bf16_bits(e, value)
    # The instruction takes denormals for zero.
    parts = vector.split(e, value, _REGISTER)
    denormal = reduce(e.b.or_, [_is_denormal(e, part) for part in parts])

    def round_normal() -> Values:
        kind = vector.vector_type(BF16, value.type.count)
        rounded = e.intrinsic(instruction, kind, parts[::-1])
        return (e.b.bitcast(rounded, vector.vector_type(I16, value.type.count)),)

    some = vector.any_lane(e, denormal)
    return e.branch(some, lambda: (_narrow_bf16_bits(e, value),), round_normal)[0]


def _is_denormal(e: Emitter, value: ir.Value) -> ir.Value:
    kind = vector.vector_type(I1, value.type.count)
    return e.intrinsic(_CLASSIFY, kind, [value, ir.Constant(I32, _DENORMALS)])


def _narrow_bf16_bits(e: Emitter, value: ir.Value) -> ir.Value:
    b = e.b
    kind = vector.vector_type(I32, value.type.count)
    put = _constants(kind)
    bits = b.bitcast(value, kind)
    upper = b.lshr(bits, put(16))
    odd = b.and_(upper, put(1))
    rounded = b.lshr(b.add(b.add(bits, put(0x7FFF)), odd), put(16))
    is_nan = b.fcmp_unordered("uno", value, value)
    code = b.select(is_nan, b.or_(upper, put(_BF16_QUIET)), rounded)
    return b.trunc(code, vector.vector_type(I16, value.type.count))


def widen_e8m0(e: Emitter, code: ir.Value) -> ir.Value:
    """2^(code - 127), NaN for 255."""
    b, put = e.b, _constants(code.type)
    power = b.shl(code, put(_F32_MANTISSA))
    power = b.select(b.icmp_signed("==", code, put(0)), put(1 << 22), power)
    power = b.select(b.icmp_signed("==", code, put(0xFF)), put(_F32_QUIET_NAN), power)
    return b.bitcast(power, vector.vector_type(F32, code.type.count))


def narrow_e8m0(e: Emitter, value: ir.Value) -> ir.Value:
    """The power of two at or below the magnitude: the exponent field."""
    kind = vector.vector_type(I32, value.type.count)
    put = _constants(kind)
    return e.b.and_(e.b.lshr(e.b.bitcast(value, kind), put(_F32_MANTISSA)), put(0xFF))


def _constants(kind: ir.VectorType) -> Callable[[int], ir.Constant]:
    """Makes splats of one vector type."""
    return partial(vector.splat_constant, kind)
