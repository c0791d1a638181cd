"""The value of a traced function, interpreted in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.types.expression import CONSTANT, FUNCTIONS, PARAMETER, Expression

_NUDGE = 2.0**-20  # small, so that a function is straight, and far above the epsilon of f64


@np.errstate(all="ignore")
def evaluate(expression: Expression, parameters: Sequence[ArrayLike], nudged: int = -1) -> Array:
    """The result for arrays of parameters, which are broadcast. What the step ``nudged`` gives is
    taken as a little larger than it is."""
    given = np.broadcast_arrays(*map(f64, parameters))
    values: list[Any] = []
    for number, step in enumerate(expression.steps):
        if step.name == PARAMETER:
            values.append(given[int(step.detail)])
        elif step.name == CONSTANT:
            values.append(np.full(given[0].shape, step.constant))
        else:
            values.append(FUNCTIONS[step.name](*(values[source] for source in step.sources)))
        if number == nudged:
            values[-1] = values[-1] * (1 + _NUDGE)
    return f64(values[-1])


@np.errstate(all="ignore")
def sensitivity(expression: Expression, parameters: Sequence[ArrayLike]) -> Array:
    """How much larger the error of the result can be than the relative error of each step: the
    terms that cancel, and what a function makes of an error before it."""
    want = evaluate(expression, parameters)
    total = np.zeros_like(want)
    for number, step in enumerate(expression.steps):
        if step.name != PARAMETER and not step.is_truth:
            total += np.abs(evaluate(expression, parameters, number) - want) / _NUDGE
    return np.nan_to_num(total, posinf=0.0)
