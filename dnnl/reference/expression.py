"""The value of a traced function, interpreted in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.types.expression import CONSTANT, PARAMETER, Expression

_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "minimum": np.minimum, "maximum": np.maximum, "neg": np.negative, "abs": np.abs,
    "sqrt": np.sqrt, "rsqrt": lambda a: 1 / np.sqrt(a), "exp": np.exp, "log": np.log,
    "tanh": np.tanh, "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sigmoid": lambda a: np.exp(-np.logaddexp(0.0, -a)),
    "softplus": lambda a: np.logaddexp(0.0, a), "floor": np.floor, "ceil": np.ceil,
    "round": np.round, "where": np.where, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "and": np.logical_and,
    "or": np.logical_or, "not": np.logical_not,
}  # fmt: skip


@np.errstate(all="ignore")
def evaluate(expression: Expression, parameters: Sequence[ArrayLike]) -> Array:
    """The result for arrays of parameters, which are broadcast."""
    given = np.broadcast_arrays(*map(f64, parameters))
    values: list[Any] = []
    for step in expression.steps:
        if step.name == PARAMETER:
            values.append(given[int(step.detail)])
        elif step.name == CONSTANT:
            values.append(np.full(given[0].shape, step.constant))
        else:
            values.append(_FUNCTIONS[step.name](*(values[source] for source in step.sources)))
    return f64(values[-1])
