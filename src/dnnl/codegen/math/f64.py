"""Elementary functions of f64 vectors. Errors are a few ulps; limits are those of `math.f32`."""

from __future__ import annotations

import math

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I64, Emitter
from dnnl.codegen.math import exponent
from dnnl.codegen.math.arithmetic import absolute, at_most, clamp, constant, copy_sign, polynomial

_LN2 = math.log(2.0)
# ln 2 in two parts. The first has so few digits that its product with an exponent is exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
# e^x is 0 below the first limit and inf above the second.
_EXP_LOW, _EXP_HIGH = -746.0, 710.0
# The exponent bias is included, so the lowest bits of the sum are the exponent of a power of two.
_SHIFT = 1.5 * 2.0**52 + 1023.0
_UPPER_HALF = ~0x7FFFFFF
# e^x: |x| <= ln(2), 2^-62.
_EXP = tuple(1.0 / math.factorial(power) for power in range(18))
# e^x - 1 = x + x^2 p(x): |x| <= ln(2)/2, 2^-60.
_EXPM1 = tuple(1.0 / math.factorial(power) for power in range(2, 15))
# ln((1 + s) / (1 - s)) = 2 s + 2 s^3 p(s^2): |s| <= 1/5 and 1/3, 2^-59.
_LOG = tuple(1.0 / power for power in range(3, 27, 2))
_LOG1P = tuple(1.0 / power for power in range(3, 39, 2))
# (1 - erf(x / sqrt 2)) / 2 = t e^(-x^2 / 2) p(2 t - 1) with t = 4 / (4 + x): x >= 0, 2^-51.
_TAIL = (
    0.18882128260393785, 0.15197416049297302, 0.09678435018555673, 0.04663046448991294,
    0.01509914372258702, 0.0018850472417491558, -0.0008699230891126944, -0.0004077046156947422,
    3.333605188788428e-05, 5.777374668713712e-05, -4.769171283300536e-07, -8.78624703290086e-06,
    1.7864506480482754e-07, 1.480322355528757e-06, -1.5622854202251649e-07,
    -2.560592247141351e-07, 6.617114031617589e-08, 3.979109847948726e-08, -1.9686736076177096e-08,
    -4.3547812948647285e-09, 4.012985628570631e-09, 1.0443709631083569e-10,
    -4.214620484319719e-10, 3.7341198774887576e-11,
)  # fmt: skip
# erf x = x p(x^2): |x| <= 1, 2^-60.
_ERF = tuple(
    2.0 / math.sqrt(math.pi) * (-1.0) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(19)
)


def exp(e: Emitter, x: ir.Value) -> ir.Value:
    """e^x."""
    # Two factors: the power may be denormal, or overflow before the last product.
    rest, power = _reduce(e, clamp(e, x, _EXP_LOW, _EXP_HIGH), 2)
    return e.b.fmul(e.b.fmul(polynomial(e, rest, _EXP), power), power)


def expm1_of_negative(e: Emitter, x: ir.Value) -> ir.Value:
    """e^x - 1 for x <= 0, and 0 for positive x."""
    rest, power = _reduce(e, clamp(e, x, -40.0, 0.0), 1)  # e^-40 vanishes beside 1
    rest = vector.multiply_add(e, e.b.fmul(rest, rest), polynomial(e, rest, _EXPM1), rest)
    return vector.multiply_add(e, rest, power, e.b.fsub(power, constant(x, 1.0)))


def log(e: Emitter, x: ir.Value) -> ir.Value:
    """The natural logarithm: -inf for zero, NaN for negative values."""
    mantissa, power = exponent.split(e, x)
    above = e.b.fsub(mantissa, constant(x, 1.0))
    rest = _log_by_ratio(e, above, _LOG)
    low = vector.multiply_add(e, power, constant(x, _LN2_LOW), rest)
    # With an infinite power the second part would be NaN.
    return vector.multiply_add(e, power, constant(x, _LN2_HIGH), low)


def log1p(e: Emitter, x: ir.Value) -> ir.Value:
    """ln(1 + x) for 0 <= x <= 1."""
    return _log_by_ratio(e, x, _LOG1P)


def tanh(e: Emitter, x: ir.Value) -> ir.Value:
    """The hyperbolic tangent, at most 1."""
    shrunk = expm1_of_negative(e, e.b.fmul(absolute(e, x), constant(x, -2.0)))
    return copy_sign(e, e.b.fdiv(shrunk, e.b.fadd(shrunk, constant(x, 2.0))), x)


def normal_tail(e: Emitter, x: ir.Value) -> ir.Value:
    """(1 - erf(x / sqrt 2)) / 2 for x >= 0: the weight of the normal distribution above x."""
    x = at_most(e, x, 40.0)  # the tail is 0 there
    four = constant(x, 4.0)
    share = e.b.fdiv(four, e.b.fadd(x, four))
    place = e.b.fsub(e.b.fadd(share, share), constant(x, 1.0))
    factor = e.b.fmul(share, polynomial(e, place, _TAIL))
    # The square of the upper half of the digits is exact, and the rest of x^2 / 2 is small.
    integers = vector.vector_type(I64, x.type.count)
    mask = vector.splat_constant(integers, _UPPER_HALF)
    upper = e.b.bitcast(e.b.and_(e.b.bitcast(x, integers), mask), x.type)
    half = constant(x, -0.5)
    left = e.b.fmul(e.b.fmul(e.b.fsub(x, upper), e.b.fadd(x, upper)), half)
    density = exp(e, e.b.fmul(e.b.fmul(upper, upper), half))
    correction = polynomial(e, left, (1.0, 1.0, 0.5))
    return e.b.fmul(e.b.fmul(density, correction), factor)


def erf(e: Emitter, x: ir.Value) -> ir.Value:
    """The error function, at most 1."""
    size = absolute(e, x)
    near = e.b.fmul(size, polynomial(e, e.b.fmul(size, size), _ERF))
    tail = normal_tail(e, e.b.fmul(size, constant(x, math.sqrt(2.0))))
    far = e.b.fsub(constant(x, 1.0), e.b.fadd(tail, tail))
    below = e.b.fcmp_ordered("<", size, constant(x, 1.0))
    return copy_sign(e, e.b.select(below, near, far), x)


def _log_by_ratio(e: Emitter, above: ir.Value, coefficients: tuple[float, ...]) -> ir.Value:
    """ln(1 + above)."""
    ratio = e.b.fdiv(above, e.b.fadd(above, constant(above, 2.0)))
    square = e.b.fmul(ratio, ratio)
    twice = e.b.fadd(ratio, ratio)
    higher = e.b.fmul(square, polynomial(e, square, coefficients))
    return vector.multiply_add(e, twice, higher, twice)


def _reduce(e: Emitter, x: ir.Value, factor: int) -> tuple[ir.Value, ir.Value]:
    """(r, 2^n) with x = r + n * factor * ln(2) and minimal |r|."""
    shift = constant(x, _SHIFT)
    shifted = vector.multiply_add(e, x, constant(x, 1.0 / (factor * _LN2)), shift)
    number = e.b.fsub(shifted, shift)
    rest = vector.multiply_add(e, number, constant(x, -factor * _LN2_HIGH), x)
    rest = vector.multiply_add(e, number, constant(x, -factor * _LN2_LOW), rest)
    integers = vector.vector_type(I64, x.type.count)
    places = vector.splat_constant(integers, 52)
    return rest, e.b.bitcast(e.b.shl(e.b.bitcast(shifted, integers), places), x.type)
