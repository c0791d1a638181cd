"""The gradients of the eltwise algorithms as IR: one row each.

A row takes the gradient of the result and the data of the forward pass: its source, or its result
for the algorithms ``_use_dst_for_bwd``. Where the true derivative is finite, no large or infinite
source makes a NaN: what vanishes is a power of e^-|s|, and what it is multiplied with is held.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from llvmlite import ir

from dnnl.codegen.functions.eltwise import GELU_CUBIC, GELU_SLOPE, affine, times
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter
from dnnl.codegen.math import f32 as functions
from dnnl.types.kinds import Alg

Gradient = Callable[[Emitter, ir.Value, ir.Value, float, float], ir.Value]
Derivative = Callable[[Emitter, ir.Value, float, float], ir.Value]

_DENSITY_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)
# From here on e^-s is 0, and gates are 0 and 1.
_VANISHED = 750.0
# Both forms of gelu, and mish, have the slope 0 or 1 beyond; all their terms are finite here.
_STRAIGHT = 40.0


def backward(
    e: Emitter, alg: Alg, diff: ir.Value, data: ir.Value, alpha: float, beta: float
) -> ir.Value:
    """diff * f'(data) on each lane; eltwise_round has no derivative."""
    return _BACKWARD[alg](e, diff, data, alpha, beta)


def _where(e: Emitter, condition: ir.Value, value: ir.Value, other: float = 0.0) -> ir.Value:
    return e.b.select(condition, value, functions.constant(value, other))


def _above(e: Emitter, value: ir.Value, low: float) -> ir.Value:
    return e.b.fcmp_ordered(">", value, functions.constant(value, low))


def _below(e: Emitter, value: ir.Value, high: float, operator: str = "<") -> ir.Value:
    return e.b.fcmp_ordered(operator, value, functions.constant(value, high))


def _product(derivative: Derivative) -> Gradient:
    """The gradient of what has its derivative written out."""
    return lambda e, diff, data, a, b: e.b.fmul(diff, derivative(e, data, a, b))


def _shrunk(e: Emitter, x: ir.Value) -> ir.Value:
    """e^-|x|."""
    return functions.exp_of_negative(e, e.b.fneg(functions.absolute(e, x)))


def _logistic_slope(e: Emitter, x: ir.Value) -> ir.Value:
    """The derivative of the logistic function, with all its digits where that comes close to 1."""
    shrunk = _shrunk(e, x)
    rest = functions.reciprocal(e, e.b.fadd(shrunk, functions.constant(x, 1.0)))
    return e.b.fmul(e.b.fmul(shrunk, rest), rest)


def _gate(e: Emitter, x: ir.Value, steepness: ir.Value) -> ir.Value:
    """g + steepness * g * (1 - g) with the gate g = logistic(x), where steepness is finite: the
    derivative of s * g if it is s times that of x."""
    shrunk = _shrunk(e, x)
    one = functions.constant(x, 1.0)
    rest = functions.reciprocal(e, e.b.fadd(shrunk, one))
    nearer = e.b.select(_below(e, x, 0.0), shrunk, one)
    share = e.b.fmul(e.b.fmul(steepness, shrunk), rest)
    return e.b.fmul(rest, e.b.fadd(nearer, share))


def _tanh(e: Emitter, s: ir.Value, _a: float, _b: float) -> ir.Value:
    slope = _logistic_slope(e, e.b.fadd(s, s))
    return e.b.fmul(slope, functions.constant(s, 4.0))


def _one_less_square(e: Emitter, d: ir.Value, _a: float, _b: float) -> ir.Value:
    one = functions.constant(d, 1.0)
    return e.b.fmul(e.b.fsub(one, d), e.b.fadd(one, d))


def _logistic_from_dst(e: Emitter, d: ir.Value, _a: float, _b: float) -> ir.Value:
    return e.b.fmul(d, e.b.fsub(functions.constant(d, 1.0), d))


def _swish(e: Emitter, s: ir.Value, alpha: float, _: float) -> ir.Value:
    x = functions.clamp(e, times(e, s, alpha), -_VANISHED, _VANISHED)
    return _gate(e, x, x)


def _gelu_tanh(e: Emitter, s: ir.Value, _a: float, _b: float) -> ir.Value:
    # s * logistic(x) as in the forward pass, with x = c s + d s^3.
    s = functions.clamp(e, s, -_STRAIGHT, _STRAIGHT)
    square = e.b.fmul(s, s)
    linear, cubic = 2.0 * GELU_SLOPE, 2.0 * GELU_SLOPE * GELU_CUBIC
    x = e.b.fmul(s, functions.polynomial(e, square, (linear, cubic)))
    steepness = e.b.fmul(s, functions.polynomial(e, square, (linear, 3.0 * cubic)))
    return _gate(e, x, steepness)


def _gelu_erf(e: Emitter, s: ir.Value, _a: float, _b: float) -> ir.Value:
    s = functions.clamp(e, s, -_STRAIGHT, _STRAIGHT)
    half = e.b.fmul(s, functions.constant(s, -0.5))
    density = functions.exp_of_negative(e, e.b.fmul(s, half))
    steep = e.b.fmul(s, functions.constant(s, _DENSITY_AT_ZERO))
    return vector.multiply_add(e, steep, density, functions.normal_cdf(e, s))


def _mish(e: Emitter, s: ir.Value, _a: float, _b: float) -> ir.Value:
    # With w = e^s and n = (1 + w)^2 - 1, tanh(ln(1 + w)) is n / (n + 2).
    s = functions.clamp(e, s, -_VANISHED, _STRAIGHT)
    one, two = functions.constant(s, 1.0), functions.constant(s, 2.0)
    grown = functions.exp(e, s)
    numerator = e.b.fmul(grown, e.b.fadd(grown, two))
    rest = functions.reciprocal(e, e.b.fadd(numerator, two))
    slope = e.b.fmul(e.b.fmul(grown, e.b.fadd(grown, one)), functions.constant(s, 4.0))
    share = e.b.fmul(e.b.fmul(s, slope), rest)
    return e.b.fmul(rest, e.b.fadd(numerator, share))


def _pow(e: Emitter, diff: ir.Value, s: ir.Value, alpha: float, beta: float) -> ir.Value:
    if beta == 0.0:
        return functions.constant(diff, 0.0)
    slope = functions.power(e, s, beta - 1.0)
    return e.b.fmul(diff, times(e, slope, alpha * beta))


def _relu(e: Emitter, diff: ir.Value, data: ir.Value, alpha: float, _: float) -> ir.Value:
    return e.b.select(_above(e, data, 0.0), diff, _scaled(e, diff, alpha))


def _scaled(e: Emitter, diff: ir.Value, factor: float) -> ir.Value:
    return functions.constant(diff, 0.0) if factor == 0.0 else times(e, diff, factor)


def _elu(e: Emitter, diff: ir.Value, s: ir.Value, alpha: float, _: float) -> ir.Value:
    grown = functions.exp_of_negative(e, functions.at_most(e, s, 0.0))
    return e.b.select(_above(e, s, 0.0), diff, e.b.fmul(diff, times(e, grown, alpha)))


def _elu_from_dst(e: Emitter, diff: ir.Value, d: ir.Value, alpha: float, _: float) -> ir.Value:
    negative = e.b.fmul(diff, e.b.fadd(d, functions.constant(d, alpha)))
    return e.b.select(_above(e, d, 0.0), diff, negative)


def _square(e: Emitter, diff: ir.Value, s: ir.Value, _a: float, _b: float) -> ir.Value:
    half = e.b.fmul(diff, s)
    return e.b.fadd(half, half)


def _abs(e: Emitter, diff: ir.Value, s: ir.Value, _a: float, _b: float) -> ir.Value:
    # The product is zero, or NaN.
    other = e.b.select(_below(e, s, 0.0), e.b.fneg(diff), e.b.fmul(diff, s))
    return e.b.select(_above(e, s, 0.0), diff, other)


def _half_over(e: Emitter, diff: ir.Value, root: ir.Value) -> ir.Value:
    return e.b.fdiv(e.b.fmul(diff, functions.constant(diff, 0.5)), root)


def _hardsigmoid(e: Emitter, diff: ir.Value, s: ir.Value, alpha: float, beta: float) -> ir.Value:
    gate = affine(e, s, alpha, beta)
    inside = e.b.and_(_above(e, gate, 0.0), _below(e, gate, 1.0))
    return _where(e, inside, _scaled(e, diff, alpha))


def _hardswish(e: Emitter, diff: ir.Value, s: ir.Value, alpha: float, beta: float) -> ir.Value:
    gate = affine(e, s, alpha, beta)
    slope = e.b.fmul(diff, affine(e, s, 2.0 * alpha, beta))
    inside = e.b.select(_below(e, gate, 1.0), slope, diff)
    return _where(e, _above(e, gate, 0.0), inside)


def _clip(high: str) -> Gradient:
    """That of a clip whose upper end belongs to it or, with ``<``, does not."""

    def gradient(e: Emitter, diff: ir.Value, x: ir.Value, alpha: float, beta: float) -> ir.Value:
        return _where(e, e.b.and_(_above(e, x, alpha), _below(e, x, beta, high)), diff)

    return gradient


_BACKWARD: dict[Alg, Gradient] = {
    Alg.eltwise_relu: _relu,
    Alg.eltwise_tanh: _product(_tanh),
    Alg.eltwise_elu: _elu,
    Alg.eltwise_square: _square,
    Alg.eltwise_abs: _abs,
    Alg.eltwise_sqrt: lambda e, diff, s, _a, _b: _half_over(e, diff, functions.square_root(e, s)),
    Alg.eltwise_linear: lambda e, diff, _s, a, _b: times(e, diff, a),
    Alg.eltwise_soft_relu: _product(lambda e, s, a, _: functions.logistic(e, times(e, s, a))),
    Alg.eltwise_hardsigmoid: _hardsigmoid,
    Alg.eltwise_logistic: _product(lambda e, s, _a, _b: _logistic_slope(e, s)),
    Alg.eltwise_exp: _product(lambda e, s, _a, _b: functions.exp(e, s)),
    Alg.eltwise_log: lambda e, diff, s, _a, _b: e.b.fdiv(diff, s),
    Alg.eltwise_gelu_tanh: _product(_gelu_tanh),
    Alg.eltwise_gelu_erf: _product(_gelu_erf),
    Alg.eltwise_swish: _product(_swish),
    Alg.eltwise_clip: _clip("<="),
    Alg.eltwise_clip_v2: _clip("<"),
    Alg.eltwise_pow: _pow,
    Alg.eltwise_mish: _product(_mish),
    Alg.eltwise_hardswish: _hardswish,
    Alg.eltwise_relu_use_dst_for_bwd: _relu,
    Alg.eltwise_tanh_use_dst_for_bwd: _product(_one_less_square),
    Alg.eltwise_elu_use_dst_for_bwd: _elu_from_dst,
    Alg.eltwise_sqrt_use_dst_for_bwd: lambda e, diff, d, _a, _b: _half_over(e, diff, d),
    Alg.eltwise_logistic_use_dst_for_bwd: _product(_logistic_from_dst),
    Alg.eltwise_exp_use_dst_for_bwd: lambda e, diff, d, _a, _b: e.b.fmul(diff, d),
    Alg.eltwise_clip_v2_use_dst_for_bwd: _clip("<"),
}
