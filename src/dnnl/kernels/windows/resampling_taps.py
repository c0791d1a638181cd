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


@dataclass(frozen=True, eq=False)
class Side:
    """One spatial dimension: the axis of positions that are ``found``, that of ``taps`` if there
    are several, and the operands with the ``places`` and the ``weights`` of taps, which are None
    where all are 1. ``gaps`` says that weights may be 0."""

    found: Axis
    taps: tuple[Axis, ...]
    gaps: bool
    places: Operand
    weights: Operand | None

    @staticmethod
    def of(table: Table, axis: Axis, extent: int, kind: DataType) -> Side:
        """That of a table in the code, with weights of ``kind``, of ``extent`` elements."""
        taps = tap_axes(axis, table.taps)
        places = table_of((*taps, axis), DataType.s32, table.places)
        weights = table_of((*taps, axis), kind, table.weights) if table.weighted else None
        return Side(found_axis(axis, extent), taps, table.gaps, places, weights)

    @property
    def tables(self) -> tuple[Operand, ...]:
        """The operands besides src."""
        return (self.places,) if self.weights is None else (self.places, self.weights)


def found_axis(axis: Axis, extent: int) -> Axis:
    """The axis of the positions among ``extent`` elements that are found for ``axis``."""
    return Axis(extent, f"{axis.name}_found")


def tap_axes(axis: Axis, count: int) -> tuple[Axis, ...]:
    """The axis of ``count`` taps of each element of ``axis``; none for a single one."""
    return (Axis(count, f"{axis.name}_tap"),) if count > 1 else ()


def table_of(axes: Sequence[Axis], kind: DataType, contents: Places | Weights) -> Operand:
    """A table in the code with an element for each iteration of ``axes``."""
    desc = MemoryDesc(tuple(axis.extent for axis in axes), kind)
    return Operand(_TABLE, desc, tuple(map(Affine.of, axes)), contents=contents)
