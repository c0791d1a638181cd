"""Floats below 32 bits and f32, mostly by integer arithmetic: the same on every target, and exact.

A code is the bits of such a float in the low bits of an i32, if nothing else is said. All functions
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
    value = with_nan(e, value, magnitude, form, _F32_QUIET_NAN)
    return b.bitcast(b.or_(value, sign), real)


def widen_by_f16(e: Emitter, code: ir.Value, form: Format) -> ir.Value:
    """The f32 that an i8, a code of an 8-bit ``form``, stands for, where f16 is native: the upper
    bits of that have the same digits, and its denormals are those of ``form``."""
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
    """``bits`` with those of ``nan`` where ``code`` is the NaN that ``form`` has instead of
    infinity, if it has."""
    if form is not F8_E4M3:
        return bits
    overflow = _constants(code.type)(form.overflow)
    is_nan = e.b.icmp_signed("==", e.b.and_(code, overflow), overflow)
    put = _constants(bits.type)
    return e.b.or_(bits, e.b.select(is_nan, put(nan), put(0)))


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


def narrow_f4(e: Emitter, value: ir.Value) -> ir.Value:
    """What ``narrow`` gives for f4_e2m1, in fewer steps.

    As magnitudes grow, codes follow one of three lines, of slope 2 up to 2, slope 1 up to 4, and
    slope 1/2 from there on: the lowest one everywhere.
    """
    b, kind = e.b, vector.vector_type(I32, value.type.count)
    put = _constants(kind)
    size = vector.minimum(e, f32.absolute(e, value), f32.constant(value, 6.0))
    lines = [(2.0, 0.0), (1.0, 2.0), (0.5, 4.0)]
    code = reduce(e.smaller, [f32.rounded_bits(e, size, *line) for line in lines])
    sign = b.and_(b.lshr(b.bitcast(value, kind), put(28)), put(8))
    return b.or_(code, sign)


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
