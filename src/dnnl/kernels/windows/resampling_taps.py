"""Which elements contribute to an element of a resized image, and with which weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.taps import Places, Weights

_TABLE = -1  # the slot of a table, which is no argument


def usual(old: int, new: int, linear: bool) -> tuple[Places, Weights]:
    """The elements of ``old`` that contribute to each element of ``new`` without given taps, and
    their weights: both [taps, new].

    The position of element ``at`` is ``x = (at + 1/2) * old / new - 1/2``, computed in integers as
    multiples of 1 / (2 * new). If both taps are the same element, each has weight 1/2: a weight of
    0 would turn an infinity into NaN.
    """
    unit, odd = 2 * new, 2 * np.arange(new, dtype=np.int64) + 1
    if not linear:
        return (odd * old // unit)[np.newaxis], np.ones((1, new))
    place = odd * old - new
    first = np.maximum(place // unit, 0)
    last = np.minimum(-(-place // unit), old - 1)
    weight = np.where(first == last, 0.5, np.abs(place - first * unit) / unit)
    return np.stack([first, last]), np.stack([1.0 - weight, weight])


@dataclass(frozen=True, eq=False)
class Table:
    """The ``places`` and ``weights`` of the taps of each element: [taps, elements]. ``gaps`` says
    that elements have fewer taps, whose other weights are 0."""

    places: Places
    weights: Weights
    gaps: bool

    @staticmethod
    def forward(places: Places, weights: Weights) -> Table:
        """The taps of each element of dst."""
        if (places == places[0]).all():
            places, weights = places[:1], np.ones((1, places.shape[1]))
        return Table(places, weights, False)

    @staticmethod
    def backward(places: Places, weights: Weights, old: int) -> Table:
        """The taps of each of ``old`` elements of src: the elements of dst to which it
        contributes."""
        new = places.shape[1]
        sources = np.broadcast_to(np.arange(new), places.shape)
        some = weights != 0.0
        pairs, which = np.unique(places[some] * new + sources[some], return_inverse=True)
        weight = np.bincount(which, weights[some], len(pairs))
        elements, sources = np.divmod(pairs, new)
        counts = np.bincount(elements, minlength=old)
        number = np.arange(len(pairs)) - (np.cumsum(counts) - counts)[elements]
        most = max(1, int(counts.max()))
        firsts = np.zeros(old, np.int64)
        firsts[elements[number == 0]] = sources[number == 0]
        table = Table(np.tile(firsts, (most, 1)), np.zeros((most, old)), bool(counts.min() < most))
        table.places[number, elements], table.weights[number, elements] = sources, weight
        return table

    @property
    def taps(self) -> int:
        """The number of taps of an element."""
        return len(self.places)

    @property
    def weighted(self) -> bool:
        """Whether any weight is not 1."""
        return bool((self.weights != 1.0).any())


class Side:
    """One spatial dimension: the axis of positions, that of taps if there are several, and the
    tables of both as operands. The weights have elements of ``kind``."""

    def __init__(self, table: Table, axis: Axis, extent: int, kind: DataType) -> None:
        self.found = Axis(extent, f"{axis.name}_found")
        self.taps = (Axis(table.taps, f"{axis.name}_tap"),) if table.taps > 1 else ()
        self.gaps = table.gaps
        axes = (*self.taps, axis)
        self.places = table_of(axes, DataType.s32, table.places)
        self.weights = table_of(axes, kind, table.weights) if table.weighted else None

    @property
    def tables(self) -> tuple[Operand, ...]:
        """The operands besides src."""
        return (self.places,) if self.weights is None else (self.places, self.weights)


def table_of(axes: Sequence[Axis], kind: DataType, contents: Places | Weights) -> Operand:
    """A table in the code with an element for each iteration of ``axes``."""
    desc = MemoryDesc(tuple(axis.extent for axis in axes), kind)
    return Operand(_TABLE, desc, tuple(map(Affine.of, axes)), contents=contents)
