"""The value of an expression, step by step: in float64, or in the types that its steps have, where
integers wrap and floats are rounded at each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.types import typed
from dnnl.types.dtype import DataType
from dnnl.types.expression import BITCAST, CAST, CONSTANT, FUNCTIONS, PARAMETER, Expression, Step

Typed = np.ndarray

_NUDGE = 2.0**-20  # small, so that a function is straight, and far above the epsilon of f64
_APPROXIMATED = FUNCTIONS.keys() - {
    "abs", "add", "ceil", "div", "floor", "maximum", "minimum", "mul", "neg", "round", "sqrt",
    "sub", "where",
}  # fmt: skip
"""The steps whose result of floats is not the one correctly rounded."""


def _divide(a: Typed, b: Typed) -> Typed:
    """Towards zero; 0 where ``b`` is 0."""
    down = np.floor_divide(a, b)
    return np.asarray(down + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(a.dtype))


def _power(base: Typed, exponent: Typed) -> Typed:
    """Wrapped as products are; a negative exponent is that of the reciprocal, towards zero."""
    span = 2 ** (8 * base.dtype.itemsize)

    def power(x: int, n: int) -> int:
        if n < 0:
            x, n = (x, n % 2) if abs(x) == 1 else (0, 1)
        result = int(pow(int(x), int(n), span))
        return result - span if base.dtype.kind == "i" and result >= span // 2 else result

    wide = np.frompyfunc(power, 2, 1)(base.astype(object), exponent.astype(object))
    return np.asarray(wide).astype(base.dtype)


_IN_TYPES: Mapping[str, Callable[..., Any]] = {
    **FUNCTIONS,
    "and": np.bitwise_and,
    "div": _divide,
    "mod": np.mod,
    "not": np.invert,
    "or": np.bitwise_or,
    "pow": _power,
    "remainder": np.fmod,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "sign": np.sign,
    "xor": np.bitwise_xor,
}


_REMAINDERS = frozenset({"mod", "remainder"})


def exact(function: str, sources: Sequence[Typed], dst: DataType) -> Typed:
    """The function of arrays that have the NumPy types of their data types, as one of ``dst``.

    What is divided by zero, or shifted by the width of its type or more, is 0; -1 where a negative
    value is shifted to the right. A float becomes the nearest integer towards zero that ``dst``
    has, NaN becomes 0. Arithmetic of floats is rounded to f32, unless it is of f64, and to ``dst``.
    """
    with np.errstate(all="ignore"):
        return _in_types(typed.FUNCTIONS[function], sources, dst)


def _in_types(step: str, sources: Sequence[Typed], dst: DataType, nudge: float = 0.0) -> Typed:
    if step == CAST:
        return _cast(sources[0], dst)
    if step == BITCAST:
        return _bits(sources[0], dst)
    if step == "where" or not dst.is_float:
        return np.asarray(_IN_TYPES[step](*sources))
    core = DataType.f64 if dst is DataType.f64 else DataType.f32
    if step in _REMAINDERS:  # whose last step is a sum in the type
        wide = (np.asarray(source).astype(core.numpy) for source in sources)
        return np.asarray(_IN_TYPES[step](*wide)).astype(dst.numpy)
    number = FUNCTIONS[step](*map(f64, sources)) * (1 + nudge)
    return np.asarray(number, core.numpy).astype(dst.numpy)


def _cast(source: Typed, dst: DataType) -> Typed:
    whole = dst.is_integer and dst is not DataType.boolean
    if not whole or source.dtype.kind in "biu":
        return source.astype(dst.numpy)
    wide = f64(source)
    inside = (wide > dst.min - 1) & (wide < 2.0**dst.digits)
    limits = np.where(wide > 0, *(np.array(n, dst.numpy) for n in (dst.max, dst.min)))
    found = np.where(inside, np.where(inside, wide, 0).astype(dst.numpy), limits)
    return np.where(np.isnan(wide), np.array(0, dst.numpy), found)


def _bits(source: Typed, dst: DataType) -> Typed:
    """A truth value is a byte: 1 is written, and any but 0 is true."""
    bits = np.asarray(source)
    return bits.view(np.uint8) != 0 if dst is DataType.boolean else bits.view(dst.numpy)


@np.errstate(all="ignore")
def evaluate(
    expression: Expression,
    parameters: Sequence[ArrayLike],
    nudged: int = -1,
    nudge: float = _NUDGE,
) -> Array:
    """The result for arrays of parameters, which are broadcast; those of a typed expression have
    the NumPy types of their data types, and so has the result. What the step ``nudged`` gives is
    taken as ``nudge`` times larger than it is, before it is rounded to its type."""
    values: list[Any] = []
    for number, step in enumerate(expression.steps):
        kind, given = step.data_type, [values[source] for source in step.sources]
        error = nudge if number == nudged else 0.0
        if step.name == PARAMETER:
            value = parameters[int(step.detail)]
            values.append(f64(value) if kind is None else value)
        elif step.name == CONSTANT:
            values.append(np.array(step.constant, np.float64 if kind is None else kind.numpy))
        elif kind is None:
            values.append(FUNCTIONS[step.name](*given))
        else:
            values.append(_in_types(step.name, given, kind, error))
        if error and kind is None:
            values[-1] = values[-1] * (1 + error)
    shape = np.broadcast_shapes(*map(np.shape, parameters))
    return np.array(np.broadcast_to(values[-1], shape))


@np.errstate(all="ignore")
def sensitivity(expression: Expression, parameters: Sequence[ArrayLike]) -> Array:
    """How much larger the error of the result can be than the relative error of each step: the
    terms that cancel, and what a function makes of an error before it."""
    want = f64(evaluate(expression, parameters))
    total = np.zeros_like(want)
    for number, step in enumerate(expression.steps):
        if not is_exact(step):
            found = (evaluate(expression, parameters, number, n) for n in (-_NUDGE, _NUDGE))
            total += np.maximum(*(np.abs(f64(each) - want) for each in found)) / _NUDGE
    return np.nan_to_num(total, posinf=0.0)


def is_exact(step: Step) -> bool:
    """Whether a step has no error but that its type has; those without types have one."""
    if step.data_type is None:
        return step.name == PARAMETER or step.is_truth
    return not step.data_type.is_float or step.name not in _APPROXIMATED
