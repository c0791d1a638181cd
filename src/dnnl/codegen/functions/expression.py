"""Functions of scalars as IR: a row for each of their steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter
from dnnl.codegen.math import arithmetic, f32, trigonometry
from dnnl.types.expression import COMPARISONS, CONSTANT, PARAMETER, Expression, Step

Function = Callable[..., ir.Value]

_FUNCTIONS: Mapping[str, Function] = {
    "add": lambda e, a, b: e.b.fadd(a, b),
    "sub": lambda e, a, b: e.b.fsub(a, b),
    "mul": lambda e, a, b: e.b.fmul(a, b),
    "div": lambda e, a, b: e.b.fdiv(a, b),
    "minimum": lambda e, a, b: vector.or_nan(e, a, b, vector.minimum),
    "maximum": lambda e, a, b: vector.or_nan(e, a, b, vector.maximum),
    "neg": lambda e, a: e.b.fneg(a),
    "abs": arithmetic.absolute,
    "sqrt": arithmetic.square_root,
    "rsqrt": lambda e, a: arithmetic.reciprocal(e, arithmetic.square_root(e, a)),
    "floor": arithmetic.round_down,
    "ceil": lambda e, a: e.b.fneg(arithmetic.round_down(e, e.b.fneg(a))),
    "round": arithmetic.round_to_even,
    "where": lambda e, condition, a, b: e.b.select(condition, a, b),
    "and": lambda e, a, b: e.b.and_(a, b),
    "or": lambda e, a, b: e.b.or_(a, b),
    "not": lambda e, a: e.b.not_(a),
}
_LONG_FUNCTIONS: Mapping[str, Function] = {
    "pow": f32.power_of,
    "exp": f32.exp,
    "exp_of_negative": f32.exp_of_negative,
    "expm1": f32.expm1,
    "expm1_of_negative": f32.expm1_of_negative,
    "log": f32.log,
    "log1p": f32.log1p,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tanh": f32.tanh,
    "erf": f32.erf,
    "normal_cdf": f32.normal_cdf,
    "sigmoid": f32.logistic,
    "softplus": f32.softplus,
    "softplus_tail": f32.softplus_tail,
}
_LONG = 20  # about the instructions of each of these
_EXTREMES: Mapping[str, Function] = {"minimum": vector.minimum, "maximum": vector.maximum}
_OF_F32 = frozenset(("expm1", "log1p", "sin", "cos"))


def instructions(expression: Expression) -> int:
    """About how many instructions a function takes; a comparison is part of what chooses by it."""
    steps = expression.steps
    absorbed = {*_products(steps).values(), *_softplus(steps).values()}
    names = [step.name for number, step in enumerate(steps) if number not in absorbed]
    return sum(_LONG if name in _LONG_FUNCTIONS else name in _FUNCTIONS for name in names)


def without_f64(expression: Expression) -> str | None:
    """The first function in it that is not computed in f64, if any."""
    return next((step.name for step in expression.steps if step.name in _OF_F32), None)


def emit(e: Emitter, expression: Expression, parameters: Sequence[ir.Value]) -> ir.Value:
    """The result for each lane of vectors of parameters, of f32 or f64.

    A product that only one sum reads is part of a fused multiply-add, where the target has one.
    """
    steps = expression.steps
    products, softplus = _products(steps), _softplus(steps)
    absorbed = {*products.values(), *softplus.values()}
    values: list[ir.Value] = []
    for number, step in enumerate(steps):
        if number in absorbed:
            values.append(None)
        elif number in products:
            values.append(_multiply_add(e, steps, number, products[number], values))
        elif number in softplus:
            values.append(f32.tanh_of_softplus(e, values[steps[softplus[number]].sources[0]]))
        else:
            values.append(_step(e, steps, step, values, parameters))
    return values[-1]


def _products(steps: Sequence[Step]) -> dict[int, int]:
    """By sum or difference, the product that is part of it and that nothing else reads."""
    return _absorbed(steps, ("add", "sub"), "mul")


def _softplus(steps: Sequence[Step]) -> dict[int, int]:
    """By hyperbolic tangent, the softplus that it is of and that nothing else reads."""
    return _absorbed(steps, ("tanh",), "softplus")


def _absorbed(steps: Sequence[Step], readers: Container[str], name: str) -> dict[int, int]:
    uses = Counter(source for step in steps for source in step.sources)
    alone = {n for n, step in enumerate(steps) if step.name == name and uses[n] == 1}
    found = {
        number: next((source for source in step.sources if source in alone), -1)
        for number, step in enumerate(steps)
        if step.name in readers
    }
    return {number: source for number, source in found.items() if source >= 0}


def _multiply_add(
    e: Emitter, steps: Sequence[Step], number: int, product: int, values: Sequence[ir.Value]
) -> ir.Value:
    """A sum or a difference of which the step ``product`` is one side."""
    first, second = steps[number].sources
    other = values[second if product == first else first]
    a, b = (values[source] for source in steps[product].sources)
    if steps[number].name == "sub" and product == first:
        other = e.b.fneg(other)
    elif steps[number].name == "sub":
        a = e.b.fneg(a)
    return vector.multiply_add(e, a, b, other)


def _step(
    e: Emitter,
    steps: Sequence[Step],
    step: Step,
    values: Sequence[ir.Value],
    parameters: Sequence[ir.Value],
) -> ir.Value:
    if step.name == PARAMETER:
        return parameters[int(step.detail)]
    if step.name == CONSTANT:
        return arithmetic.constant(parameters[0], step.constant)
    sources = [values[source] for source in step.sources]
    if step.name in COMPARISONS:
        compare = e.b.fcmp_unordered if step.name == "ne" else e.b.fcmp_ordered
        return compare(COMPARISONS[step.name], *sources)
    if step.name in _EXTREMES:
        for first, second in (step.sources, step.sources[::-1]):
            if _is_nan_only_with(steps, first, second):
                return _EXTREMES[step.name](e, values[first], values[second])
    last = steps[step.sources[-1]]
    if step.name == "pow" and last.name == CONSTANT:
        return f32.power(e, sources[0], last.constant)
    function = _FUNCTIONS.get(step.name) or _LONG_FUNCTIONS[step.name]
    return function(e, *sources)


def _is_nan_only_with(steps: Sequence[Step], first: int, second: int) -> bool:
    """Whether a value is NaN only where another one is: a number, or the other times a number."""
    step = steps[first]
    if step.name == CONSTANT:
        return not math.isnan(step.constant)
    if step.name != "mul" or second not in step.sources:
        return False
    factors = [steps[n] for n in step.sources if n != second]
    return all(f.name == CONSTANT and 0.0 < abs(f.constant) < math.inf for f in factors)
