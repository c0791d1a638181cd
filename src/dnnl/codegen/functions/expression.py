"""Traced functions as IR: a row for each of their steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from llvmlite import ir

from dnnl.codegen.functions import binary
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter
from dnnl.codegen.math import arithmetic, f32, trigonometry
from dnnl.types.expression import COMPARISONS, CONSTANT, PARAMETER, Expression, Step
from dnnl.types.kinds import Alg

Function = Callable[..., ir.Value]

_CALLS = frozenset(
    ("pow", "exp", "expm1", "log", "log1p", "tanh", "erf", "sigmoid", "softplus", "sin", "cos")
)
_LONG = 20  # about the instructions of each of these
_FREE = frozenset((PARAMETER, CONSTANT))
_OF_F32 = frozenset(("expm1", "log1p", "sin", "cos"))

_FUNCTIONS: Mapping[str, Function] = {
    "add": lambda e, a, b: e.b.fadd(a, b),
    "sub": lambda e, a, b: e.b.fsub(a, b),
    "mul": lambda e, a, b: e.b.fmul(a, b),
    "div": lambda e, a, b: e.b.fdiv(a, b),
    "pow": f32.power_of,
    "minimum": lambda e, a, b: binary.apply(e, Alg.binary_min, a, b),
    "maximum": lambda e, a, b: binary.apply(e, Alg.binary_max, a, b),
    "neg": lambda e, a: e.b.fneg(a),
    "abs": arithmetic.absolute,
    "sqrt": arithmetic.square_root,
    "rsqrt": lambda e, a: arithmetic.reciprocal(e, arithmetic.square_root(e, a)),
    "exp": f32.exp,
    "expm1": f32.expm1,
    "log": f32.log,
    "log1p": f32.log1p,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tanh": f32.tanh,
    "erf": f32.erf,
    "sigmoid": f32.logistic,
    "softplus": f32.softplus,
    "floor": arithmetic.round_down,
    "ceil": lambda e, a: e.b.fneg(arithmetic.round_down(e, e.b.fneg(a))),
    "round": arithmetic.round_to_even,
    "where": lambda e, condition, a, b: e.b.select(condition, a, b),
    "and": lambda e, a, b: e.b.and_(a, b),
    "or": lambda e, a, b: e.b.or_(a, b),
    "not": lambda e, a: e.b.not_(a),
}


def instructions(expression: Expression) -> int:
    """About how many instructions a traced function takes."""
    names = [step.name for step in expression.steps]
    return sum(_LONG if name in _CALLS else 1 for name in names if name not in _FREE)


def without_f64(expression: Expression) -> str | None:
    """The first function in it that is not computed in f64, if any."""
    return next((step.name for step in expression.steps if step.name in _OF_F32), None)


def emit(e: Emitter, expression: Expression, parameters: Sequence[ir.Value]) -> ir.Value:
    """The result for each lane of vectors of parameters, of f32 or f64.

    A product that only one sum reads is part of a fused multiply-add, where the target has one.
    """
    steps = expression.steps
    uses = Counter(source for step in steps for source in step.sources)
    alone = {n for n, step in enumerate(steps) if step.name == "mul" and uses[n] == 1}
    values: list[ir.Value] = []
    for step in steps:
        factors = next((n for n in step.sources if n in alone), None)
        if step.name in ("add", "sub") and factors is not None:
            values.append(
                _fused(e, step, factors, [values[n] for n in steps[factors].sources], values)
            )
        else:
            values.append(_step(e, expression, step, values, parameters))
    return values[-1]


def _fused(
    e: Emitter, step: Step, product: int, factors: Sequence[ir.Value], values: Sequence[ir.Value]
) -> ir.Value:
    """A sum or a difference of which the step ``product`` is one side."""
    first, second = step.sources
    other = values[second if product == first else first]
    a, b = factors
    if step.name == "sub" and product == first:
        other = e.b.fneg(other)
    elif step.name == "sub":
        a = e.b.fneg(a)
    return vector.multiply_add(e, a, b, other)


def _step(
    e: Emitter,
    expression: Expression,
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
    last = expression.steps[step.sources[-1]]
    if step.name == "pow" and last.name == CONSTANT:
        return f32.power(e, sources[0], last.constant)
    if step.name == "tanh" and last.name == "softplus":
        return f32.tanh_of_softplus(e, values[last.sources[0]])
    return _FUNCTIONS[step.name](e, *sources)
