"""Functions of elements in their own types: which types each takes together.

They are the steps of typed expressions, in which integers wrap. Floats are computed in f32, f64 in
f64, and each step is rounded to its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dnnl.types.dtype import DataType
from dnnl.types.expression import BITCAST, CAST, COMPARISONS, PARAMETER, Expression, Step

BOOLEAN = frozenset({DataType.boolean})
INTEGERS = frozenset(t for t in DataType if t.is_integer and t.bits >= 8) - BOOLEAN
FLOATS = frozenset({DataType.f64, DataType.f32, DataType.bf16, DataType.f16})
TYPES = INTEGERS | FLOATS | BOOLEAN
"""The types that can be converted into each other."""


@dataclass(frozen=True)
class Signature:
    """Which types go together: of dst, then of as many sources as there are."""

    sources: int
    rule: str
    fits: Callable[..., bool]


_ALL = "all tensors have one data type"
_ONE = Signature(1, _ALL, lambda dst, src: dst is src)
_TWO = Signature(2, _ALL, lambda dst, a, b: dst is a is b)
_TRUTH_OF_TWO = Signature(
    2,
    "the sources have one data type, dst is boolean",
    lambda dst, a, b: a is b and dst is DataType.boolean,
)
_POWER = Signature(
    2,
    "dst has the data type of the base, which is the first; both are integers or have one type",
    lambda dst, a, b: dst is a and (a is b or {a, b} <= INTEGERS),
)
_CHOICE = Signature(
    3,
    "the first source is boolean, the others have the data type of dst",
    lambda dst, c, a, b: c is DataType.boolean and dst is a is b,
)
_ANY = Signature(1, "any data types", lambda dst, src: True)
_AS_WIDE = Signature(
    1, "both data types have the same number of bits", lambda dst, src: dst.bits == src.bits
)


@dataclass(frozen=True)
class TypedFunction:
    """A step of an expression. Each source is of one of the types ``allowed``, but for the
    conditions that ``signature`` wants to be boolean."""

    signature: Signature
    allowed: frozenset[DataType]


NUMBERS = INTEGERS | FLOATS
_BITS = INTEGERS | BOOLEAN


def _rows(
    signature: Signature, allowed: frozenset[DataType], *steps: str
) -> dict[str, TypedFunction]:
    return dict.fromkeys(steps, TypedFunction(signature, allowed))


_PARTS = ("exp_of_negative", "expm1_of_negative", "normal_cdf", "softplus_tail")
"""The steps that only algorithms are made of."""
STEPS: Mapping[str, TypedFunction] = {
    **_rows(_ONE, NUMBERS, "abs", "neg"),
    **_rows(_TWO, NUMBERS, "add", "div", "maximum", "minimum", "mod", "mul", "remainder", "sub"),
    **_rows(_TWO, INTEGERS, "shift_left", "shift_right"),
    **_rows(_ONE, INTEGERS, "sign"),
    **_rows(_POWER, NUMBERS, "pow"),
    **_rows(_TWO, _BITS, "and", "or", "xor"),
    **_rows(_ONE, _BITS, "not"),
    **_rows(_TRUTH_OF_TWO, TYPES, "eq", "ne"),
    **_rows(_TRUTH_OF_TWO, NUMBERS, "ge", "gt", "le", "lt"),
    **_rows(_ANY, TYPES, CAST),
    **_rows(_AS_WIDE, TYPES, BITCAST),
    **_rows(_CHOICE, TYPES, "where"),
    **_rows(_ONE, FLOATS, "ceil", "floor", "round", "rsqrt", "sqrt"),
    **_rows(_ONE, FLOATS, "erf", "exp", "log", "sigmoid", "softplus", "tanh", *_PARTS),
    **_rows(_ONE, FLOATS - {DataType.f64}, "cos", "expm1", "log1p", "sin"),
}
"""By the names that steps have."""
_NAMES = {
    "eq": "equal", "ge": "greater_or_equal", "gt": "greater", "le": "less_or_equal", "lt": "less",
    "maximum": "max", "minimum": "min", "ne": "not_equal",
}  # fmt: skip
"""What steps are called that have other names in descriptions."""
FUNCTIONS: Mapping[str, str] = {
    _NAMES.get(step, step): step for step in sorted(STEPS) if step not in _PARTS
}
"""The steps by the names that `ExactDesc` takes."""


def result_of(step: str, sources: Sequence[DataType]) -> DataType:
    """The type that a step gives of such sources; that of a conversion is given with it."""
    return DataType.boolean if step in COMPARISONS else sources[step == "where"]


def expression_of(function: str, types: Sequence[DataType]) -> Expression:
    """A function by its name, of sources with the types that follow dst's."""
    dst, *sources = types
    steps = [Step(PARAMETER, (), str(n), kind) for n, kind in enumerate(sources)]
    last = Step(FUNCTIONS[function], tuple(range(len(sources))), "", dst)
    return Expression(len(sources), (*steps, last))
