"""Element by element functions of one tensor and their derivatives.

``FUNCTIONS`` has one row per algorithm. A row's derivative is a function of the source; the rows of
``DERIVATIVES_FROM_DST`` say the same as functions of the result, for the ``_use_dst_for_bwd``
algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64, name_of, overflowed
from dnnl.reference.expression import evaluate, sensitivity
from dnnl.reference.fill import cycle, generator, integers, stored
from dnnl.reference.rule import Rule, core_eps
from dnnl.reference.specification import Description, Specification, Values
from dnnl.reference.tolerance import EXACT, Tolerance
from dnnl.types.arg import Arg
from dnnl.types.derivative import derivative
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpBinary, PostOpSum

Function = Callable[[Array, float, float], Array]

GELU_SLOPE = math.sqrt(2 / math.pi)
GELU_CUBIC = 0.044715

# An approximation of a few ulps of its value.
CLOSE = Tolerance(ulps=8)
# Terms of magnitude one cancel where the value is small.
CANCELS = Tolerance(ulps=8, floor=1.0)
# The exponent of e^(a s) is rounded, which for large ones is half an ulp of the exponent in every
# digit of the gate; where the gate is denormal there are no digits left.
GATED = Tolerance(ulps=64, floor=2.0**-100)
# The terms that cancel are as large as the coefficients and the source make them.
SCALED = Tolerance(ulps=2, floor=None)
# The derivatives of smooth gates, times a diff_dst of the magnitude one: a gate may be close to its
# end, where what is left of it cancels.
DERIVATIVE = Tolerance(ulps=64, floor=1.0)

_each_erfc = np.vectorize(math.erfc, otypes=[np.float64])


@dataclass(frozen=True)
class Eltwise:
    """``forward`` and ``derivative`` take (src, alpha, beta); a step has no derivative."""

    forward: Function
    derivative: Function | None
    tolerance: Tolerance


def _normal_cdf(s: Array) -> Array:
    """(1 + erf(s / sqrt 2)) / 2."""
    return np.asarray(0.5 * _each_erfc(-s / math.sqrt(2)))


def _logistic(s: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0.0, -s)))


def _logistic_derivative(s: Array) -> Array:
    return _logistic(s) * _logistic(-s)


def _gelu_tanh_inner(s: Array) -> Array:
    return np.asarray(np.tanh(GELU_SLOPE * s * (1 + GELU_CUBIC * s * s)))


def _gelu_tanh_derivative(s: Array, _a: float, _b: float) -> Array:
    t = _gelu_tanh_inner(s)
    return 0.5 * (1 + t) * (1 + GELU_SLOPE * (s + 3 * GELU_CUBIC * s**3) * (1 - t))


def _gelu_erf(s: Array, _a: float, _b: float) -> Array:
    return s * _normal_cdf(s)


def _gelu_erf_derivative(s: Array, _a: float, _b: float) -> Array:
    density = np.exp(-s * s / 2) / math.sqrt(2 * math.pi)
    return _normal_cdf(s) + s * density


def _swish_derivative(s: Array, a: float, _b: float) -> Array:
    gate = _logistic(a * s)
    return gate + a * s * gate * (1 - gate)


def _mish_derivative(s: Array, _a: float, _b: float) -> Array:
    t = np.tanh(np.logaddexp(0.0, s))
    return np.asarray(t + s * _logistic(s) * (1 - t * t))


def _relu(s: Array, a: float, _b: float) -> Array:
    slope = a * s if a else np.where(np.isnan(s), s, 0.0)  # 0 * -inf would be NaN
    return np.where(s > 0, s, slope)


def _clip(s: Array, a: float, b: float) -> Array:
    return np.clip(s, a, b)


def _hardsigmoid(s: Array, a: float, b: float) -> Array:
    return np.clip(a * s + b, 0.0, 1.0)


def _hardswish_derivative(s: Array, a: float, b: float) -> Array:
    gate = a * s + b
    return np.where(gate >= 1, 1.0, np.where(gate > 0, 2 * a * s + b, 0.0))


FUNCTIONS: dict[str, Eltwise] = {
    "eltwise_relu": Eltwise(
        _relu,
        lambda s, a, _: np.where(s > 0, 1.0, a),
        EXACT,
    ),
    "eltwise_tanh": Eltwise(
        lambda s, _a, _b: np.tanh(s), lambda s, _a, _b: 4 * _logistic_derivative(2 * s), CANCELS
    ),
    "eltwise_elu": Eltwise(
        lambda s, a, _: np.where(s > 0, s, a * np.expm1(s)),
        lambda s, a, _: np.where(s > 0, 1.0, a * np.exp(s)),
        CANCELS,
    ),
    "eltwise_square": Eltwise(lambda s, _a, _b: s * s, lambda s, _a, _b: 2 * s, EXACT),
    "eltwise_abs": Eltwise(lambda s, _a, _b: np.abs(s), lambda s, _a, _b: np.sign(s), EXACT),
    "eltwise_sqrt": Eltwise(
        lambda s, _a, _b: np.sqrt(s), lambda s, _a, _b: 1 / (2 * np.sqrt(s)), EXACT
    ),
    "eltwise_linear": Eltwise(
        lambda s, a, b: a * s + b, lambda s, a, _b: np.full_like(s, a), SCALED
    ),
    "eltwise_soft_relu": Eltwise(
        lambda s, a, _: np.logaddexp(0.0, a * s) / a, lambda s, a, _: _logistic(a * s), CANCELS
    ),
    "eltwise_hardsigmoid": Eltwise(
        _hardsigmoid,
        lambda s, a, b: np.where((a * s + b > 0) & (a * s + b < 1), a, 0.0),
        Tolerance(ulps=2, floor=1.0),
    ),
    "eltwise_logistic": Eltwise(
        lambda s, _a, _b: _logistic(s),
        lambda s, _a, _b: _logistic_derivative(s),
        replace(CLOSE, floor=2.0**-100),  # and 0 where it would be denormal
    ),
    "eltwise_exp": Eltwise(lambda s, _a, _b: np.exp(s), lambda s, _a, _b: np.exp(s), CLOSE),
    "eltwise_log": Eltwise(lambda s, _a, _b: np.log(s), lambda s, _a, _b: 1 / s, CANCELS),
    "eltwise_gelu_tanh": Eltwise(
        lambda s, _a, _b: 0.5 * s * (1 + _gelu_tanh_inner(s)), _gelu_tanh_derivative, CANCELS
    ),
    "eltwise_gelu_erf": Eltwise(_gelu_erf, _gelu_erf_derivative, CANCELS),
    "eltwise_swish": Eltwise(lambda s, a, _: s * _logistic(a * s), _swish_derivative, GATED),
    "eltwise_clip": Eltwise(
        _clip,
        lambda s, a, b: np.where((a < s) & (s <= b), 1.0, 0.0),
        EXACT,
    ),
    "eltwise_clip_v2": Eltwise(
        _clip,
        lambda s, a, b: np.where((a < s) & (s < b), 1.0, 0.0),
        EXACT,
    ),
    "eltwise_pow": Eltwise(
        lambda s, a, b: a * np.power(s, b),
        lambda s, a, b: a * b * np.power(s, b - 1) if b else np.zeros_like(s),
        Tolerance(ulps=32, floor=2.0**-120),  # s^b may be denormal before alpha scales it
    ),
    "eltwise_round": Eltwise(lambda s, _a, _b: np.rint(s), None, EXACT),
    "eltwise_mish": Eltwise(
        lambda s, _a, _b: s * np.tanh(np.logaddexp(0.0, s)), _mish_derivative, CANCELS
    ),
    "eltwise_hardswish": Eltwise(
        lambda s, a, b: s * _hardsigmoid(s, a, b),
        _hardswish_derivative,
        Tolerance(ulps=4, floor=1.0),
    ),
}

DERIVATIVES_FROM_DST: dict[str, Function] = {
    "eltwise_relu_use_dst_for_bwd": lambda d, a, _: np.where(d > 0, 1.0, a),
    "eltwise_tanh_use_dst_for_bwd": lambda d, _a, _b: (1 - d) * (1 + d),
    "eltwise_elu_use_dst_for_bwd": lambda d, a, _: np.where(d > 0, 1.0, d + a),
    "eltwise_sqrt_use_dst_for_bwd": lambda d, _a, _b: 1 / (2 * d),
    "eltwise_logistic_use_dst_for_bwd": lambda d, _a, _b: d * (1 - d),
    "eltwise_exp_use_dst_for_bwd": lambda d, _a, _b: d,
    "eltwise_clip_v2_use_dst_for_bwd": lambda d, a, b: np.where((a < d) & (d < b), 1.0, 0.0),
}

# Those whose derivative is a constant, a multiple of the operand or one quotient; else DERIVATIVE.
DERIVATIVE_TOLERANCES: dict[str, Tolerance] = {
    "eltwise_relu": EXACT,
    "eltwise_square": EXACT,
    "eltwise_abs": EXACT,
    "eltwise_sqrt": CLOSE,
    "eltwise_linear": Tolerance(ulps=2),  # alpha is rounded to f32, too
    "eltwise_hardsigmoid": Tolerance(ulps=2),
    "eltwise_exp": CLOSE,
    "eltwise_log": CLOSE,
    "eltwise_clip": EXACT,
    "eltwise_clip_v2": EXACT,
    "eltwise_pow": Tolerance(ulps=40, floor=2.0**-120),
    "eltwise_relu_use_dst_for_bwd": EXACT,
    "eltwise_elu_use_dst_for_bwd": CLOSE,
    "eltwise_sqrt_use_dst_for_bwd": CLOSE,
    "eltwise_logistic_use_dst_for_bwd": CLOSE,
    "eltwise_exp_use_dst_for_bwd": EXACT,
    "eltwise_clip_v2_use_dst_for_bwd": EXACT,
}

_FROM_DST = "_use_dst_for_bwd"
ALGS = (*FUNCTIONS, *DERIVATIVES_FROM_DST)


def eltwise(alg: Alg | str, src: ArrayLike, alpha: float = 0.0, beta: float = 0.0) -> Array:
    """The function of ``alg`` on each element of ``src``."""
    row = FUNCTIONS[name_of(alg).removesuffix(_FROM_DST)]
    with np.errstate(all="ignore"):
        return np.asarray(row.forward(f64(src), alpha, beta))


def eltwise_derivative(
    alg: Alg | str, data: ArrayLike, alpha: float = 0.0, beta: float = 0.0
) -> Array:
    """d dst / d src; ``data`` is dst for an algorithm ``_use_dst_for_bwd``, else src."""
    name = name_of(alg)
    from_dst = DERIVATIVES_FROM_DST.get(name)
    function = FUNCTIONS[name].derivative if from_dst is None else from_dst
    if function is None:
        raise ValueError(f"{name} is a step function and has no derivative")
    with np.errstate(all="ignore"):
        return np.asarray(function(f64(data), alpha, beta))


def eltwise_backward(
    alg: Alg | str, data: ArrayLike, diff_dst: ArrayLike, alpha: float = 0.0, beta: float = 0.0
) -> Array:
    """diff_src; ``data`` is dst for an algorithm ``_use_dst_for_bwd``, else src."""
    with np.errstate(all="ignore"):
        return np.asarray(f64(diff_dst) * eltwise_derivative(alg, data, alpha, beta))


def backward_tolerance(alg: Alg | str) -> Tolerance:
    """The tolerance of diff_src of ``alg``."""
    return DERIVATIVE_TOLERANCES.get(name_of(alg), DERIVATIVE)


def tolerance(alg: Alg | str) -> Tolerance:
    """The forward tolerance of ``alg``."""
    return FUNCTIONS[name_of(alg).removesuffix(_FROM_DST)].tolerance


_FINE, _COARSE = 4e-6, 4e-5
_HARD = ("gelu_tanh", "elu", "swish", "tanh", "soft_relu", "mish", "log")
_CANCELLING = ("gelu_tanh", "gelu_erf", "log")
_GATES = ("gelu_tanh", "gelu_erf", "swish", "mish", "hardswish")
_UNBOUNDED = ("exp", "log", "pow", "sqrt", "square")
_COUNT = 1024


class _Eltwise(Specification):
    """Numbers around the places where functions bend."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Whole numbers, small and large fractions of both signs, and where functions bend; the
        results of these where a gradient is made of results. Gradients are small whole numbers
        other than 0."""
        if desc.propagation.is_forward:
            return {Arg.SRC: _around_bends(desc, desc.src_desc)}
        data = desc.data_desc
        rng = generator("eltwise", "diff_dst", data.dims)
        src = _with_slopes(desc, _around_bends(desc, data), rng)
        sign = rng.choice([-1.0, 1.0], data.dims)
        diff_dst = sign * integers(rng, data.dims, 1, 8)
        filled: dict[int, Array] = {Arg.SRC: src, Arg.DIFF_DST: diff_dst}
        if desc.alg_kind.uses_dst:
            with np.errstate(all="ignore"):
                held = stored(src, data.data_type)
            filled[Arg.DST] = eltwise(desc.alg_kind, held, desc.alpha, desc.beta)
        return filled

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The function, or its gradient."""
        numbers = desc.alpha, desc.beta
        if desc.propagation.is_forward and desc.function is not None:
            return {Arg.DST: evaluate(desc.function.expression, [values[Arg.SRC]])}
        if desc.propagation.is_forward:
            return {Arg.DST: eltwise(desc.alg_kind, values[Arg.SRC], *numbers)}
        return {Arg.DIFF_SRC: values[Arg.DIFF_DST] * _slope(desc, values)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Relative, but absolute where the terms of a function cancel; with a sum, relative to the
        function if that is more than what is left of it. Where a derivative has terms that cancel,
        a gradient is relative to that of the result. What a Python function computes is relative to
        what the errors of its steps can become."""
        if desc.function is not None:
            return _rule_of_function(desc, argument, values)
        name = desc.alg_kind.name.removeprefix("eltwise_").removesuffix(_FROM_DST)
        kind = desc.desc_of(argument).data_type
        threshold = _threshold(name, kind)
        follows = any(isinstance(entry, PostOpBinary) for entry in post_ops)
        zeros = 100 if kind.is_integer or follows else 65
        non_finite = name in _UNBOUNDED
        if not desc.propagation.is_forward:
            size = np.abs(values[Arg.DIFF_DST]) if name in _GATES else None
            return Rule(threshold, zeros=zeros, non_finite=non_finite, size=size)
        with np.errstate(all="ignore"):
            result = np.abs(self.compute(desc, values)[Arg.DST])
        cancels = None
        if name in _CANCELLING:
            near = 2 * DataType.f32.eps / _COARSE
            cancels = result <= near * np.maximum(np.abs(values[Arg.SRC]), 1)
        return Rule(
            threshold,
            zeros=zeros,
            non_finite=non_finite,
            size=result if any(isinstance(entry, PostOpSum) for entry in post_ops) else None,
            absolute_at=cancels,
        )


def _rule_of_function(desc: Description, argument: int, values: Values) -> Rule:
    expression = desc.function.expression
    if desc.propagation.is_forward:
        size = sensitivity(expression, [values[Arg.SRC]])
    else:
        slopes = sensitivity(derivative(expression), [values[Arg.SRC]])
        size = np.abs(values[Arg.DIFF_DST]) * slopes
    threshold = _threshold("function", desc.desc_of(argument).data_type)
    return Rule(threshold, zeros=100, non_finite=True, size=size)


def _around_bends(desc: Description, tensor: MemoryDesc) -> Array:
    """A source of the dims of ``tensor``."""
    rng = generator("eltwise", tensor.dims)
    whole = rng.integers(0, 11, _COUNT).astype(np.float64)
    part = rng.uniform(0, 0.09, _COUNT)
    kinds = [whole, -whole, part, -part, 10 * whole, -10 * whole, 10 * part, -10 * part]
    kinds += [88 + part, 22 + part, 44 + part]
    kinds += [np.full(_COUNT, desc.alpha), np.full(_COUNT, desc.beta)]
    if desc.alg_kind is Alg.eltwise_log:
        kinds.append(np.full(_COUNT, np.inf))
    return cycle(np.stack(kinds, axis=1).reshape(-1), tensor.dims)


def _with_slopes(desc: Description, src: Array, rng: np.random.Generator) -> Array:
    """A source of whose elements three in four are where a function rises that is level nearly
    everywhere."""
    name, alpha, beta = desc.alg_kind.name, desc.alpha, desc.beta
    if "clip" in name:
        ends = alpha, beta
    elif "hardsigmoid" in name and alpha:
        ends = -beta / alpha, (1 - beta) / alpha
    else:
        return src
    return np.where(rng.random(src.shape) < 0.75, rng.uniform(min(ends), max(ends), src.shape), src)


def _threshold(name: str, kind: DataType) -> float:
    """The relative error that is accepted: as many ulps of f64 as of f32, of which integers are
    made unless the function is exact, one of other types."""
    if kind.is_integer and f"eltwise_{name}" in FUNCTIONS and tolerance(f"eltwise_{name}") == EXACT:
        return 0.0
    if kind.is_float and kind not in (DataType.f32, DataType.f64):
        return kind.eps
    return (_COARSE if name in _HARD else _FINE) * (core_eps(kind) / DataType.f32.eps)


def _slope(desc: Description, values: Values) -> Array:
    """The derivative, infinite where the type of the computation does not hold it."""
    wide = any(tensor.desc.data_type is DataType.f64 for tensor in desc.tensors)
    data = values[Arg.DST if desc.alg_kind.uses_dst else Arg.SRC]
    if desc.function is not None:
        slope = evaluate(derivative(desc.function.expression), [data])
    else:
        slope = eltwise_derivative(desc.alg_kind, data, desc.alpha, desc.beta)
    return overflowed(slope, DataType.f64 if wide else DataType.f32)


SPECIFICATION = _Eltwise()
