"""Functions of scalars as IR: a row for each of their steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from dnnl.codegen.functions.cast import cast, loaded, real, rounded, stored
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter
from dnnl.codegen.math import arithmetic, f32, integers, remainders, trigonometry
from dnnl.types.dtype import DataType
from dnnl.types.expression import BITCAST, CAST, COMPARISONS, CONSTANT, PARAMETER, Expression, Step
from dnnl.types.typed import FLOATS, STEPS

Function = Callable[..., ir.Value]


def _none(*_: object) -> ir.Value:
    raise AssertionError("no type of these has the function")


@dataclass(frozen=True)
class _Row:
    """How a step is computed.

    ``reals(e, *numbers)`` has vectors of f32 or f64, ``integers(e, signed, *values)`` those of
    integers, and ``bits(e, *values)`` those of any type, truth values as masks.
    """

    reals: Function = _none
    integers: Function = _none
    bits: Function | None = None
    instructions: int = 1


def _comparison(name: str, operator: str) -> _Row:
    def compare(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
        return (e.b.fcmp_unordered if name == "ne" else e.b.fcmp_ordered)(operator, a, b)

    # A comparison is part of what chooses by it.
    return _Row(compare, integers.comparison(operator), instructions=0)


_LONG = 20  # about the instructions of each of these
_ROWS: Mapping[str, _Row] = {
    "add": _Row(lambda e, a, b: e.b.fadd(a, b), lambda e, _, a, b: e.b.add(a, b)),
    "sub": _Row(lambda e, a, b: e.b.fsub(a, b), lambda e, _, a, b: e.b.sub(a, b)),
    "mul": _Row(lambda e, a, b: e.b.fmul(a, b), lambda e, _, a, b: e.b.mul(a, b)),
    "div": _Row(lambda e, a, b: e.b.fdiv(a, b), integers.quotient),
    "mod": _Row(remainders.modulo, integers.modulo, instructions=_LONG),
    "remainder": _Row(remainders.remainder, integers.remainder, instructions=_LONG),
    "minimum": _Row(lambda e, a, b: vector.or_nan(e, a, b, vector.minimum), integers.extreme("<")),
    "maximum": _Row(lambda e, a, b: vector.or_nan(e, a, b, vector.maximum), integers.extreme(">")),
    "neg": _Row(lambda e, a: e.b.fneg(a), integers.negative),
    "abs": _Row(arithmetic.absolute, integers.absolute),
    "sign": _Row(integers=integers.sign),
    "sqrt": _Row(arithmetic.square_root),
    "rsqrt": _Row(lambda e, a: arithmetic.reciprocal(e, arithmetic.square_root(e, a))),
    "floor": _Row(arithmetic.round_down),
    "ceil": _Row(lambda e, a: e.b.fneg(arithmetic.round_down(e, e.b.fneg(a)))),
    "round": _Row(arithmetic.round_to_even),
    "shift_left": _Row(integers=integers.shifted(to_the_left=True)),
    "shift_right": _Row(integers=integers.shifted(to_the_left=False)),
    "where": _Row(bits=lambda e, condition, a, b: e.b.select(condition, a, b)),
    "and": _Row(bits=lambda e, a, b: e.b.and_(a, b)),
    "or": _Row(bits=lambda e, a, b: e.b.or_(a, b)),
    "xor": _Row(bits=lambda e, a, b: e.b.xor(a, b)),
    "not": _Row(bits=lambda e, a: e.b.not_(a)),
    **{name: _comparison(name, operator) for name, operator in COMPARISONS.items()},
    "pow": _Row(f32.power_of, integers.power, instructions=_LONG),
    **{
        name: _Row(function, instructions=_LONG)
        for name, function in {
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
        }.items()
    },
}
_OF_F32 = {step for step, row in STEPS.items() if FLOATS - row.allowed == {DataType.f64}}
_EXTREMES: Mapping[str, Function] = {"minimum": vector.minimum, "maximum": vector.maximum}


def instructions(expression: Expression) -> int:
    """About how many instructions a function takes."""
    steps = expression.steps
    absorbed = {*_products(steps).values(), *_softplus(steps).values()}
    names = [step.name for number, step in enumerate(steps) if number not in absorbed]
    return sum(_ROWS[name].instructions for name in names if name in _ROWS)


def without_f64(expression: Expression) -> str | None:
    """The first function in it that is not computed in f64, if any."""
    return next((step.name for step in expression.steps if step.name in _OF_F32), None)


def refused(expression: Expression) -> DataType | None:
    """The first type that a function of a typed expression does not take, if any."""
    steps = expression.steps
    functions = (step for step in steps if step.sources)
    last = ((STEPS[step.name], steps[step.sources[-1]].data_type) for step in functions)
    return next((kind for row, kind in last if kind not in row.allowed), None)


def core(expression: Expression, *types: DataType) -> ir.Type:
    """What vectors of a typed expression are measured by: an integer as wide as the widest element
    of tensors and steps; arithmetic of floats has at least 32 bits."""
    bits = [data_type.bits for data_type in types]
    for step in expression.steps:
        assert step.data_type is not None
        computed = step.data_type.is_float and step.name in _ROWS and not _ROWS[step.name].bits
        bits.append(max(step.data_type.bits, 32 if computed else 0))
    return ir.IntType(max(bits))


def emit(e: Emitter, expression: Expression, parameters: Sequence[ir.Value]) -> ir.Value:
    """The result for each lane of vectors of parameters, of f32 or f64; in a typed expression they
    and the result are as they are stored.

    A product that only one sum reads is part of a fused multiply-add, where the target has one.
    Steps with types are rounded one by one.
    """
    steps, lanes = expression.steps, parameters[0].type.count
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
        elif step.name == PARAMETER:
            values.append(loaded(e, step.data_type, parameters[int(step.detail)]))
        elif step.name == CONSTANT:
            values.append(_constant(e, step, parameters[0]))
        else:
            values.append(_step(e, steps, step, values, lanes))
    return stored(e, steps[-1].data_type, values[-1], lanes)


def _products(steps: Sequence[Step]) -> dict[int, int]:
    """By sum or difference, the product that is part of it and that nothing else reads."""
    return _absorbed(steps, ("add", "sub"), "mul")


def _softplus(steps: Sequence[Step]) -> dict[int, int]:
    """By hyperbolic tangent, the softplus that it is of and that nothing else reads."""
    return _absorbed(steps, ("tanh",), "softplus")


def _absorbed(steps: Sequence[Step], readers: Container[str], name: str) -> dict[int, int]:
    uses = Counter(source for step in steps for source in step.sources)
    alone = {
        number
        for number, step in enumerate(steps)
        if step.name == name and step.data_type is None and uses[number] == 1
    }
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


def _constant(e: Emitter, step: Step, like: ir.Value) -> ir.Value:
    kind = step.data_type
    if kind is None:
        return arithmetic.constant(like, step.constant)
    bits = int(np.array(step.constant, kind.numpy).view(f"i{kind.size}"))
    element = vector.vector_type(ir.IntType(kind.bits), like.type.count)
    return loaded(e, kind, vector.splat_constant(element, bits))


def _step(
    e: Emitter, steps: Sequence[Step], step: Step, values: Sequence[ir.Value], lanes: int
) -> ir.Value:
    sources = [values[source] for source in step.sources]
    of = [each.data_type for each in (step, *(steps[source] for source in step.sources))]
    types = [data_type for data_type in of if data_type is not None]
    if step.name == CAST:
        return cast(e, types[0], types[1], sources[0], lanes)
    if step.name == BITCAST:
        return loaded(e, types[0], stored(e, types[1], sources[0], lanes))
    row = _ROWS[step.name]
    if row.bits is not None:
        return row.bits(e, *sources)
    if not types:
        return _of_reals(e, steps, step, sources)
    dst, *given = types
    if given[0].is_integer:
        return row.integers(e, [data_type.min < 0 for data_type in given], *sources)
    result = _of_reals(e, steps, step, [real(e, given[0], source) for source in sources])
    return result if dst is DataType.boolean else rounded(e, dst, result)


def _of_reals(
    e: Emitter, steps: Sequence[Step], step: Step, sources: Sequence[ir.Value]
) -> ir.Value:
    if step.name in _EXTREMES:
        for first, second in ((0, 1), (1, 0)):
            if _is_nan_only_with(steps, step.sources[first], step.sources[second]):
                return _EXTREMES[step.name](e, sources[first], sources[second])
    last = steps[step.sources[-1]]
    if step.name == "pow" and last.name == CONSTANT:
        return f32.power(e, sources[0], last.constant)
    return _ROWS[step.name].reals(e, *sources)


def _is_nan_only_with(steps: Sequence[Step], first: int, second: int) -> bool:
    """Whether a value is NaN only where another one is: a number, or the other times a number."""
    step = steps[first]
    if step.name == CONSTANT:
        return not math.isnan(step.constant)
    if step.name != "mul" or second not in step.sources:
        return False
    factors = [steps[n] for n in step.sources if n != second]
    return all(f.name == CONSTANT and 0.0 < abs(f.constant) < math.inf for f in factors)
