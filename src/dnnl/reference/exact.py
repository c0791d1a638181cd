"""Functions of elements in their own types: integers wrap, nothing is rounded but to the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import generator, integers
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values, inputs
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.expression import CONSTANT, PARAMETER, Expression, Function

Typed = np.ndarray


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


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.absolute,
    "add": np.add,
    "and": np.bitwise_and,
    "div": _divide,
    "equal": np.equal,
    "greater": np.greater,
    "greater_or_equal": np.greater_equal,
    "less": np.less,
    "less_or_equal": np.less_equal,
    "max": np.maximum,
    "min": np.minimum,
    "mod": np.mod,
    "mul": np.multiply,
    "neg": np.negative,
    "not": np.invert,
    "not_equal": np.not_equal,
    "or": np.bitwise_or,
    "pow": _power,
    "remainder": np.fmod,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "sign": np.sign,
    "sub": np.subtract,
    "where": np.where,
    "xor": np.bitwise_xor,
}


def exact(function: str, sources: Sequence[Typed], dst: DataType) -> Typed:
    """The function of arrays that have the NumPy types of their data types, as one of ``dst``.

    What is divided by zero, or shifted by the width of its type or more, is 0; -1 where a negative
    value is shifted to the right. A float becomes the nearest integer towards zero that ``dst``
    has, NaN becomes 0.
    """
    with np.errstate(all="ignore"):
        if function != "cast":
            return np.asarray(_FUNCTIONS[function](*sources))
        (source,) = sources
        whole = dst.is_integer and dst is not DataType.boolean
        if not whole or source.dtype.kind in "biu":
            return source.astype(dst.numpy)
        wide = f64(source)
        inside = (wide > dst.min - 1) & (wide < 2.0**dst.digits)
        limits = np.where(wide > 0, *(np.array(n, dst.numpy) for n in (dst.max, dst.min)))
        found = np.where(inside, np.where(inside, wide, 0).astype(dst.numpy), limits)
        return np.where(np.isnan(wide), np.array(0, dst.numpy), found)


_NAMES = {
    "eq": "equal", "ge": "greater_or_equal", "gt": "greater", "le": "less_or_equal", "lt": "less",
    "maximum": "max", "minimum": "min", "ne": "not_equal",
}  # fmt: skip
"""What steps are called that have other names in descriptions."""


def evaluate(expression: Expression, sources: Sequence[Typed]) -> Typed:
    """A typed expression of arrays that have the NumPy types of their data types."""
    values: list[Typed] = []
    for step in expression.steps:
        assert step.data_type is not None
        if step.name == PARAMETER:
            values.append(sources[int(step.detail)])
        elif step.name == CONSTANT:
            values.append(np.array(step.constant, step.data_type.numpy))
        else:
            given = [values[n] for n in step.sources]
            values.append(exact(_NAMES.get(step.name, step.name), given, step.data_type))
    return values[-1]


class _Exact(Specification):
    """Numbers that every type holds."""

    direct = True

    def fill(self, desc: Description) -> dict[int, Array]:
        """Small whole numbers, halved in floats."""
        values = {}
        for argument, source in inputs(desc):
            rng, kind = generator("exact", argument, source.dims), source.data_type
            low = max(-8, int(kind.min)) if kind.is_integer else -8
            numbers = integers(rng, source.dims, low, min(8, int(min(kind.max, 8))))
            values[argument] = numbers / 2 if kind.is_float else numbers
        return values

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The function, in the types of the tensors."""
        typed = [values[at].astype(source.data_type.numpy) for at, source in inputs(desc)]
        if isinstance(desc.function, Function):
            return {Arg.DST: f64(evaluate(desc.function.expression, typed))}
        return {Arg.DST: f64(exact(desc.function, typed, desc.dst_desc.data_type))}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality."""
        return Rule(0.0, zeros=99)


SPECIFICATION = _Exact()
