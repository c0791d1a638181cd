"""Functions of elements in their own types: which types each takes together.

They are the steps of typed expressions, in which integers wrap and truth values are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dnnl.types.dtype import DataType
from dnnl.types.expression import CAST, COMPARISONS, PARAMETER, Expression, Step

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
    "dst has the data type of the base, which is the first and an integer",
    lambda dst, a, _: dst is a and a in INTEGERS,
)
_CHOICE = Signature(
    3,
    "the first source is boolean, the others have the data type of dst",
    lambda dst, c, a, b: c is DataType.boolean and dst is a is b,
)
_ANY = Signature(1, "any data types", lambda dst, src: True)


@dataclass(frozen=True)
class TypedFunction:
    """The step of an expression that computes a function.

    Each source is of one of the types ``allowed``, but for the conditions that ``signature`` wants
    to be boolean.
    """

    step: str
    signature: Signature
    allowed: frozenset[DataType] = INTEGERS


_BITS = INTEGERS | BOOLEAN

FUNCTIONS: Mapping[str, TypedFunction] = {
    "abs": TypedFunction("abs", _ONE),
    "add": TypedFunction("add", _TWO),
    "and": TypedFunction("and", _TWO, _BITS),
    "cast": TypedFunction(CAST, _ANY, TYPES),
    "div": TypedFunction("div", _TWO),
    "equal": TypedFunction("eq", _TRUTH_OF_TWO, TYPES),
    "greater": TypedFunction("gt", _TRUTH_OF_TWO, INTEGERS | FLOATS),
    "greater_or_equal": TypedFunction("ge", _TRUTH_OF_TWO, INTEGERS | FLOATS),
    "less": TypedFunction("lt", _TRUTH_OF_TWO, INTEGERS | FLOATS),
    "less_or_equal": TypedFunction("le", _TRUTH_OF_TWO, INTEGERS | FLOATS),
    "max": TypedFunction("maximum", _TWO),
    "min": TypedFunction("minimum", _TWO),
    "mod": TypedFunction("mod", _TWO),
    "mul": TypedFunction("mul", _TWO),
    "neg": TypedFunction("neg", _ONE),
    "not": TypedFunction("not", _ONE, _BITS),
    "not_equal": TypedFunction("ne", _TRUTH_OF_TWO, TYPES),
    "or": TypedFunction("or", _TWO, _BITS),
    "pow": TypedFunction("pow", _POWER),
    "remainder": TypedFunction("remainder", _TWO),
    "shift_left": TypedFunction("shift_left", _TWO),
    "shift_right": TypedFunction("shift_right", _TWO),
    "sign": TypedFunction("sign", _ONE),
    "sub": TypedFunction("sub", _TWO),
    "where": TypedFunction("where", _CHOICE, TYPES),
    "xor": TypedFunction("xor", _TWO, _BITS),
}
"""By the names that `ExactDesc` takes."""
STEPS: Mapping[str, TypedFunction] = {row.step: row for row in FUNCTIONS.values()}
"""By the names that steps have."""


def result_of(step: str, sources: Sequence[DataType]) -> DataType:
    """The type that a step gives of such sources; that of a conversion is free."""
    return DataType.boolean if step in COMPARISONS else sources[step == "where"]


def expression_of(function: str, types: Sequence[DataType]) -> Expression:
    """A function by its name, of sources with the types that follow dst's."""
    dst, *sources = types
    steps = [Step(PARAMETER, (), str(n), kind) for n, kind in enumerate(sources)]
    last = Step(FUNCTIONS[function].step, tuple(range(len(sources))), "", dst)
    return Expression(len(sources), (*steps, last))
