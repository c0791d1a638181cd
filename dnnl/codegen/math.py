"""Elementary functions of f32 vectors, written out: no call is left for any target.

Those of f64 vectors are in ``math_f64`` where they differ, and are found by the names of here.

NaN gives NaN, infinities give their limits, and results below the smallest normal number are
denormal. Errors are those over all f32 values where the target has a fused multiply-add, in ulps
of the result; they grow by about one ulp where it has none. The polynomials are minimax fits: the
coefficients, lowest power first, are rounded to f32, and the comment of each says over which
interval and with which relative error it holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen import exponent, math_f64, vector
from dnnl.codegen.arithmetic import (
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
from dnnl.codegen.builder import F64, I32, I64, Emitter

__all__ = [
    "absolute", "at_least", "at_most", "clamp", "constant", "copy_sign", "erf", "exp",
    "exp_of_negative", "expm1_of_negative", "log", "logistic", "normal_cdf", "polynomial",
    "power", "reciprocal", "reciprocal_root", "round_to_even", "rounded_bits", "softplus",
    "square_root", "tanh", "tanh_of_softplus",
]  # fmt: skip

_LN2 = math.log(2.0)
# ln 2 in two parts: the first has so few digits that its product with an exponent is exact.
_LN2_HIGH = 0.693359375
_LN2_LOW = _LN2 - _LN2_HIGH

# e^x is 0 below the one and inf above the other.
_EXP_LOW, _EXP_HIGH = -104.0, 89.0
# e^x is a normal number from here on.
_EXP_NORMAL = -87.0
# The nearest power of two to e^x is 2^-127.
_EXP_VANISHES = -88.0

# e^x = 1 + x + x^2 p(x): |x| <= ln(2)/2, 2^-23.1.
_EXP = (4.9999225e-01, 1.6667119e-01, 4.189099e-02, 8.312431e-03)
# e^x = 1 + x + x^2 p(x): |x| <= ln(2), 2^-25.4.
_EXP_WIDE = (
    5.0000036e-01, 1.6666614e-01, 4.1661236e-02, 8.33612e-03, 1.4105091e-03, 1.9610836e-04,
)  # fmt: skip
# e^x - 1 = x + x^2 p(x): |x| <= ln(2)/2, 2^-25.8.
_EXPM1 = (4.9999997e-01, 1.6666542e-01, 4.1667204e-02, 8.366647e-03, 1.3882497e-03)
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
# tanh x = x p(x^2) / q(x^2): |x| <= 9.02, 2^-24.1.
_TANH_LIMIT = 9.02
_TANH = (
    (1.0, 1.3379718e-01, 3.4940343e-03, 2.0583477e-05, 1.3319066e-08),
    (1.0, 4.6713033e-01, 2.5871072e-02, 3.2830922e-04, 7.762017e-07),
)
# erf x = x p(x^2) / q(x^2): |x| <= 3.93, 2^-24.1.
_ERF_LIMIT = 3.93
_ERF = (
    (1.1283791e00, 1.9078264e-01, 5.2790135e-02, 3.779561e-03, 2.8480805e-04, 2.0419861e-06),
    (1.0, 5.024094e-01, 1.1425704e-01, 1.499734e-02, 1.1652021e-03, 3.8004207e-05),
)
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
    """e^x; 2 ulps."""
    if _is_f64(x):
        return math_f64.exp(e, x)
    return _exp(e, clamp(e, x, _EXP_LOW, _EXP_HIGH))


def exp_of_negative(e: Emitter, x: ir.Value) -> ir.Value:
    """e^x for -87 <= x <= 0, and 0 below -88; 2 ulps.

    Where most elements vanish, as behind the mask of an attention, denormal results would cost
    processors ten times as much as all the rest.
    """
    if _is_f64(x):
        return math_f64.exp(e, x)
    if exponent.is_native(e, x.type):
        low = constant(x, _EXP_NORMAL)
        vanishing = e.b.fcmp_ordered("<", x, low)
        return e.b.select(vanishing, constant(x, 0.0), _exp(e, vector.maximum(e, low, x)))
    # From here on down the bits of the power are those of 0.
    rest, power = _reduce(e, vector.maximum(e, constant(x, _EXP_VANISHES), x), 1)
    return e.b.fmul(polynomial(e, rest, (1.0, 1.0, *_EXP)), power)


def expm1_of_negative(e: Emitter, x: ir.Value) -> ir.Value:
    """e^x - 1 for x <= 0, and 0 for positive x; 2 ulps."""
    if _is_f64(x):
        return math_f64.expm1_of_negative(e, x)
    x = clamp(e, x, -18.0, 0.0)  # e^-18 is lost beside 1
    rest, power = _reduce(e, x, 1)
    rest = _powers_from_first(e, rest, _EXPM1)
    return vector.multiply_add(e, rest, power, e.b.fsub(power, constant(x, 1.0)))


def log(e: Emitter, x: ir.Value) -> ir.Value:
    """The natural logarithm: -inf for zero, NaN for negative values; 2 ulps."""
    if _is_f64(x):
        return math_f64.log(e, x)
    mantissa, power = exponent.split(e, x)
    rest = _powers_from_first(e, e.b.fsub(mantissa, constant(x, 1.0)), _LOG)
    return vector.multiply_add(e, power, constant(x, _LN2), rest)


def tanh(e: Emitter, x: ir.Value) -> ir.Value:
    """The hyperbolic tangent; 6 ulps, and at most 1."""
    if _is_f64(x):
        return math_f64.tanh(e, x)
    return _saturating(e, x, _TANH_LIMIT, *_TANH)


def erf(e: Emitter, x: ir.Value) -> ir.Value:
    """The error function; 6 ulps, and at most 1."""
    if _is_f64(x):
        return math_f64.erf(e, x)
    return _saturating(e, x, _ERF_LIMIT, *_ERF)


def normal_cdf(e: Emitter, x: ir.Value) -> ir.Value:
    """(1 + erf(x / sqrt 2)) / 2, the distribution function of the normal distribution.

    The error is 16 ulps down to x = -2 and 32 down to x = -5; it is 2^-13 of the value at x = -6,
    which is 1e-9, and grows from there on.
    """
    # The tail on the side of x is never the difference of two large numbers.
    size = absolute(e, x)
    tail = math_f64.normal_tail(e, size) if _is_f64(x) else _normal_tail(e, size)
    negative = e.b.fcmp_ordered("<", x, constant(x, 0.0))
    return e.b.select(negative, tail, e.b.fsub(constant(x, 1.0), tail))


def _normal_tail(e: Emitter, size: ir.Value) -> ir.Value:
    """(1 - erf(size / sqrt 2)) / 2."""
    excess = e.b.fmul(size, polynomial(e, size, _TAIL))
    # (1 + excess)^2; rounding 1 + excess first would cost what the powers then magnify.
    one, two = constant(size, 1.0), constant(size, 2.0)
    power = vector.multiply_add(e, excess, e.b.fadd(excess, two), one)
    for _ in range(3):
        power = e.b.fmul(power, power)
    return e.b.fdiv(constant(size, 0.5), power)


def logistic(e: Emitter, x: ir.Value) -> ir.Value:
    """1 / (1 + e^-x); 4 ulps."""
    grown = _exp_up_to(e, x, 40.0)  # from there on the result is 1
    return e.b.fdiv(grown, e.b.fadd(grown, constant(x, 1.0)))


def tanh_of_softplus(e: Emitter, x: ir.Value) -> ir.Value:
    """tanh(ln(1 + e^x)); 6 ulps."""
    # With w = e^x it is ((1 + w)^2 - 1) / ((1 + w)^2 + 1).
    grown = _exp_up_to(e, x, 40.0)
    two = constant(x, 2.0)
    numerator = e.b.fmul(grown, e.b.fadd(grown, two))
    return e.b.fdiv(numerator, e.b.fadd(numerator, two))


def softplus(e: Emitter, x: ir.Value, slope: float = 1.0) -> ir.Value:
    """ln(1 + e^(slope * x)) / slope; 3 ulps where slope is 1."""
    steep = x if slope == 1.0 else e.b.fmul(x, constant(x, slope))
    # The asymptote is exact, and what is added to it never large.
    asymptote = at_least(e, x, 0.0) if slope >= 0.0 else at_most(e, x, 0.0)
    above = _log1p(e, _exp_up_to(e, e.b.fneg(absolute(e, steep))))
    if slope == 1.0:
        return e.b.fadd(above, asymptote)
    inverse = 1.0 / slope if slope else math.inf
    return vector.multiply_add(e, above, constant(x, inverse), asymptote)


def _log1p(e: Emitter, x: ir.Value) -> ir.Value:
    """ln(1 + x) for 0 <= x <= 1."""
    return math_f64.log1p(e, x) if _is_f64(x) else _powers_from_first(e, x, _LOG1P)


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
        root = e.b.fadd(square_root(e, x), constant(x, 0.0))  # -0 becomes 0, as powers have it
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
    """2^(to * log2 x) by way of f64, as ``to`` is: the rounding errors of a logarithm in f32 would
    become large relative errors of the power. NaN for negative x. Those of an f64 are as large as
    its logarithm times ``to``."""
    if _is_f64(x):
        return math_f64.exp(e, e.b.fmul(math_f64.log(e, x), to))
    wide = vector.vector_type(F64, x.type.count)
    bits = vector.vector_type(I64, x.type.count)
    mantissa, scale = (e.b.fpext(part, wide) for part in exponent.split(e, x))
    one = vector.splat_constant(wide, 1.0)
    ratio = e.b.fdiv(e.b.fsub(mantissa, one), e.b.fadd(mantissa, one))
    series = polynomial(e, e.b.fmul(ratio, ratio), _LOG2)
    logarithm = vector.multiply_add(e, ratio, series, scale)
    # Beyond the limits f32 has no more than 0 and inf, and f64 still has normal numbers.
    target = clamp(e, e.b.fmul(logarithm, to), -200.0, 200.0)
    # As in _reduce, for f64.
    shift = vector.splat_constant(wide, 1.5 * 2.0**52 + 1023.0)
    shifted = e.b.fadd(target, shift)
    rest = e.b.fsub(target, e.b.fsub(shifted, shift))
    places = vector.splat_constant(bits, 52)
    whole = e.b.bitcast(e.b.shl(e.b.bitcast(shifted, bits), places), wide)
    return e.b.fptrunc(e.b.fmul(polynomial(e, rest, _EXP2), whole), x.type)


def _exp_up_to(e: Emitter, x: ir.Value, high: float | None = None) -> ir.Value:
    """e^x, of ``high`` where x is more; without ``high`` x is not positive."""
    if high is not None:
        x = at_most(e, x, high)
    return math_f64.exp(e, x) if _is_f64(x) else _exp(e, at_least(e, x, _EXP_LOW))


def _exp(e: Emitter, x: ir.Value) -> ir.Value:
    """e^x for x from _EXP_LOW to _EXP_HIGH."""
    if exponent.is_native(e, x.type):
        shift = constant(x, ROUNDING_SHIFT)
        number = e.b.fsub(vector.multiply_add(e, x, constant(x, 1.0 / _LN2), shift), shift)
        rest = _subtract_ln2(e, x, number, 1)
        value = polynomial(e, rest, (1.0, 1.0, *_EXP))
        return exponent.scale(e, value, number)
    # A power of two for the square root of the result: it is a normal number where the result is
    # denormal or, as an intermediate one, too large, and two products round only once.
    rest, power = _reduce(e, x, 2)
    value = polynomial(e, rest, (1.0, 1.0, *_EXP_WIDE))
    return e.b.fmul(e.b.fmul(value, power), power)


def _reduce(e: Emitter, x: ir.Value, factor: int) -> tuple[ir.Value, ir.Value]:
    """(r, 2^n) with x = r + n * factor * ln(2) and the smallest |r|; -126 <= n <= 127, and
    0 instead of 2^-127."""
    # With the bias of exponents added, those bits are the exponent of the power.
    shift = constant(x, ROUNDING_SHIFT + 127.0)
    shifted = vector.multiply_add(e, x, constant(x, 1.0 / (factor * _LN2)), shift)
    rest = _subtract_ln2(e, x, e.b.fsub(shifted, shift), factor)
    integers = vector.vector_type(I32, x.type.count)
    places = vector.splat_constant(integers, 23)
    return rest, e.b.bitcast(e.b.shl(e.b.bitcast(shifted, integers), places), x.type)


def _subtract_ln2(e: Emitter, x: ir.Value, number: ir.Value, factor: int) -> ir.Value:
    """x - number * factor * ln(2), as if ln(2) were exact."""
    rest = vector.multiply_add(e, number, constant(x, -factor * _LN2_HIGH), x)
    return vector.multiply_add(e, number, constant(x, -factor * _LN2_LOW), rest)


def _powers_from_first(e: Emitter, x: ir.Value, higher: Sequence[float]) -> ir.Value:
    """x + higher[0] * x^2 + higher[1] * x^3 + ..., as precise as x where x is small."""
    return vector.multiply_add(e, e.b.fmul(x, x), polynomial(e, x, higher), x)


def _saturating(
    e: Emitter, x: ir.Value, limit: float, numerator: Sequence[float], denominator: Sequence[float]
) -> ir.Value:
    """x * p(x^2) / q(x^2), within -1 ... 1 and at its end for |x| > limit, where it comes to 1."""
    # With the square held, the quotient of what lies beyond the limit grows on with x.
    square = at_most(e, e.b.fmul(x, x), limit * limit)
    above = e.b.fmul(x, polynomial(e, square, numerator))
    return clamp(e, e.b.fdiv(above, polynomial(e, square, denominator)), -1.0, 1.0)
