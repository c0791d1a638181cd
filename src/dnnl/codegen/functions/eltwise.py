"""The eltwise algorithms as IR: one row each.

NaN gives NaN. At -inf, a product of the source with a vanishing factor (gelu, swish, mish,
hardswish) is NaN, as the formula says.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter
from dnnl.codegen.math import f32 as functions
from dnnl.types.kinds import Alg

Function = Callable[[Emitter, ir.Value, float, float], ir.Value]

_INSTRUCTIONS = {
    Alg.eltwise_relu: 2,
    Alg.eltwise_abs: 1,
    Alg.eltwise_square: 1,
    Alg.eltwise_sqrt: 1,
    Alg.eltwise_linear: 1,
    Alg.eltwise_clip: 2,
    Alg.eltwise_clip_v2: 2,
    Alg.eltwise_round: 1,
    Alg.eltwise_hardsigmoid: 3,
    Alg.eltwise_hardswish: 4,
}
LONG = 20
"""About the instructions of any other algorithm."""

GELU_SLOPE = math.sqrt(2.0 / math.pi)
GELU_CUBIC = 0.044715


def forward(e: Emitter, alg: Alg, value: ir.Value, alpha: float, beta: float) -> ir.Value:
    """The function of ``alg`` on each lane of an f32 vector.

    An algorithm ``_use_dst_for_bwd`` computes what its namesake does.
    """
    return _FORWARD[alg](e, value, alpha, beta)


def instructions(alg: Alg) -> int:
    """About how many instructions an algorithm takes."""
    return _INSTRUCTIONS.get(alg, LONG)


def times(e: Emitter, value: ir.Value, factor: float) -> ir.Value:
    """value * factor, of which 1 is left out."""
    if factor == 1.0:
        return value
    return e.b.fmul(value, functions.constant(value, factor))


def affine(e: Emitter, value: ir.Value, alpha: float, beta: float) -> ir.Value:
    """alpha * value + beta."""
    if beta == 0.0:
        return times(e, value, alpha)
    slope, shift = functions.constant(value, alpha), functions.constant(value, beta)
    return vector.multiply_add(e, value, slope, shift)


def _relu(e: Emitter, value: ir.Value, alpha: float, _: float) -> ir.Value:
    if alpha == 0.0:
        return functions.at_least(e, value, 0.0)
    scaled = times(e, value, alpha)
    if 0.0 < alpha <= 1.0:
        return vector.maximum(e, scaled, value)
    positive = e.b.fcmp_ordered(">", value, functions.constant(value, 0.0))
    return e.b.select(positive, value, scaled)


def _elu(e: Emitter, value: ir.Value, alpha: float, _: float) -> ir.Value:
    # One of the two terms is 0.
    negative = functions.expm1_of_negative(e, value)
    positive = functions.at_least(e, value, 0.0)
    return vector.multiply_add(e, negative, functions.constant(value, alpha), positive)


def _hardsigmoid(e: Emitter, value: ir.Value, alpha: float, beta: float) -> ir.Value:
    return functions.clamp(e, affine(e, value, alpha, beta), 0.0, 1.0)


def _gelu_tanh(e: Emitter, value: ir.Value, _alpha: float, _beta: float) -> ir.Value:
    # (1 + tanh y) / 2 is logistic(2 y), which loses nothing where tanh y comes close to -1.
    factors = (2.0 * GELU_SLOPE, 2.0 * GELU_SLOPE * GELU_CUBIC)
    factor = functions.polynomial(e, e.b.fmul(value, value), factors)
    return e.b.fmul(value, functions.logistic(e, e.b.fmul(value, factor)))


def _clip(e: Emitter, value: ir.Value, alpha: float, beta: float) -> ir.Value:
    return functions.clamp(e, value, alpha, beta)


_FORWARD: dict[Alg, Function] = {
    Alg.eltwise_relu: _relu,
    Alg.eltwise_tanh: lambda e, s, _a, _b: functions.tanh(e, s),
    Alg.eltwise_elu: _elu,
    Alg.eltwise_square: lambda e, s, _a, _b: e.b.fmul(s, s),
    Alg.eltwise_abs: lambda e, s, _a, _b: functions.absolute(e, s),
    Alg.eltwise_sqrt: lambda e, s, _a, _b: functions.square_root(e, s),
    Alg.eltwise_linear: affine,
    Alg.eltwise_soft_relu: lambda e, s, a, _: functions.softplus(e, s, a),
    Alg.eltwise_hardsigmoid: _hardsigmoid,
    Alg.eltwise_logistic: lambda e, s, _a, _b: functions.logistic(e, s),
    Alg.eltwise_exp: lambda e, s, _a, _b: functions.exp(e, s),
    Alg.eltwise_log: lambda e, s, _a, _b: functions.log(e, s),
    Alg.eltwise_gelu_tanh: _gelu_tanh,
    Alg.eltwise_gelu_erf: lambda e, s, _a, _b: e.b.fmul(s, functions.normal_cdf(e, s)),
    Alg.eltwise_swish: lambda e, s, a, _: e.b.fmul(s, functions.logistic(e, times(e, s, a))),
    Alg.eltwise_clip: _clip,
    Alg.eltwise_clip_v2: _clip,
    Alg.eltwise_pow: lambda e, s, a, b: times(e, functions.power(e, s, b), a),
    Alg.eltwise_round: lambda e, s, _a, _b: functions.round_to_even(e, s),
    Alg.eltwise_mish: lambda e, s, _a, _b: e.b.fmul(s, functions.tanh_of_softplus(e, s)),
    Alg.eltwise_hardswish: lambda e, s, a, b: e.b.fmul(s, _hardsigmoid(e, s, a, b)),
}
_FORWARD |= {
    alg: _FORWARD[Alg[alg.name.removesuffix("_use_dst_for_bwd")]] for alg in Alg if alg.uses_dst
}
