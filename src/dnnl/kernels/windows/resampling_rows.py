"""Rows of a resized image, from registers of consecutive elements.

The sources of a vector of dst are close together in a row of src: in one register if dst is larger,
in a few if it is smaller. These are loaded as a whole, rows are added up before anything is
permuted, and each tap along the row is a permutation of the sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Value
from dnnl.codegen.ir.permute import permuted, permutes
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.windows.resampling_taps import Table, table_of
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.taps import Places

# The most registers of consecutive elements; with more, permuting takes as long as gathering.
_MOST = 4
_BEYOND = 2**62  # beyond all elements


class Row:
    """The last dimension, walked by vectors of ``lanes`` elements of dst along ``axis``: where the
    registers of each vector begin in a row of ``extent`` elements of src, and the permutation of
    these ``parts`` registers for each tap."""

    def __init__(self, table: Table, axis: Axis, extent: int, lanes: int) -> None:
        self.found = Axis(extent, f"{axis.name}_found")
        self._gaps, self._lanes = table.gaps, lanes
        begins, self.parts = _stretches(table, lanes)
        # No register reads beyond the end of the row, except in shorter rows.
        last = max(0, extent - self.parts * lanes)
        first = np.minimum(np.repeat(begins, lanes)[: int(axis.extent)], last)
        self._there = [max(0, min(lanes, extent - part * lanes)) for part in range(self.parts)]
        near = np.clip(table.places - first, 0, self.parts * lanes - 1)
        self._first = table_of((axis,), DataType.s32, first)
        self._picks = [table_of((axis,), DataType.s32, places) for places in near]
        weights = [table_of((axis,), DataType.f32, own) for own in table.weights]
        self._weights = weights if table.weighted else []

    @property
    def tables(self) -> tuple[Operand, ...]:
        """The operands besides src."""
        return (self._first, *self._picks, *self._weights)

    def start(self, point: Point) -> Value:
        """The position in src at which the registers of this vector begin."""
        return point.lookup_first(self._first)

    def load(self, point: Point, src: Operand) -> list[Value]:
        """The registers of src at a point at the start of the row."""
        return [
            point.load_from(src, part * self._lanes, there)
            for part, there in enumerate(self._there)
        ]

    def picked(self, point: Point, parts: Sequence[Value]) -> Value:
        """The elements of dst, each of which is one element of the registers."""
        (pick,) = self._picks
        return permuted(point.e, parts, point.load_stored(pick))

    def summed(self, point: Point, parts: Sequence[Value]) -> Value:
        """The sums over the taps along the row, from registers with the sums over all other
        taps."""
        e, total = point.e, None
        for number, pick in enumerate(self._picks):
            value = permuted(e, parts, point.load_stored(pick))
            if self._weights:
                weight = point.load(self._weights[number])
                if self._gaps:
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
        lane, offset = plan.vectors.lane, plan.accesses[self._first].offset
        if lane is None or offset is None or plan.vectors.reduced:
            return False
        return plan.vectors.lanes == self._lanes and offset.stride(lane) == 1


def row_of(
    isa: Isa, table: Table, axis: Axis, src: MemoryDesc, dst: MemoryDesc, bits: int
) -> Row | None:
    """The row, if elements of ``bits`` are contiguous on both sides and few registers hold the
    sources of a vector of dst."""
    lanes = min(isa.vector_bits // bits, 1 << int(axis.extent - 1).bit_length())
    plain = all(not desc.inner_blocks and desc.strides[-1] == 1 for desc in (src, dst))
    if not plain or not permutes(isa, bits, lanes):
        return None
    row = Row(table, axis, int(src.dims[-1]), lanes)
    return row if row.parts <= _MOST else None


def _stretches(table: Table, lanes: int) -> tuple[Places, int]:
    """Where the sources of each vector begin, and how many registers the longest stretch fills."""
    vectors = np.arange(0, table.places.shape[1], lanes)
    seen = table.weights != 0.0 if table.gaps else np.ones(table.places.shape, np.bool_)
    highest = np.where(seen, table.places, -1).max(axis=0)
    lowest = np.where(seen, table.places, _BEYOND).min(axis=0)
    begins, ends = np.minimum.reduceat(lowest, vectors), np.maximum.reduceat(highest, vectors)
    longest = max(1, int((ends - begins).max()) + 1)
    return np.where(ends < 0, 0, begins), -(-longest // lanes)
