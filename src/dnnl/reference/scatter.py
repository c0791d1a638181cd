"""Scatter: dst = src, then dst[.., indices[j], ..] = updates[.., j, ..], one j after the other.

With indices of elements dst[i, indices[i, j, ..], ..] = updates[i, j, ..]. A function combines what
is there with the update. An index below zero counts from the end; one out of range is clamped to
the nearest slice that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.conversions import convert
from dnnl.reference.fill import generator, integers
from dnnl.reference.rule import Rule
from dnnl.reference.specification import Description, Specification, Values
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType

_FUNCTIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "none": lambda _, update: update,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def scatter(
    src: ArrayLike,
    indices: ArrayLike,
    updates: ArrayLike,
    axis: int,
    function: str = "none",
    kind: DataType = DataType.f64,
) -> Array:
    """``indices`` are whole numbers, in one dimension or in those of the updates; elements have the
    type ``kind``, in which integers wrap."""
    held = kind.numpy if kind.is_integer else np.float64
    made = np.moveaxis(np.array(src, held), axis, 0)
    given = np.moveaxis(np.array(updates, held), axis, 0)
    wanted, extent = f64(indices), made.shape[0]
    from_front = np.where(wanted < 0, wanted + extent, wanted)
    places = np.clip(from_front, 0, max(0, extent - 1)).astype(np.int64)
    if places.ndim < given.ndim or places.ndim == 1:
        places = places.reshape(-1, *[1] * (given.ndim - 1))
    else:
        places = np.moveaxis(places, axis, 0)
    places = np.broadcast_to(places, given.shape)
    others = np.indices(given.shape[1:], sparse=True)
    for number in range(given.shape[0]):
        where = (places[number], *others)
        found = _FUNCTIONS[function](made[where], given[number])
        made[where] = convert(found, kind, DataType.f64) if kind.is_float else found
    return f64(np.moveaxis(made, 0, axis))


class _Scatter(Specification):
    """Small whole numbers; indices from both ends, some of them equal, a few out of range."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Numbers whose sums every type holds, and factors of 1 and 2."""
        src, indices, updates = desc.src_desc, desc.indices_desc, desc.updates_desc
        extent = src.dims[desc.axis]
        rng = generator("scatter", src.dims, updates.dims)
        low, high = (1, 2) if desc.function == "mul" else (0, 6)
        return {
            Arg.SRC: integers(rng, src.dims, 1, 6),
            Arg.SRC_1: integers(rng, indices.dims, -extent - 2, extent + 1),
            Arg.SRC_2: integers(rng, updates.dims, low, high),
        }

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The same, in float64."""
        src, indices, updates = values[Arg.SRC], values[Arg.SRC_1], values[Arg.SRC_2]
        kind = desc.dst_desc.data_type
        return {Arg.DST: scatter(src, indices, updates, desc.axis, desc.function, kind)}

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """Equality."""
        return Rule(0.0, zeros=100.0)


SPECIFICATION = _Scatter()
