"""Rows of a resized image, from registers of consecutive elements.

The sources of a vector of dst are close together in a row of src: in one register if dst is larger,
in a few if it is smaller. These are loaded as a whole, rows are added up before anything is
permuted, and each tap along the row is a permutation of the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Value
from dnnl.codegen.ir.permute import permuted, permutes
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.windows.resampling_taps import Table, found_axis, table_of
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import typical
from dnnl.types.taps import Places

MOST_PARTS = 4
"""The most registers of consecutive elements; with more, permuting takes as long as gathering."""
_BEYOND = 2**62  # beyond all elements


@dataclass(frozen=True, eq=False)
class Row:
    """The last dimension, walked by vectors of ``lanes`` elements of dst: its position in src is
    ``found``. ``first`` says where the registers of each vector begin, ``present`` how many
    elements each of them has, and ``picks`` which elements of the registers are the taps, with
    their ``weights`` unless all are 1. ``gaps`` says that weights may be 0."""

    found: Axis
    lanes: int
    present: tuple[int, ...]
    first: Operand
    picks: tuple[Operand, ...]
    weights: tuple[Operand, ...]
    gaps: bool

    @staticmethod
    def of(table: Table, axis: Axis, extent: int, lanes: int) -> Row | None:
        """That of a table in the code, in a row of ``extent`` elements; None unless few registers
        hold the sources of a vector."""
        begins, parts = _stretches(table, lanes)
        if parts > MOST_PARTS:
            return None
        # No register reads beyond the end of the row, except in shorter rows.
        last = max(0, extent - parts * lanes)
        first = np.minimum(np.repeat(begins, lanes)[: int(axis.extent)], last)
        near = np.clip(table.places - first, 0, parts * lanes - 1)
        weights = [table_of((axis,), DataType.f32, own) for own in table.weights]
        return Row(
            found_axis(axis, extent),
            lanes,
            tuple(max(0, min(lanes, extent - part * lanes)) for part in range(parts)),
            table_of((axis,), DataType.s32, first),
            tuple(table_of((axis,), DataType.s32, places) for places in near),
            tuple(weights) if table.weighted else (),
            table.gaps,
        )

    @property
    def parts(self) -> int:
        """The number of registers."""
        return len(self.present)

    @property
    def tables(self) -> tuple[Operand, ...]:
        """The operands besides src."""
        return (self.first, *self.picks, *self.weights)

    def start(self, point: Point) -> Value:
        """The position in src at which the registers of this vector begin."""
        return point.lookup_first(self.first)

    def load(self, point: Point, src: Operand) -> list[Value]:
        """The registers of src at a point at the start of the row."""
        return [
            point.load_from(src, part * self.lanes, present)
            for part, present in enumerate(self.present)
        ]

    def picked(self, point: Point, parts: Sequence[Value]) -> Value:
        """The elements of dst, each of which is one element of the registers."""
        (pick,) = self.picks
        return permuted(point.e, parts, point.load_stored(pick))

    def summed(self, point: Point, parts: Sequence[Value]) -> Value:
        """The sums over the taps along the row, from registers with the sums over all other
        taps."""
        e, total = point.e, None
        for number, pick in enumerate(self.picks):
            value = permuted(e, parts, point.load_stored(pick))
            if self.weights:
                weight = point.load(self.weights[number])
                if self.gaps:
                    some = e.b.fcmp_ordered("!=", weight, point.constant(0.0))
                    value = e.b.select(some, value, point.constant(0.0))
                if total is None:
                    value = e.b.fmul(weight, value)
                else:
                    value = vector.multiply_add(e, weight, value, total)
            elif total is not None:
                value = e.b.fadd(total, value)
            total = value
        return total

    def fits(self, nest: Nest, isa: Isa) -> bool:
        """Whether the vectors of the nest are those that are assumed here."""
        plan = nest.planned(isa)
        lane, offset = plan.vectors.lane, plan.accesses[self.first].offset
        if lane is None or offset is None or plan.vectors.reduced:
            return False
        return plan.vectors.lanes == self.lanes and offset.stride(lane) == 1


def row_lanes(isa: Isa, axis: Axis, src: MemoryDesc, dst: MemoryDesc, bits: int) -> int:
    """The lanes of the vectors along a row, if elements of ``bits`` are contiguous on both sides
    and registers of that many can be permuted; else 0."""
    lanes = min(isa.vector_bits // bits, 1 << int(typical(axis.extent) - 1).bit_length())
    plain = all(not desc.inner_blocks and desc.strides[-1] == 1 for desc in (src, dst))
    return lanes if plain and permutes(isa, bits, lanes) else 0


def _stretches(table: Table, lanes: int) -> tuple[Places, int]:
    """Where the sources of each vector begin, and how many registers the longest stretch fills."""
    vectors = np.arange(0, table.places.shape[1], lanes)
    seen = table.weights != 0.0 if table.gaps else np.ones(table.places.shape, np.bool_)
    highest = np.where(seen, table.places, -1).max(axis=0)
    lowest = np.where(seen, table.places, _BEYOND).min(axis=0)
    begins, ends = np.minimum.reduceat(lowest, vectors), np.maximum.reduceat(highest, vectors)
    longest = max(1, int((ends - begins).max()) + 1)
    return np.where(ends < 0, 0, begins), -(-longest // lanes)
