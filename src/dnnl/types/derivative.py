"""The derivative of an expression, as another expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from dnnl.errors import InvalidArguments
from dnnl.types.expression import CONSTANT, PARAMETER, Expression, Step
from dnnl.types.scalar import Scalar, Trace, apply

Slopes = Callable[..., Sequence[Scalar | float]]


def _extreme(name: str) -> Slopes:
    def slopes(a: Scalar, b: Scalar, _: Scalar) -> Sequence[Scalar | float]:
        first = apply(name, a, b)
        return apply("where", first, 1.0, 0.0), apply("where", first, 0.0, 1.0)

    return slopes


def _power(a: Scalar, b: Scalar, result: Scalar) -> Sequence[Scalar | float]:
    if b.step.name == CONSTANT:
        return b * apply("pow", a, b.step.constant - 1.0), 0.0
    return b * apply("pow", a, b - 1.0), result * apply("log", a)


_SLOPES: Mapping[str, Slopes] = {
    "add": lambda a, b, y: (1.0, 1.0),
    "sub": lambda a, b, y: (1.0, -1.0),
    "mul": lambda a, b, y: (b, a),
    "div": lambda a, b, y: (1.0 / b, -y / b),
    "pow": _power,
    "minimum": _extreme("le"),
    "maximum": _extreme("ge"),
    "neg": lambda a, y: (-1.0,),
    "abs": lambda a, y: (apply("where", a < 0, -1.0, apply("where", a > 0, 1.0, 0.0)),),
    "sqrt": lambda a, y: (0.5 / y,),
    "rsqrt": lambda a, y: (-0.5 * y / a,),
    "exp": lambda a, y: (y,),
    "log": lambda a, y: (1.0 / a,),
    "expm1": lambda a, y: (apply("exp", a),),
    "log1p": lambda a, y: (1.0 / (a + 1.0),),
    "sin": lambda a, y: (apply("cos", a),),
    "cos": lambda a, y: (-apply("sin", a),),
    "tanh": lambda a, y: (4.0 * apply("sigmoid", a + a) * apply("sigmoid", -(a + a)),),
    "erf": lambda a, y: (2.0 / math.sqrt(math.pi) * apply("exp", -(a * a)),),
    "sigmoid": lambda a, y: (y * apply("sigmoid", -a),),
    "softplus": lambda a, y: (apply("sigmoid", a),),
    "floor": lambda a, y: (0.0,),
    "ceil": lambda a, y: (0.0,),
    "round": lambda a, y: (0.0,),
}
"""By function: its slopes along each source, from the sources and the result ``y``, without a
difference that loses digits where the result comes close to 1 or -1."""


def derivative(expression: Expression, parameter: int = 0) -> Expression:
    """The derivative along one parameter, as an expression of the same parameters.

    Where a function jumps or has a corner it is that of one side: 0 of floor and round, and of
    ``where`` that of the branch which is taken.
    """
    if not 0 <= parameter < expression.parameters:
        rule = f"expected one of 0..{expression.parameters - 1}"
        raise InvalidArguments("parameter", parameter, rule)
    trace = Trace()
    values: list[Scalar] = []
    slopes: list[Scalar | float] = []
    for step in expression.steps:
        sources = [values[source] for source in step.sources]
        values.append(trace.add(Step(step.name, tuple(s.index for s in sources), step.detail)))
        slopes.append(
            _slope(step, sources, [slopes[s] for s in step.sources], values[-1], parameter)
        )
    return trace.expression(expression.parameters, slopes[-1])


def _slope(
    step: Step, sources: list[Scalar], inner: list[Scalar | float], value: Scalar, parameter: int
) -> Scalar | float:
    if step.name == PARAMETER:
        return float(step.detail == str(parameter))
    if step.is_truth or not any(isinstance(slope, Scalar) or slope for slope in inner):
        return 0.0
    if step.name == "where":
        return apply("where", sources[0], *inner[1:])
    total: Scalar | float = 0.0
    for outer, slope in zip(_SLOPES[step.name](*sources, value), inner, strict=True):
        part = _product(outer, slope)
        total = part if _is(total, 0.0) else total if _is(part, 0.0) else total + part
    return total


def _product(a: Scalar | float, b: Scalar | float) -> Scalar | float:
    if _is(a, 0.0) or _is(b, 0.0):
        return 0.0
    if _is(a, 1.0):
        return b
    return a if _is(b, 1.0) else a * b


def _is(value: Scalar | float, number: float) -> bool:
    return isinstance(value, float) and value == number
