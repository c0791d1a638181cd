"""Which elements make an element of an image in another size, and with which weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

Taps = tuple[tuple[int, float], ...]
_TABLE = -1  # the slot of what no argument holds


def taps(at: int, old: int, new: int, linear: bool) -> Taps:
    """The elements of ``old`` that element ``at`` of ``new`` is made of, with their weights.

    Its place is ``x = (at + 1/2) * old / new - 1/2``; all is computed with whole numbers, as
    multiples of 1 / (2 * new).
    """
    unit = 2 * new
    if not linear:
        return (((2 * at + 1) * old // unit, 1.0),)
    place = (2 * at + 1) * old - new
    first = max(place // unit, 0)
    last = min(-(-place // unit), old - 1)
    weight = abs(place - first * unit) / unit
    return (first, 1.0 - weight), (last, weight)


@dataclass(frozen=True)
class Table:
    """The places and the weights of as many taps for each element: tap by tap. Where an element
    has fewer, the weights of others are 0 and ``gaps`` is true."""

    taps: int
    places: tuple[int, ...]
    weights: tuple[float, ...]
    gaps: bool

    @staticmethod
    def forward(old: int, new: int, linear: bool) -> Table:
        """Those of each element of ``new``."""
        rows = [taps(at, old, new, linear) for at in range(new)]
        if all(weight == 0.0 for row in rows for _, weight in row[1:]):
            rows = [row[:1] for row in rows]
        return Table._of(rows)

    @staticmethod
    def backward(old: int, new: int, linear: bool) -> Table:
        """Those of each element of ``old``: the elements of ``new`` of which it is a part."""
        rows: list[dict[int, float]] = [{} for _ in range(old)]
        for at in range(new):
            for place, weight in taps(at, old, new, linear):
                if weight:
                    rows[place][at] = rows[place].get(at, 0.0) + weight
        return Table._of([tuple(row.items()) for row in rows])

    @staticmethod
    def _of(rows: Sequence[Taps]) -> Table:
        count = max([1, *map(len, rows)])
        full = [(*row, *([(row[0][0] if row else 0, 0.0)] * (count - len(row)))) for row in rows]
        places = tuple(row[tap][0] for tap in range(count) for row in full)
        weights = tuple(row[tap][1] for tap in range(count) for row in full)
        return Table(count, places, weights, any(len(row) < count for row in rows))

    @property
    def weighted(self) -> bool:
        """Whether any weight is not 1."""
        return set(self.weights) != {1.0}


class Side:
    """One spatial dimension: the axis of what is found there, that of taps, if there are several,
    and the tables of both as operands, that of weights with elements of ``kind``."""

    def __init__(self, table: Table, axis: Axis, extent: int, kind: DataType) -> None:
        self.found = Axis(extent, f"{axis.name}_found")
        self.taps = (Axis(table.taps, f"{axis.name}_tap"),) if table.taps > 1 else ()
        self.gaps = table.gaps
        axes = (*self.taps, axis)
        self.places = table_of(axes, DataType.s32, table.places)
        self.weights = table_of(axes, kind, table.weights) if table.weighted else None

    @property
    def tables(self) -> tuple[Operand, ...]:
        """What is read besides src."""
        return (self.places,) if self.weights is None else (self.places, self.weights)


def table_of(axes: Sequence[Axis], kind: DataType, contents: Sequence[float]) -> Operand:
    """A table in the code with an element for each iteration of ``axes``."""
    desc = MemoryDesc(tuple(axis.extent for axis in axes), kind)
    return Operand(_TABLE, desc, tuple(map(Affine.of, axes)), contents=tuple(contents))
