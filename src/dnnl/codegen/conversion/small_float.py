"""Conversion between f32 and floats of at most 16 bits by integer arithmetic: exact on every
target.

A code is the bits of such a float in the low bits of an i32, unless stated otherwise. All functions
take vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I16, I32, Emitter
from dnnl.codegen.math import f32

_F32_MANTISSA = 23
_F32_BIAS = 127
_F32_INFINITY = 0x7F800000
_F32_MAGNITUDE = 0x7FFFFFFF
_F32_QUIET_NAN = 0x7FC00000


@dataclass(frozen=True)
class Format:
    """The layout of a float: sign, ``exponent`` bits, ``mantissa`` bits.

    ``overflow`` is the code of values that are too large. ``infinity`` is the first code that is
    not finite, None if all are. ``nan`` is the code of NaN, if that is not ``overflow``.
    """

    exponent: int
    mantissa: int
    overflow: int
    infinity: int | None = None
    nan: int | None = None

    @property
    def bias(self) -> int:
        """The exponent bias."""
        return int(2 ** (self.exponent - 1) - 1)

    @property
    def width(self) -> int:
        """The bits of a magnitude, which is the position of the sign."""
        return self.exponent + self.mantissa

    @property
    def smallest(self) -> float:
        """The smallest positive number: the spacing of denormals."""
        return 2.0 ** (1 - self.bias - self.mantissa)


F16 = Format(5, 10, overflow=0x7C00, infinity=0x7C00, nan=0x7E00)
F8_E5M2 = Format(5, 2, overflow=0x7C, infinity=0x7C, nan=0x7E)
F8_E4M3 = Format(4, 3, overflow=0x7F)
F4_E2M1 = Format(2, 1, overflow=0x7)


def widen(e: Emitter, code: ir.Value, form: Format) -> ir.Value:
    """Convert codes to f32."""
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
    value = with_nan(e, value, magnitude, form, _F32_QUIET_NAN)
    return b.bitcast(b.or_(value, sign), real)


def widen_by_f16(e: Emitter, code: ir.Value, form: Format) -> ir.Value:
    """Convert 8-bit codes (i8) to f32 through f16, which is native: the upper byte of an f16 has
    the same digits, and denormals correspond."""
    b, lanes = e.b, code.type.count
    kind, real = vector.vector_type(I16, lanes), vector.vector_type(F32, lanes)
    put = _constants(kind)
    up = F16.mantissa - form.mantissa
    places = (1 << F16.width) | ((1 << form.width) - 1) << up
    half = b.and_(b.shl(b.sext(code, kind), put(up)), put(places))
    value = b.fpext(b.bitcast(half, vector.vector_type(ir.HalfType(), lanes)), real)
    if form.bias != F16.bias:
        value = b.fmul(value, vector.splat_constant(real, 2.0 ** (F16.bias - form.bias)))
    bits = b.bitcast(value, vector.vector_type(I32, lanes))
    return b.bitcast(with_nan(e, bits, code, form, _F32_QUIET_NAN), real)


def with_nan(e: Emitter, bits: ir.Value, code: ir.Value, form: Format, nan: int) -> ir.Value:
    """``bits``, replaced with ``nan`` where ``code`` is the NaN of a form without infinity."""
    if form is not F8_E4M3:
        return bits
    overflow = _constants(code.type)(form.overflow)
    is_nan = e.b.icmp_signed("==", e.b.and_(code, overflow), overflow)
    put = _constants(bits.type)
    return e.b.or_(bits, e.b.select(is_nan, put(nan), put(0)))


def narrow(e: Emitter, value: ir.Value, form: Format) -> ir.Value:
    """Round f32 to the format, ties to even."""
    b = e.b
    kind = vector.vector_type(I32, value.type.count)
    put = _constants(kind)
    bits = b.bitcast(value, kind)
    magnitude = b.and_(bits, put(_F32_MAGNITUDE))
    sign = b.and_(b.lshr(bits, put(31 - form.width)), put(1 << form.width))
    shift = _F32_MANTISSA - form.mantissa
    # Adding half of the last place, less one if that is even, rounds to nearest even.
    odd = b.and_(b.lshr(magnitude, put(shift)), put(1))
    offset = (1 << (shift - 1)) - 1 - ((_F32_BIAS - form.bias) << _F32_MANTISSA)
    normal = b.lshr(b.add(b.add(magnitude, put(offset)), odd), put(shift))
    # The last place of this number is the spacing of denormals, so adding it rounds to them.
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


def narrow_f4(e: Emitter, value: ir.Value) -> ir.Value:
    """`narrow` to f4_e2m1 in fewer instructions.

    Codes grow piecewise linearly with the magnitude: slope 2 up to 2, slope 1 up to 4, slope 1/2
    above. The minimum of the three lines, rounded, is the code.
    """
    b, kind = e.b, vector.vector_type(I32, value.type.count)
    put = _constants(kind)
    size = vector.minimum(e, f32.absolute(e, value), f32.constant(value, 6.0))
    lines = [(2.0, 0.0), (1.0, 2.0), (0.5, 4.0)]
    code = reduce(e.smaller, [f32.rounded_bits(e, size, *line) for line in lines])
    sign = b.and_(b.lshr(b.bitcast(value, kind), put(28)), put(8))
    return b.or_(code, sign)


def widen_e8m0(e: Emitter, code: ir.Value) -> ir.Value:
    """2^(code - 127); NaN for 255."""
    b, put = e.b, _constants(code.type)
    power = b.shl(code, put(_F32_MANTISSA))
    power = b.select(b.icmp_signed("==", code, put(0)), put(1 << 22), power)
    power = b.select(b.icmp_signed("==", code, put(0xFF)), put(_F32_QUIET_NAN), power)
    return b.bitcast(power, vector.vector_type(F32, code.type.count))


def narrow_e8m0(e: Emitter, value: ir.Value) -> ir.Value:
    """The largest power of two not above the magnitude: the exponent field."""
    kind = vector.vector_type(I32, value.type.count)
    put = _constants(kind)
    return e.b.and_(e.b.lshr(e.b.bitcast(value, kind), put(_F32_MANTISSA)), put(0xFF))


def _constants(kind: ir.VectorType) -> Callable[[int], ir.Constant]:
    """Constant splats of a vector type."""
    return partial(vector.splat_constant, kind)
