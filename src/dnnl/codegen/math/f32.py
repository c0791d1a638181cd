"""Elementary functions of f32 vectors, expanded inline: no target calls a library.

Where f64 differs, these functions dispatch to `math.f64`.

NaN gives NaN, infinities give their limits, and results below the smallest normal number are
denormal. Errors are in ulps of the result, over all f32 values on targets with FMA; without FMA
they grow by about one ulp. The polynomials are minimax fits with coefficients rounded to f32,
lowest power first; the comment of each gives the interval and the relative error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F64, I32, I64, Emitter
from dnnl.codegen.math import exponent, f64
from dnnl.codegen.math.arithmetic import (
    ROUNDING_SHIFT,
    absolute,
    at_least,
    at_most,
    clamp,
    constant,
    copy_sign,
    polynomial,
    reciprocal,
    reciprocal_root,
    round_down,
    round_to_even,
    rounded_bits,
    square_root,
)

__all__ = [
    "absolute", "at_least", "at_most", "clamp", "constant", "copy_sign", "erf", "exp",
    "exp_of_negative", "expm1", "expm1_of_negative", "log", "log1p", "logistic",
    "normal_cdf", "polynomial", "power", "reciprocal", "reciprocal_root", "round_to_even",
    "rounded_bits", "softplus", "softplus_tail", "square_root", "tanh", "tanh_of_softplus",
]  # fmt: skip

_LN2 = math.log(2.0)
# ln 2 in two parts. The first has so few digits that its product with an exponent is exact.
_LN2_HIGH = 0.693359375
_LN2_PARTS = (_LN2_HIGH, _LN2 - _LN2_HIGH)

# Underflow costs some hundred cycles. Arguments are clamped where a power of two becomes 0 (or inf
# in a denominator) if far more arguments underflow than have denormal results. e^x is 0 below the
# first limit, where 2^n is a product of zeros, and inf above the second.
_EXP_LOW, _EXP_HIGH = -176.0, 89.0
# e^x is normal from here on.
_EXP_NORMAL = -87.0
# 2^-127 is the nearest power of two to e^x.
_EXP_VANISHES = -88.0
# e^x vanishes beside 1 below the first limit; the logistic function is 1 above the second.
_EXPM1_LOW, _LOGISTIC_HIGH = -18.0, 40.0
# tanh(ln(1 + e^x)) is 1 from here on.
_SOFTPLUS_HIGH = 20.0
# The exponent bias of f32.
_BIAS = 127

# e^x - 1 = x + x^2 p(x): |x| <= ln(2)/2, 2^-26.1.
_EXPM1 = (4.9999997e-01, 1.6666546e-01, 4.166744e-02, 8.366258e-03, 1.38703e-03)
_EXP = (1.0, 1.0, *_EXPM1)
# e^x = p(x): |x| <= ln(2)/2, 2^-23.4.
_EXP_SHORT = (1.0, 9.999997e-01, 4.9999148e-01, 1.6667654e-01, 4.189815e-02, 8.289202e-03)
# ln(1 + x) = x + x^2 p(x): -1/4 <= x <= 1/2, 2^-24.7.
_LOG = (
    -5.000006e-01, 3.333355e-01, -2.4993442e-01, 1.9977078e-01,
    -1.6822812e-01, 1.4983916e-01, -1.20673604e-01, 5.4132394e-02,
)  # fmt: skip
# ln(1 + x) = x + x^2 p(x): 0 <= x <= 1, 2^-24.7.
_LOG1P = (
    -4.9999648e-01, 3.3321324e-01, -2.4857163e-01, 1.9153652e-01,
    -1.3753796e-01, 7.9204455e-02, -3.0065743e-02, 5.364812e-03,
)  # fmt: skip
# tanh is 1 from the first limit on, erf from the second.
_TANH_LIMIT, _ERF_LIMIT = 10.0, 4.0
# ln(1 - erf x) = -x + x p(x): 0 <= x <= 4, 2^-27.8 of erf x.
_ERF = (
    -1.2837917e-01, -6.3661957e-01, -1.02776304e-01, 1.9147823e-02, 1.6950456e-04,
    -1.6756773e-03, 6.373643e-04, -1.1886171e-04, 9.388026e-06,
)  # fmt: skip
# erfc(x / sqrt 2) = (1 + x p(x))^-16: 2^-22 for 0 <= x <= 5, 2^-13 up to 6, and falling to 0.
_TAIL = (
    4.9867816e-02, 2.1137435e-02, 3.2849943e-03, 3.496773e-05, 4.3236912e-05,
    1.2303949e-05, -3.0046663e-06, 5.8620924e-07, -5.224835e-08, 2.6071267e-09,
)  # fmt: skip
# log2((1 + s) / (1 - s)) = s p(s^2): |s| <= 1/5, absolute 2^-35.6; in f64.
_LOG2 = (
    2.8853900818368374, 0.9617966209761509, 0.5770924579136865, 0.4112011121317074,
    0.3484665622225652,
)  # fmt: skip
# 2^x = p(x): |x| <= 1/2, 2^-29; in f64.
_EXP2 = (
    1.0000000005630552, 0.6931472060373188, 0.24022646844851875, 0.05550328123618894,
    0.009618491841489567, 0.0013400195536081329, 0.00015345580482935078,
)  # fmt: skip


def _is_f64(x: ir.Value) -> bool:
    return x.type.element is F64


def exp(e: Emitter, x: ir.Value) -> ir.Value:
    """e^x; 1.5 ulps."""
    if _is_f64(x):
        return f64.exp(e, x)
    return _exp(e, clamp(e, x, _EXP_LOW, _EXP_HIGH))


def exp_of_negative(e: Emitter, x: ir.Value) -> ir.Value:
    """e^x for -87 <= x <= 0, and 0 below -88; 2.5 ulps.

    For softmax with masked scores: most elements vanish, and denormal results would take ten times
    as long as everything else.
    """
    if _is_f64(x):
        return f64.exp(e, x)
    if exponent.is_native(e, x.type):
        low = constant(x, _EXP_NORMAL)
        vanishing = e.b.fcmp_ordered("<", x, low)
        value = _exp(e, vector.maximum(e, low, x), _EXP_SHORT)
        return e.b.select(vanishing, constant(x, 0.0), value)
    # The bits of the power are zero from here on down.
    rest, number = _reduce(e, vector.maximum(e, constant(x, _EXP_VANISHES), x), _BIAS)
    return e.b.fmul(polynomial(e, rest, _EXP_SHORT), _power(e, number, x))


def expm1_of_negative(e: Emitter, x: ir.Value) -> ir.Value:
    """e^x - 1 for x <= 0, and 0 for positive x; 1.5 ulps."""
    if _is_f64(x):
        return f64.expm1_of_negative(e, x)
    rest, power = _one_less(e, clamp(e, x, _EXPM1_LOW, 0.0))
    return vector.multiply_add(e, rest, power, e.b.fsub(power, constant(x, 1.0)))


def expm1(e: Emitter, x: ir.Value) -> ir.Value:
    """e^x - 1, accurate for small x; 2 ulps; f32 only."""
    # Computed as half of it, since 2^128 overflows.
    held = clamp(e, x, _EXPM1_LOW, _EXP_HIGH)
    rest, half = _one_less(e, held, _BIAS - 1, _LN2_PARTS)
    value = vector.multiply_add(e, rest, half, e.b.fsub(half, constant(x, 0.5)))
    return copy_sign(e, e.b.fadd(value, value), x)


def log1p(e: Emitter, x: ir.Value) -> ir.Value:
    """ln(1 + x), accurate for small x; -inf for -1, NaN below; 1.5 ulps; f32 only."""
    one = constant(x, 1.0)
    mantissa, power = exponent.split(e, e.b.fadd(x, one))
    # The rounding error of 1 + x, scaled like the mantissa. It is negligible from 2^60 on.
    held = at_most(e, x, 2.0**60)
    lost = e.b.fsub(held, e.b.fsub(e.b.fadd(held, one), one))
    integers = vector.vector_type(I32, x.type.count)
    shifted = e.b.fsub(constant(x, ROUNDING_SHIFT + _BIAS), at_most(e, power, 60.0))
    scale = _power(e, e.b.bitcast(shifted, integers), x)
    rest = vector.multiply_add(e, lost, scale, e.b.fsub(mantissa, one))
    rest = _log_near_one(e, rest)
    return copy_sign(e, vector.multiply_add(e, power, constant(x, _LN2), rest), x)


def _log_near_one(e: Emitter, above: ir.Value) -> ir.Value:
    """ln(1 + above) for -1/4 <= above <= 1/2."""
    square = e.b.fmul(above, above)
    return vector.multiply_add(e, square, _by_pairs(e, above, square, _LOG), above)


def log(e: Emitter, x: ir.Value) -> ir.Value:
    """The natural logarithm: -inf for zero, NaN for negative values; 2 ulps."""
    if _is_f64(x):
        return f64.log(e, x)
    mantissa, power = exponent.split(e, x)
    rest = _log_near_one(e, e.b.fsub(mantissa, constant(x, 1.0)))
    return vector.multiply_add(e, power, constant(x, _LN2), rest)


def tanh(e: Emitter, x: ir.Value) -> ir.Value:
    """The hyperbolic tangent; 2 ulps, at most 1, exactly odd."""
    if _is_f64(x):
        return f64.tanh(e, x)
    # (1 - w) / (1 + w) with w = e^(-2 |x|): each of the two sums rounds once.
    size, one = at_most(e, absolute(e, x), _TANH_LIMIT), constant(x, 1.0)
    rest, power = _one_less(e, size, factor=-2.0)
    numerator = vector.multiply_add(e, e.b.fneg(rest), power, e.b.fsub(one, power))
    denominator = vector.multiply_add(e, rest, power, e.b.fadd(one, power))
    return _signed(e, e.b.fdiv(numerator, denominator), x)


def erf(e: Emitter, x: ir.Value) -> ir.Value:
    """The error function; 2 ulps, at most 1, exactly odd."""
    if _is_f64(x):
        return f64.erf(e, x)
    # erf x = 1 - e^y with y = ln(1 - erf x), which is close to a parabola: one polynomial and one
    # exponential serve small and large x.
    size = at_most(e, absolute(e, x), _ERF_LIMIT)
    series = _by_pairs(e, size, e.b.fmul(size, size), _ERF)
    target = vector.multiply_add(e, size, series, e.b.fneg(size))
    rest, power = _one_less(e, target)
    if not e.isa.fma:  # without FMA the rounding error of the last sum matters
        rest = e.b.fadd(rest, e.b.fsub(e.b.fmul(size, series), e.b.fadd(target, size)))
    grown = e.b.fsub(constant(x, 1.0), power)
    return _signed(e, vector.multiply_add(e, e.b.fneg(rest), power, grown), x)


def _signed(e: Emitter, magnitude: ir.Value, sign: ir.Value) -> ir.Value:
    """``magnitude``, which is not negative, with the sign of ``sign``."""
    integers = vector.vector_type(I32, sign.type.count)
    bit = e.b.and_(e.b.bitcast(sign, integers), vector.splat_constant(integers, -(2**31)))
    return e.b.bitcast(e.b.or_(e.b.bitcast(magnitude, integers), bit), sign.type)


def normal_cdf(e: Emitter, x: ir.Value) -> ir.Value:
    """(1 + erf(x / sqrt 2)) / 2, the distribution function of the normal distribution.

    The error is 16 ulps down to x = -2 and 32 down to x = -5; it is 2^-13 of the value at x = -6,
    which is 1e-9, and grows from there on.
    """
    # The tail on the side of x is never a difference of large numbers.
    size = absolute(e, x)
    tail = f64.normal_tail(e, size) if _is_f64(x) else _normal_tail(e, size)
    negative = e.b.fcmp_ordered("<", x, constant(x, 0.0))
    return e.b.select(negative, tail, e.b.fsub(constant(x, 1.0), tail))


def _normal_tail(e: Emitter, size: ir.Value) -> ir.Value:
    """(1 - erf(size / sqrt 2)) / 2."""
    excess = e.b.fmul(size, polynomial(e, size, _TAIL))
    # (1 + excess)^2 without rounding 1 + excess, whose error the powers would magnify.
    one, two = constant(size, 1.0), constant(size, 2.0)
    power = vector.multiply_add(e, excess, e.b.fadd(excess, two), one)
    for _ in range(3):
        power = e.b.fmul(power, power)
    return e.b.fdiv(constant(size, 0.5), power)


def logistic(e: Emitter, x: ir.Value) -> ir.Value:
    """1 / (1 + e^-x); 3 ulps, and 0 below -87.7, where it is denormal."""
    if _is_f64(x):
        grown = f64.exp(e, at_most(e, x, _LOGISTIC_HIGH))
        return e.b.fdiv(grown, e.b.fadd(grown, constant(x, 1.0)))
    # With e^x = v * 2^n the result is v / (v + 2^-n). Both are doubled: the powers then range from
    # 2^-57 to 2^128 = inf, and the factor of v is in the coefficients.
    x = clamp(e, x, _EXP_VANISHES, _LOGISTIC_HIGH)
    rest, number = _reduce(e, x, _BIAS + 1, -1.0)
    value = polynomial(e, rest, [coefficient * 2.0 for coefficient in _EXP])
    return e.b.fdiv(value, e.b.fadd(value, _power(e, number, x)))


def tanh_of_softplus(e: Emitter, x: ir.Value) -> ir.Value:
    """tanh(ln(1 + e^x)); 4 ulps, and 0 below -87.7."""
    # With w = e^x it is ((1 + w)^2 - 1) / ((1 + w)^2 + 1), which is 1 for large x.
    x, two = at_most(e, x, _SOFTPLUS_HIGH), constant(x, 2.0)
    if _is_f64(x):
        grown = f64.exp(e, x)
        numerator = e.b.fmul(grown, e.b.fadd(grown, two))
        return e.b.fdiv(numerator, e.b.fadd(numerator, two))
    rest, number = _reduce(e, at_least(e, x, _EXP_VANISHES), _BIAS)
    grown = e.b.fmul(polynomial(e, rest, _EXP), _power(e, number, x))
    numerator = e.b.fmul(grown, e.b.fadd(grown, two))
    return e.b.fdiv(numerator, e.b.fadd(numerator, two))


def softplus(e: Emitter, x: ir.Value) -> ir.Value:
    """ln(1 + e^x); 3 ulps."""
    # The asymptote is exact, and the correction is never large.
    asymptote = at_least(e, x, 0.0)
    return e.b.fadd(softplus_tail(e, x), asymptote)


def softplus_tail(e: Emitter, x: ir.Value) -> ir.Value:
    """ln(1 + e^-|x|): softplus minus its asymptote."""
    below = e.b.fneg(absolute(e, x))
    grown = f64.exp(e, below) if _is_f64(x) else _exp(e, at_least(e, below, _EXP_LOW))
    return _log1p_up_to_one(e, grown)


def _log1p_up_to_one(e: Emitter, x: ir.Value) -> ir.Value:
    """ln(1 + x) for 0 <= x <= 1."""
    if _is_f64(x):
        return f64.log1p(e, x)
    return vector.multiply_add(e, e.b.fmul(x, x), polynomial(e, x, _LOG1P), x)


def power(e: Emitter, x: ir.Value, to: float) -> ir.Value:
    """x^to for a finite number ``to``, with the limits of C's ``pow``; 5 ulps.

    NaN for negative finite x unless ``to`` is an integer.
    """
    if to == 0.0:
        return constant(x, 1.0)
    if to in (1.0, 2.0, 3.0, 4.0):
        return _repeated_product(e, x, int(to))
    if to in (-1.0, -2.0, -3.0, -4.0):
        return _repeated_product(e, reciprocal(e, x), int(-to))
    if not to.is_integer():
        infinite = e.b.fcmp_ordered("==", x, constant(x, -math.inf))
        x = e.b.select(infinite, constant(x, math.inf), x)
    if abs(to) == 0.5:
        root = e.b.fadd(square_root(e, x), constant(x, 0.0))  # -0 becomes 0, as pow requires
        return root if to > 0.0 else reciprocal(e, root)
    exponents = vector.splat_constant(vector.vector_type(F64, x.type.count), to)
    if not to.is_integer():
        return _positive_power(e, x, exponents)
    magnitude = _positive_power(e, absolute(e, x), exponents)
    return copy_sign(e, magnitude, x) if to % 2.0 else magnitude


def power_of(e: Emitter, x: ir.Value, to: ir.Value) -> ir.Value:
    """x^to of two vectors, with the limits of C's ``pow``; 5 ulps."""
    zero, one = constant(x, 0.0), constant(x, 1.0)
    size = absolute(e, x)
    unit = e.b.fcmp_ordered("==", size, one)
    magnitude = e.b.select(unit, one, _positive_power(e, size, _in_f64(e, to)))
    half = e.b.fmul(to, constant(x, 0.5))
    whole = e.b.fcmp_ordered("==", round_down(e, to), to)
    odd = e.b.and_(whole, e.b.fcmp_unordered("!=", round_down(e, half), half))
    result = e.b.select(odd, copy_sign(e, magnitude, x), magnitude)
    below = e.b.fcmp_ordered("<", x, zero)
    finite = e.b.fcmp_unordered("!=", size, constant(x, math.inf))
    unreal = e.b.and_(e.b.and_(below, finite), e.b.not_(whole))
    result = e.b.select(unreal, constant(x, math.nan), result)
    certain = e.b.or_(e.b.fcmp_ordered("==", to, zero), e.b.fcmp_ordered("==", x, one))
    return e.b.select(certain, one, result)


def _repeated_product(e: Emitter, x: ir.Value, count: int) -> ir.Value:
    if count == 1:
        return x
    half = _repeated_product(e, x, count // 2)
    square = e.b.fmul(half, half)
    return e.b.fmul(square, x) if count % 2 else square


def _in_f64(e: Emitter, x: ir.Value) -> ir.Value:
    return x if _is_f64(x) else e.b.fpext(x, vector.vector_type(F64, x.type.count))


def _positive_power(e: Emitter, x: ir.Value, to: ir.Value) -> ir.Value:
    """2^(to * log2 x), computed in f64: the rounding error of an f32 logarithm would become a large
    relative error of the power. NaN for negative x. For f64 x the error grows with the logarithm
    times ``to``."""
    if _is_f64(x):
        return f64.exp(e, e.b.fmul(f64.log(e, x), to))
    wide = vector.vector_type(F64, x.type.count)
    bits = vector.vector_type(I64, x.type.count)
    mantissa, scale = (e.b.fpext(part, wide) for part in exponent.split(e, x))
    one = vector.splat_constant(wide, 1.0)
    ratio = e.b.fdiv(e.b.fsub(mantissa, one), e.b.fadd(mantissa, one))
    series = polynomial(e, e.b.fmul(ratio, ratio), _LOG2)
    logarithm = vector.multiply_add(e, ratio, series, scale)
    # Outside these limits the f32 result is 0 or inf, while f64 is still normal.
    target = clamp(e, e.b.fmul(logarithm, to), -200.0, 200.0)
    # As in _reduce, for f64.
    shift = vector.splat_constant(wide, 1.5 * 2.0**52 + 1023.0)
    shifted = e.b.fadd(target, shift)
    rest = e.b.fsub(target, e.b.fsub(shifted, shift))
    places = vector.splat_constant(bits, 52)
    whole = e.b.bitcast(e.b.shl(e.b.bitcast(shifted, bits), places), wide)
    return e.b.fptrunc(e.b.fmul(polynomial(e, rest, _EXP2), whole), x.type)


def _exp(e: Emitter, x: ir.Value, coefficients: Sequence[float] = _EXP) -> ir.Value:
    """e^x for x from _EXP_LOW to _EXP_HIGH."""
    if exponent.is_native(e, x.type):
        shift = constant(x, ROUNDING_SHIFT)
        number = e.b.fsub(vector.multiply_add(e, x, constant(x, 1.0 / _LN2), shift), shift)
        rest = _subtract(e, x, number, _LN2_PARTS)
        return exponent.scale(e, polynomial(e, rest, coefficients), number)
    # 2^n may overflow or underflow as one factor, so it is split in two. Only the second product
    # rounds.
    rest, number = _reduce(e, x, 2 * _BIAS)

    def whole(value: int) -> ir.Constant:
        return vector.splat_constant(number.type, value)

    half = e.b.and_(e.b.shl(number, whole(22)), whole(-(2**23)))
    other = e.b.bitcast(e.b.sub(e.b.shl(number, whole(23)), half), x.type)
    value = e.b.fmul(polynomial(e, rest, coefficients), e.b.bitcast(half, x.type))
    return e.b.fmul(value, other)


def _one_less(
    e: Emitter,
    x: ir.Value,
    bias: int = _BIAS,
    parts: Sequence[float] = (_LN2,),
    factor: float = 1.0,
) -> tuple[ir.Value, ir.Value]:
    """(q, 2^(n + bias - _BIAS)) with e^(factor * x) = 2^n * (1 + q), where that power is normal.
    ``factor`` is a power of two of any sign.

    With ln(2) in one part, q is accurate enough for e^x - 1 if x is negative.
    """
    rest, number = _reduce(e, x, bias, 1.0 / factor, parts)
    square = e.b.fmul(rest, rest)
    higher = [value * factor ** (place + 2) for place, value in enumerate(_EXPM1)]
    first = rest if factor == 1.0 else e.b.fmul(rest, constant(x, factor))
    above = vector.multiply_add(e, square, _by_pairs(e, rest, square, higher), first)
    return above, _power(e, number, x)


def _reduce(
    e: Emitter,
    x: ir.Value,
    bias: int,
    unit: float = 1.0,
    parts: Sequence[float] = _LN2_PARTS,
) -> tuple[ir.Value, ir.Value]:
    """(r, n + bias) with x = r + n * unit * ln(2) and minimal |r|. ``unit`` is a power of two of
    any sign. The number is an i32 whose lowest 22 bits are significant. ``parts`` sum up to
    ln(2)."""
    shift = constant(x, ROUNDING_SHIFT + bias)
    shifted = vector.multiply_add(e, x, constant(x, 1.0 / (unit * _LN2)), shift)
    rest = _subtract(e, x, e.b.fsub(shifted, shift), [unit * part for part in parts])
    return rest, e.b.bitcast(shifted, vector.vector_type(I32, x.type.count))


def _subtract(e: Emitter, x: ir.Value, number: ir.Value, parts: Sequence[float]) -> ir.Value:
    """x - number * parts[0] - number * parts[1] - ..."""
    for part in parts:
        x = vector.multiply_add(e, number, constant(x, -part), x)
    return x


def _power(e: Emitter, number: ir.Value, x: ir.Value) -> ir.Value:
    """2^n from the integers n + _BIAS in 1 ... 254, and 0 from 0, as vectors like x."""
    places = vector.splat_constant(number.type, 23)
    return e.b.bitcast(e.b.shl(number, places), x.type)


def _by_pairs(e: Emitter, x: ir.Value, square: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """`polynomial` in steps of x^2, which halves the dependency chain."""
    *pairs, last = (coefficients[n : n + 2] for n in range(0, len(coefficients), 2))
    total = polynomial(e, x, last)
    for pair in reversed(pairs):
        total = vector.multiply_add(e, total, square, polynomial(e, x, pair))
    return total
