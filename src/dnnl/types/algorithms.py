"""The algorithms of eltwise and binary, as functions of traced scalars: a row each.

A row says what an algorithm computes, and the range of its numbers. Where the derivative that
follows from it loses digits, is NaN where the true one is finite, or has other corners or more
steps than it needs, the row has a gradient as well.

NaN gives NaN. At -inf, a product of the source with a vanishing factor (gelu, swish, mish,
hardswish) is NaN, as the formula says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from dnnl.types.derivative import gradient_of
from dnnl.types.expression import Expression
from dnnl.types.kinds import Alg
from dnnl.types.scalar import Scalar, apply, trace

Forward = Callable[[Scalar, float, float], Scalar]
"""Of x, alpha, beta."""
Gradient = Callable[[Scalar, Scalar, float, float], Scalar | float]
"""Of the gradient of the result, x or the result, alpha, beta."""

_GELU_LINEAR = 2.0 * math.sqrt(2.0 / math.pi)
_GELU_CUBIC = 0.044715 * _GELU_LINEAR
_DENSITY_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)
# From here on e^-x is 0, and gates are 0 and 1.
_VANISHED = 750.0
# Both forms of gelu, and mish, have the slope 0 or 1 beyond; all their terms are finite here.
_STRAIGHT = 40.0


@dataclass(frozen=True)
class Algorithm:
    """``forward`` is the function. Without a ``gradient``, it is the product with its derivative.

    ``bounds``: alpha is not above beta. ``signed``: the gradient is made of the result, whose sign
    is that of x where alpha is not negative. ``steps``: there is no gradient.
    """

    forward: Forward
    gradient: Gradient | None = None
    bounds: bool = False
    signed: bool = False
    steps: bool = False


@lru_cache(maxsize=1024)
def eltwise(alg: Alg, alpha: float = 0.0, beta: float = 0.0) -> Expression:
    """An eltwise algorithm as a function of x."""
    return trace(lambda x: ELTWISE[alg].forward(x, alpha, beta), 1)


@lru_cache(maxsize=1024)
def eltwise_gradient(alg: Alg, alpha: float = 0.0, beta: float = 0.0) -> Expression:
    """The gradient of the source as a function of that of the result and of x; of the result in
    place of x for an algorithm ``_use_dst_for_bwd``."""
    given = ELTWISE[alg].gradient
    if given is None:
        return gradient_of(eltwise(alg, alpha, beta))
    return trace(lambda g, x: given(g, x, alpha, beta), 2)


@lru_cache(maxsize=64)
def binary(alg: Alg) -> Expression:
    """A binary algorithm as a function of both sources, and of the condition of
    ``binary_select``."""
    return trace(_BINARY[alg], 3 if alg is Alg.binary_select else 2)


def _times(x: Scalar, factor: float) -> Scalar:
    return x if factor == 1.0 else x * factor


def _affine(x: Scalar, alpha: float, beta: float) -> Scalar:
    """Without a sum where beta is 0, as a sum with 0 makes 0 of -0."""
    return x * alpha + beta if beta else _times(x, alpha)


def _at_least(x: Scalar, low: float) -> Scalar:
    return apply("maximum", low, x)


def _at_most(x: Scalar, high: float) -> Scalar:
    return apply("minimum", high, x)


def _relu(x: Scalar, alpha: float, _: float) -> Scalar:
    if alpha == 0.0:
        return _at_least(x, 0.0)
    scaled = _times(x, alpha)
    if 0.0 < alpha <= 1.0:
        return apply("maximum", scaled, x)
    return apply("where", x > 0.0, x, scaled)


def _relu_gradient(g: Scalar, x: Scalar, alpha: float, _: float) -> Scalar:
    return apply("where", x > 0.0, g, _times(g, alpha) if alpha else 0.0)


def _elu(x: Scalar, alpha: float, _: float) -> Scalar:
    # One of the two terms is 0.
    return _times(apply("expm1_of_negative", x), alpha) + _at_least(x, 0.0)


def _elu_gradient(g: Scalar, x: Scalar, alpha: float, _: float) -> Scalar:
    grown = apply("exp_of_negative", _at_most(x, 0.0))
    return apply("where", x > 0.0, g, g * _times(grown, alpha))


def _soft_relu(x: Scalar, alpha: float, _: float) -> Scalar:
    if alpha == 1.0:
        return apply("softplus", x)
    # The asymptote is exact, and what is added to it never large.
    steep = x * alpha
    asymptote = _at_least(x, 0.0) if alpha >= 0.0 else _at_most(x, 0.0)
    inverse = 1.0 / alpha if alpha else math.inf
    return apply("softplus_tail", steep) * inverse + asymptote


def _hardsigmoid(x: Scalar, alpha: float, beta: float) -> Scalar:
    return _at_most(_at_least(_affine(x, alpha, beta), 0.0), 1.0)


def _hardsigmoid_gradient(g: Scalar, x: Scalar, alpha: float, beta: float) -> Scalar:
    gate = _affine(x, alpha, beta)
    inside = (gate > 0.0) & (gate < 1.0)
    return apply("where", inside, _times(g, alpha) if alpha else 0.0, 0.0)


def _hardswish_gradient(g: Scalar, x: Scalar, alpha: float, beta: float) -> Scalar:
    gate = _affine(x, alpha, beta)
    inside = apply("where", gate < 1.0, g * _affine(x, 2.0 * alpha, beta), g)
    return apply("where", gate > 0.0, inside, 0.0)


def _gelu_tanh(x: Scalar, _alpha: float, _beta: float) -> Scalar:
    # (1 + tanh y) / 2 is sigmoid(2 y), which loses nothing where tanh y comes close to -1.
    factor = _GELU_CUBIC * (x * x) + _GELU_LINEAR
    return x * apply("sigmoid", x * factor)


def _gate_gradient(g: Scalar, x: Scalar, steepness: Scalar) -> Scalar:
    """That of s * sigmoid(x), where steepness, s times the derivative of x, is finite: what
    vanishes is e^-|x|."""
    shrunk = apply("exp_of_negative", -abs(x))
    rest = 1.0 / (shrunk + 1.0)
    nearer = apply("where", x < 0.0, shrunk, 1.0)
    return g * (rest * (steepness * shrunk * rest + nearer))


def _gelu_tanh_gradient(g: Scalar, x: Scalar, _alpha: float, _beta: float) -> Scalar:
    x = _at_most(_at_least(x, -_STRAIGHT), _STRAIGHT)
    square = x * x
    inner = x * (_GELU_CUBIC * square + _GELU_LINEAR)
    return _gate_gradient(g, inner, x * (3.0 * _GELU_CUBIC * square + _GELU_LINEAR))


def _gelu_erf_gradient(g: Scalar, x: Scalar, _alpha: float, _beta: float) -> Scalar:
    x = _at_most(_at_least(x, -_STRAIGHT), _STRAIGHT)
    density = apply("exp_of_negative", x * (x * -0.5))
    return g * (x * _DENSITY_AT_ZERO * density + apply("normal_cdf", x))


def _swish_gradient(g: Scalar, x: Scalar, alpha: float, _: float) -> Scalar:
    inner = _at_most(_at_least(_times(x, alpha), -_VANISHED), _VANISHED)
    return _gate_gradient(g, inner, inner)


def _mish_gradient(g: Scalar, x: Scalar, _alpha: float, _beta: float) -> Scalar:
    # With w = e^x and n = (1 + w)^2 - 1, tanh(ln(1 + w)) is n / (n + 2).
    x = _at_most(_at_least(x, -_VANISHED), _STRAIGHT)
    grown = apply("exp", x)
    numerator = grown * (grown + 2.0)
    rest = 1.0 / (numerator + 2.0)
    slope = grown * (grown + 1.0) * 4.0
    return g * (rest * (x * slope * rest + numerator))


def _clip(x: Scalar, alpha: float, beta: float) -> Scalar:
    return _at_most(_at_least(x, alpha), beta)


def _clip_gradient(g: Scalar, x: Scalar, alpha: float, beta: float) -> Scalar:
    """Without both ends."""
    return apply("where", (x > alpha) & (x < beta), g, 0.0)


ELTWISE: dict[Alg, Algorithm] = {
    Alg.eltwise_relu: Algorithm(_relu, _relu_gradient),
    Alg.eltwise_tanh: Algorithm(lambda x, a, b: apply("tanh", x)),
    Alg.eltwise_elu: Algorithm(_elu, _elu_gradient),
    Alg.eltwise_square: Algorithm(lambda x, a, b: x * x),
    Alg.eltwise_abs: Algorithm(lambda x, a, b: abs(x)),
    Alg.eltwise_sqrt: Algorithm(lambda x, a, b: apply("sqrt", x)),
    Alg.eltwise_linear: Algorithm(_affine),
    Alg.eltwise_soft_relu: Algorithm(
        _soft_relu, lambda g, x, a, b: g * apply("sigmoid", _times(x, a))
    ),
    Alg.eltwise_hardsigmoid: Algorithm(_hardsigmoid, _hardsigmoid_gradient),
    Alg.eltwise_logistic: Algorithm(lambda x, a, b: apply("sigmoid", x)),
    Alg.eltwise_exp: Algorithm(lambda x, a, b: apply("exp", x)),
    Alg.eltwise_log: Algorithm(lambda x, a, b: apply("log", x)),
    Alg.eltwise_gelu_tanh: Algorithm(_gelu_tanh, _gelu_tanh_gradient),
    Alg.eltwise_gelu_erf: Algorithm(lambda x, a, b: x * apply("normal_cdf", x), _gelu_erf_gradient),
    Alg.eltwise_swish: Algorithm(
        lambda x, a, b: x * apply("sigmoid", _times(x, a)), _swish_gradient
    ),
    Alg.eltwise_clip: Algorithm(
        _clip, lambda g, x, a, b: apply("where", (x > a) & (x <= b), g, 0.0), bounds=True
    ),
    Alg.eltwise_clip_v2: Algorithm(_clip, _clip_gradient, bounds=True),
    Alg.eltwise_pow: Algorithm(
        lambda x, a, b: _times(x**b, a),
        lambda g, x, a, b: g * _times(x ** (b - 1.0), a * b) if b else 0.0,
    ),
    Alg.eltwise_round: Algorithm(lambda x, a, b: round(x), steps=True),
    Alg.eltwise_mish: Algorithm(
        lambda x, a, b: x * apply("tanh", apply("softplus", x)), _mish_gradient
    ),
    Alg.eltwise_hardswish: Algorithm(
        lambda x, a, b: x * _hardsigmoid(x, a, b), _hardswish_gradient
    ),
}

_FROM_DST: Mapping[Alg, Gradient] = {
    Alg.eltwise_relu_use_dst_for_bwd: _relu_gradient,
    Alg.eltwise_tanh_use_dst_for_bwd: lambda g, y, a, b: g * ((1.0 - y) * (1.0 + y)),
    Alg.eltwise_elu_use_dst_for_bwd: lambda g, y, a, b: apply("where", y > 0.0, g, g * (y + a)),
    Alg.eltwise_sqrt_use_dst_for_bwd: lambda g, y, a, b: g * 0.5 / y,
    Alg.eltwise_logistic_use_dst_for_bwd: lambda g, y, a, b: g * (y * (1.0 - y)),
    Alg.eltwise_exp_use_dst_for_bwd: lambda g, y, a, b: g * y,
    Alg.eltwise_clip_v2_use_dst_for_bwd: _clip_gradient,
}
"""The gradients that are made of the result."""
_SIGNED = (Alg.eltwise_relu_use_dst_for_bwd, Alg.eltwise_elu_use_dst_for_bwd)

for _alg, _gradient in _FROM_DST.items():
    _row = ELTWISE[Alg[_alg.name.removesuffix("_use_dst_for_bwd")]]
    ELTWISE[_alg] = replace(_row, gradient=_gradient, bounds=False, signed=_alg in _SIGNED)


def _truth(comparison: Callable[[Scalar, Scalar], Scalar]) -> Callable[[Scalar, Scalar], Scalar]:
    return lambda x, y: apply("where", comparison(x, y), 1.0, 0.0)


_BINARY: Mapping[Alg, Callable[..., Scalar]] = {
    Alg.binary_add: lambda x, y: x + y,
    Alg.binary_sub: lambda x, y: x - y,
    Alg.binary_mul: lambda x, y: x * y,
    Alg.binary_div: lambda x, y: x / y,
    Alg.binary_max: lambda x, y: apply("maximum", x, y),
    Alg.binary_min: lambda x, y: apply("minimum", x, y),
    Alg.binary_ge: _truth(lambda x, y: x >= y),
    Alg.binary_gt: _truth(lambda x, y: x > y),
    Alg.binary_le: _truth(lambda x, y: x <= y),
    Alg.binary_lt: _truth(lambda x, y: x < y),
    Alg.binary_eq: _truth(lambda x, y: x == y),
    Alg.binary_ne: _truth(lambda x, y: x != y),
    Alg.binary_select: lambda x, y, chosen: apply("where", chosen != 0.0, x, y),
}
"""The maximum and the minimum of a NaN and anything is NaN; a comparison with a NaN is false,
except that a NaN is unequal to everything."""

PRELU = trace(lambda x, weight: apply("where", x > 0.0, x, x * weight), 2)
"""The parametric ReLU, of x and the weight."""
