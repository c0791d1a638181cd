"""Result columns for the outputs of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dnnl.errors import InvalidArguments
from dnnl.framework import Model
from dnnl.graph.graph import Shape
from dnnl.tools.score.arrow import Column
from dnnl.tools.score.folder import PATH, ROW


def columns_of(
    model: Model, shapes: Mapping[str, Shape], batch: int, others: Sequence[str]
) -> tuple[Column, ...]:
    """A column for each output of a model.

    ``shapes`` has the row shapes of the inputs whose rows all have the same, ``others`` the names
    of copied columns. Raises InvalidArguments for an output without one result for each row, and
    for one with the name of another column.
    """
    for name in model.outputs:
        if name in (PATH, ROW, *others):
            hint = "--columns without it" if name in others else ""
            raise InvalidArguments("MODEL", name, "an output and a column have this name", hint)
    for name in others:
        if name in (PATH, ROW) or list(others).count(name) > 1:
            raise InvalidArguments("--columns", name, "results have a column of this name already")
    if set(shapes) != set(model.inputs):
        return tuple(Column(name, None) for name in model.outputs)
    known = model.with_shapes({name: (batch, *shape) for name, shape in shapes.items()}).graph
    columns = []
    for name, value in known.outputs.items():
        kind = known.types.get(value)
        if kind is None or not all(isinstance(size, int) for size in kind.shape):
            columns.append(Column(name, None))  # the model decides the sizes of what it computes
            continue
        if kind.shape[:1] != (batch,):
            rule = f"{kind} has no result for each of {batch} rows"
            raise InvalidArguments("MODEL", f"output {name}", rule)
        columns.append(Column(name, kind.sizes[1:]))
    return tuple(columns)
