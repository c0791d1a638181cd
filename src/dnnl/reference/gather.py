"""Gather: slices or elements along one axis, in the order that indices say.

dst[.., j, ..] = src[.., indices[j], ..], or of indices with as many dimensions as src
dst[i, j, ..] = src[i, indices[i, j, ..], ..]

An index below zero counts from the end; one out of range is clamped to the nearest slice
that there is, as ``numpy.take`` has it with ``mode="clip"``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import byte_range, generator, integers
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values, zero_limit
from dnnl.reference.tolerance import EXACT
from dnnl.types.arg import Arg

TOLERANCE = EXACT


def gather(src: ArrayLike, indices: ArrayLike, axis: int) -> Array:
    """``indices`` are whole numbers, in one dimension or in those of src."""
    data = f64(src)
    wanted, extent = f64(indices), data.shape[axis]
    from_front = np.where(wanted < 0, wanted + extent, wanted)
    places = np.clip(from_front, 0, max(0, extent - 1)).astype(np.int64)
    if places.ndim < data.ndim:
        return np.take(data, places, axis)
    reached = tuple(slice(extent if d == axis else n) for d, n in enumerate(places.shape))
    return np.take_along_axis(data[reached], places, axis)


class _Gather(Specification):
    """Numbers that every type holds; indices from both ends, and a few out of range."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Whole numbers of a byte, and indices."""
        src, indices = desc.src_desc, desc.indices_desc
        extent = src.dims[desc.axis]
        numbers = generator("gather", src.dims, indices.dims)
        low = -extent - 2 if indices.data_type.min < 0 else 0
        return {
            Arg.SRC: integers(numbers, src.dims, *byte_range(src.data_type)),
            Arg.SRC_1: integers(numbers, indices.dims, low, extent + 1),
        }

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The same elements."""
        return {Arg.DST: gather(values[Arg.SRC], values[Arg.SRC_1], desc.axis)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality."""
        return Rule(0.0, zero_limit(desc.desc_of(argument).data_type))


SPECIFICATION = _Gather()
