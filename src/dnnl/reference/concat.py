"""Concatenation along one dimension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import byte_range, generator, integers
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values, inputs
from dnnl.reference.tolerance import EXACT
from dnnl.types.arg import Arg

TOLERANCE = EXACT


def concat(srcs: Sequence[ArrayLike], axis: int) -> Array:
    """The sources agree in every dimension but ``axis``."""
    return np.concatenate([f64(src) for src in srcs], axis=axis)


class _Concat(Specification):
    """Numbers that every type holds."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Whole numbers of a byte."""
        values = {}
        for argument, source in inputs(desc):
            rng = generator("concat", argument, source.dims)
            values[argument] = integers(rng, source.dims, *byte_range(source.data_type))
        return values

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The sources side by side."""
        return {Arg.DST: concat([values[argument] for argument, _ in inputs(desc)], desc.axis)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality."""
        return Rule(0.0, zeros=65 if desc.dst_desc.data_type.min >= 0 else 30)


SPECIFICATION = _Concat()
