"""Functions of scalars as values: what a traced Python function computes, step by step.

An expression is a list of steps, each of which names earlier ones as its sources. Equal programs
are equal values with equal hashes, whatever Python functions they came from; they can be pickled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dnnl.types.dtype import DataType

PARAMETER, CONSTANT, CAST, BITCAST = "parameter", "constant", "cast", "bitcast"

COMPARISONS: Mapping[str, str] = {
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
"""The functions of two numbers that give a truth value, with Python's operators."""
_each_erfc = np.vectorize(math.erfc, otypes=[np.float64])
LOGIC = frozenset(("and", "or", "not"))
"""The functions of truth values that give one."""
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "minimum": np.minimum, "maximum": np.maximum, "neg": np.negative, "abs": np.abs,
    "sqrt": np.sqrt, "rsqrt": lambda a: 1 / np.sqrt(a), "exp": np.exp, "log": np.log,
    "expm1": np.expm1, "log1p": np.log1p, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sigmoid": lambda a: np.exp(-np.logaddexp(0.0, -a)),
    "softplus": lambda a: np.logaddexp(0.0, a), "floor": np.floor, "ceil": np.ceil,
    "round": np.round, "normal_cdf": lambda a: 0.5 * _each_erfc(-a / math.sqrt(2.0)),
    "exp_of_negative": lambda a: np.exp(np.minimum(a, 0.0)),
    "expm1_of_negative": lambda a: np.expm1(np.minimum(a, 0.0)),
    "softplus_tail": lambda a: np.log1p(np.exp(-np.abs(a))), "where": np.where,
    "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "and": np.logical_and,
    "or": np.logical_or, "not": np.logical_not,
}  # fmt: skip
"""What each function computes, of arrays of f64. The first source of ``where`` is a truth value.

``exp_of_negative`` is e^x of what is not positive, and 0 where that would be denormal;
``expm1_of_negative`` is e^x - 1, and 0 of what is positive; ``softplus_tail`` is ln(1 + e^-|x|).
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One function of earlier steps.

    ``detail`` is the place of a parameter, or the text of a constant (``float.hex``: so -0 differs
    from 0, and NaN equals itself). A step of a typed expression has a ``data_type``, that of its
    result (`dnnl.types.typed` has the rules); the others are computed as f32 or f64.
    """

    name: str
    sources: tuple[int, ...] = ()
    detail: str = ""
    data_type: DataType | None = None

    @property
    def is_truth(self) -> bool:
        """Whether the step gives a truth value, where it has no data type."""
        return self.data_type is None and (self.name in COMPARISONS or self.name in LOGIC)

    @property
    def constant(self) -> float:
        """The number of a constant, an int where it is of a type of integers."""
        whole = self.data_type is not None and self.data_type.is_integer
        return int(self.detail) if whole else float.fromhex(self.detail)


@dataclass(frozen=True, slots=True)
class Expression:
    """A number that follows from ``parameters`` numbers; the last step is the result."""

    parameters: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        texts: list[str] = []
        for step in self.steps:
            sources = ", ".join(texts[source] for source in step.sources)
            if step.name == PARAMETER:
                texts.append("xyz"[int(step.detail)] if self.parameters < 4 else f"x{step.detail}")
            elif step.name == CONSTANT:
                whole = step.data_type is not None and step.data_type.is_integer
                texts.append(step.detail if whole else f"{step.constant:g}")
            else:
                own = {CAST: str(step.data_type), BITCAST: f"{step.data_type}_bits"}
                texts.append(f"{own.get(step.name, step.name)}({sources})")
        return texts[-1]


@dataclass(frozen=True, slots=True)
class Function:
    """A traced Python function. Two are equal if they compute the same, whatever they are called;
    ``str`` gives its name as verbose lines have it."""

    expression: Expression
    name: str = field(default="function", compare=False)

    def __str__(self) -> str:
        return re.sub(r"\W", "", self.name) or "function"
