"""The derivative of an expression, as another expression."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from dnnl.errors import InvalidArguments
from dnnl.types.expression import CONSTANT, PARAMETER, Expression, Step
from dnnl.types.scalar import Scalar, Trace, apply

Tangent = Scalar | float
Rule = Callable[..., Tangent]


def logistic_slope(x: Scalar) -> Scalar:
    """The derivative of the logistic function, with all its digits where that comes close to 1."""
    shrunk = apply("exp_of_negative", -abs(x))
    rest = 1.0 / (shrunk + 1.0)
    return shrunk * rest * rest


def _of_base(t: Tangent, a: Scalar, b: Scalar, y: Scalar) -> Tangent:
    if b.step.name != CONSTANT:
        return _product(t, b * apply("pow", a, b - 1.0))
    exponent = b.step.constant
    return _product(t, exponent * apply("pow", a, exponent - 1.0)) if exponent else 0.0


def _zero(*_: object) -> float:
    return 0.0


_RULES: Mapping[str, tuple[Rule, ...]] = {
    "add": (lambda t, a, b, y: t, lambda t, a, b, y: t),
    "sub": (lambda t, a, b, y: t, lambda t, a, b, y: -t),
    "mul": (lambda t, a, b, y: _product(t, b), lambda t, a, b, y: _product(t, a)),
    "div": (lambda t, a, b, y: t / b, lambda t, a, b, y: _product(t, -y / b)),
    "pow": (_of_base, lambda t, a, b, y: _product(t, y * apply("log", a))),
    "minimum": (
        lambda t, a, b, y: apply("where", a <= b, t, 0.0),
        lambda t, a, b, y: apply("where", b < a, t, 0.0),
    ),
    "maximum": (
        lambda t, a, b, y: apply("where", a >= b, t, 0.0),
        lambda t, a, b, y: apply("where", b > a, t, 0.0),
    ),
    "neg": (lambda t, a, y: -t,),
    # What is neither above nor below is 0, and so is the product, or NaN.
    "abs": (lambda t, a, y: apply("where", a > 0, t, apply("where", a < 0, -t, _product(t, a))),),
    "sqrt": (lambda t, a, y: _product(t, 0.5) / y,),
    "rsqrt": (lambda t, a, y: _product(t, -0.5 * y / a),),
    "exp": (lambda t, a, y: _product(t, y),),
    "exp_of_negative": (lambda t, a, y: _product(t, y),),
    "expm1": (lambda t, a, y: _product(t, apply("exp", a)),),
    "expm1_of_negative": (
        lambda t, a, y: apply("where", a > 0, 0.0, _product(t, apply("exp", a))),
    ),
    "log": (lambda t, a, y: t / a,),
    "log1p": (lambda t, a, y: t / (a + 1.0),),
    "sin": (lambda t, a, y: _product(t, apply("cos", a)),),
    "cos": (lambda t, a, y: _product(t, -apply("sin", a)),),
    "tanh": (lambda t, a, y: _product(t, logistic_slope(a + a) * 4.0),),
    "erf": (lambda t, a, y: _product(t, 2.0 / math.sqrt(math.pi) * apply("exp", -(a * a))),),
    "normal_cdf": (
        lambda t, a, y: _product(t, apply("exp", -0.5 * (a * a)) / math.sqrt(2.0 * math.pi)),
    ),
    "sigmoid": (lambda t, a, y: _product(t, logistic_slope(a)),),
    "softplus": (lambda t, a, y: _product(t, apply("sigmoid", a)),),
    "softplus_tail": (
        lambda t, a, y: _product(t, apply("where", a < 0, 1.0, -1.0) * apply("sigmoid", -abs(a))),
    ),
    "floor": (_zero,),
    "ceil": (_zero,),
    "round": (_zero,),
}
"""By function, and for each of its sources: what a small change ``t`` of the source makes of the
result ``y``; without a difference that loses digits where the result comes close to 1 or -1."""


def derivative(expression: Expression, parameter: int = 0) -> Expression:
    """The derivative along one parameter, as an expression of the same parameters.

    Where a function jumps or has a corner it is that of one side: 0 of floor and round, that of
    the first source of a minimum or maximum, and of ``where`` that of the branch which is taken.
    """
    if not 0 <= parameter < expression.parameters:
        rule = f"expected one of 0..{expression.parameters - 1}"
        raise InvalidArguments("parameter", parameter, rule)
    trace = Trace()
    parameters = trace.parameters([None] * expression.parameters)
    changes = [float(place == parameter) for place in range(expression.parameters)]
    return trace.expression(expression.parameters, _changed(expression, parameters, changes))


def gradient_of(expression: Expression) -> Expression:
    """The gradient of the only parameter of an expression, as a function of that of its result and
    of the parameter."""
    trace = Trace()
    gradient, parameter = trace.parameters([None, None])
    return trace.expression(2, _changed(expression, [parameter], [gradient]))


def _changed(
    expression: Expression, parameters: Sequence[Scalar], changes: Sequence[Tangent]
) -> Tangent:
    """What small changes of the parameters make of the result."""
    values: list[Scalar] = []
    tangents: list[Tangent] = []
    for step in expression.steps:
        if step.name == PARAMETER:
            values.append(parameters[int(step.detail)])
            tangents.append(changes[int(step.detail)])
            continue
        sources = [values[source] for source in step.sources]
        given = Step(step.name, tuple(source.index for source in sources), step.detail)
        values.append(parameters[0].trace.add(given))
        inner = [tangents[source] for source in step.sources]
        tangents.append(_tangent(step, sources, inner, values[-1]))
    return tangents[-1]


def _tangent(step: Step, sources: list[Scalar], inner: list[Tangent], value: Scalar) -> Tangent:
    if step.is_truth or all(_is(tangent, 0.0) for tangent in inner):
        return 0.0
    if step.name == "where":
        return apply("where", sources[0], *inner[1:])
    total: Tangent = 0.0
    for rule, tangent in zip(_RULES[step.name], inner, strict=True):
        part = 0.0 if _is(tangent, 0.0) else rule(tangent, *sources, value)
        total = part if _is(total, 0.0) else total if _is(part, 0.0) else total + part
    return total


def _product(a: Tangent, b: Tangent) -> Tangent:
    if _is(a, 0.0) or _is(b, 0.0):
        return 0.0
    if _is(a, 1.0):
        return b
    return a if _is(b, 1.0) else a * b


def _is(value: Tangent, number: float) -> bool:
    return isinstance(value, float) and value == number
