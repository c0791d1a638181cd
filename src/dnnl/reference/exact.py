"""The record of functions of elements in their own types (`reference/expression.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.reference.arrays import Array, f64
from dnnl.reference.expression import Typed, evaluate, is_exact, sensitivity
from dnnl.reference.fill import generator, integers
from dnnl.reference.rule import Rule, core_eps
from dnnl.reference.specification import Description, Specification, Values, inputs
from dnnl.types.arg import Arg

_ULPS = 34
"""How far elementary functions may be from the correctly rounded result."""


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
        return {Arg.DST: f64(evaluate(desc.expression, _typed(desc, values)))}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality, unless there are approximations; then relative to what their errors become."""
        expression, kind = desc.expression, desc.dst_desc.data_type
        if all(map(is_exact, expression.steps)):
            return Rule(0.0, zeros=99, non_finite=True)
        size = sensitivity(expression, _typed(desc, values))
        threshold = max(_ULPS * core_eps(kind), kind.eps)
        return Rule(threshold, zeros=99, non_finite=True, size=size)


def _typed(desc: Description, values: Values) -> list[Typed]:
    return [values[at].astype(source.data_type.numpy) for at, source in inputs(desc)]


SPECIFICATION = _Exact()
