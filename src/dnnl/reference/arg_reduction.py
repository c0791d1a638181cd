"""Arg reduction: dst[.., 0, ..] = the place k of the best src[.., k, ..] along an axis.

A NaN is better than any number, as NumPy has it; 0 and -0 are equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import byte_range, generator, integers
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values
from dnnl.types.arg import Arg


def arg_reduction(src: ArrayLike, function: str, axis: int, tie: str = "first") -> Array:
    """The places, with 1 along the axis; ``function`` is ``max`` or ``min``."""
    find = np.argmax if function == "max" else np.argmin
    data = np.asarray(src)
    if tie == "last":
        return f64(data.shape[axis] - 1 - find(np.flip(data, axis), axis, keepdims=True))
    return f64(find(data, axis, keepdims=True))


class _ArgReduction(Specification):
    """Whole numbers, some of which are equal."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Whole numbers of a byte."""
        src = desc.src_desc
        low, high = byte_range(src.data_type)
        low = 0 if src.data_type.min == 0 else low
        return {Arg.SRC: integers(generator("arg_reduction", src.dims), src.dims, low, high)}

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The places."""
        return {Arg.DST: arg_reduction(values[Arg.SRC], desc.function, desc.axis, desc.tie)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality; the place of a short row is often 0."""
        return Rule(0.0, zeros=100.0)


SPECIFICATION = _ArgReduction()
