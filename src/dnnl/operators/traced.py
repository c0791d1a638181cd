"""Elementwise operators for which there is no algorithm, as traced functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dnnl.graph.scope import Scope
from dnnl.operators.trigonometry import FUNCTIONS
from dnnl.types.algorithms import ELTWISE as ELTWISE_ALGORITHMS
from dnnl.types.kinds import Alg
from dnnl.types.scalar import Scalar, apply

Traced = Callable[..., Scalar]


def named_function(name: str) -> Traced:
    """The function of expressions with this name."""
    return lambda scope, *values: apply(name, *values)


def algorithm(alg: str, x: Scalar, alpha: float = 0.0, beta: float = 0.0) -> Scalar:
    """What an algorithm of the primitive computes of ``x``."""
    return ELTWISE_ALGORITHMS[Alg[alg]].forward(x, alpha, beta)


def _selu(scope: Scope, x: Scalar) -> Scalar:
    alpha, gamma = scope.attr("alpha", 1.6732632), scope.attr("gamma", 1.0507010)
    return apply("mul", gamma, algorithm("eltwise_elu", x, alpha))


def _celu(scope: Scope, x: Scalar) -> Scalar:
    alpha = scope.attr("alpha", 1.0)
    return apply("where", x > 0, x, alpha * apply("expm1_of_negative", x / alpha))


def _shrink(scope: Scope, x: Scalar) -> Scalar:
    limit, bias = scope.attr("lambd", 0.5), scope.attr("bias", 0.0)
    return apply("where", x < -limit, x + bias, apply("where", x > limit, x - bias, 0.0))


def _alone(function: Callable[[Scalar], Scalar]) -> Traced:
    return lambda scope, x: function(x)


ALONE: Mapping[str, Traced] = {
    **{op: _alone(function) for op, function in FUNCTIONS.items()},
    "Ceil": named_function("ceil"),
    "Celu": _celu,
    "Cos": named_function("cos"),
    "Erf": named_function("erf"),
    "Floor": named_function("floor"),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sin": named_function("sin"),
    "Softsign": lambda scope, x: x / (1 + apply("abs", x)),
    "Tan": lambda scope, x: apply("sin", x) / apply("cos", x),
    "ThresholdedRelu": lambda scope, x: apply("where", x > scope.attr("alpha", 1.0), x, 0.0),
}
"""Operators of one source for which there is no algorithm."""
ONLY_F32 = frozenset({"Cos", "Sin", "Tan"})
"""Functions without a form in f64."""
