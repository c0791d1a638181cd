"""The value of a traced function, interpreted in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.types.expression import CONSTANT, FUNCTIONS, PARAMETER, Expression


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
            values.append(FUNCTIONS[step.name](*(values[source] for source in step.sources)))
    return f64(values[-1])
