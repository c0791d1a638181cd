"""Weights of 4 bits that become f32 in registers, beside a src of f32.

Panels hold a word of 32 bits with eight k for each column, so that a shift brings the codes of one
k into the low halves of all words, where a table in a register has their values::

    word     | k0 k1 k2 k3 k4 k5 k6 k7 |  | k0 k1 k2 k3 k4 k5 k6 k7 |
                     column 0                     column 1

Where B lies in rows, a byte has two columns, and half as many bytes as a vector pair has columns
become the even ones in one vector, and the odd ones in the next::

    byte     | c0 c1 |  | c2 c3 |  | c4 c5 |     ->     c0 c2 c4 ..     c1 c3 c5 ..

Sums stay so apart until `Nibbles.in_order`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen import vector
from dnnl.codegen.builder import F32, I8, I32, Emitter, Values
from dnnl.codegen.convert import codes_in_words
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.row import FLOATS
from dnnl.codegen.multiply import Multiply
from dnnl.types.dtype import DataType

_TYPES = (DataType.s4, DataType.u4)
_TABLED = (*_TYPES, DataType.f4_e2m1)
_PER_WORD = 8


@dataclass(frozen=True)
class Nibbles(Multiply):
    """f32 times codes of 4 bits: in words of a ``group`` of eight k, or in rows, with a group of
    one."""

    @staticmethod
    def of(isa: Isa, weights: DataType, *, rows: bool = False) -> Nibbles | None:
        """How weights of a type are multiplied, None if their codes have no values in registers."""
        native = isa.instruction("pick", "f32", isa.lanes) is not None
        if isa.device is not None or weights not in (_TABLED if native else _TYPES):
            return None
        return Nibbles(DataType.f32, weights, 1 if rows else _PER_WORD, FLOATS)

    @property
    def in_rows(self) -> bool:
        """Whether B lies in rows, two columns to a byte."""
        return self.group == 1

    @property
    def rows_together(self) -> int:
        """A pair where it lies in rows."""
        return 2 if self.in_rows else 0

    @property
    def steps(self) -> int:
        """One for each k."""
        return self.group

    @property
    def parts(self) -> int:
        """Words of each vector stay while their codes are multiplied one after the other."""
        return 2

    @property
    def shifted_late(self) -> bool:
        """Zero points are taken off the sums: few bits lose little by that."""
        return True

    @property
    def element(self) -> tuple[ir.Type, ir.Type]:
        """B is addressed by bytes."""
        return F32, I8

    def broadcast(self, e: Emitter, pointer: ir.Value) -> Values:
        """One k of A, in all lanes."""
        return (vector.splat(e, e.b.load(pointer, typ=F32, align=4), e.isa.lanes),)

    def columns(self, e: Emitter, starts: Sequence[ir.Value]) -> Iterator[list[Values]]:
        """The operands of the vectors of columns that begin at ``starts``, for each k in turn."""
        kind = vector.vector_type(I32, e.isa.lanes)
        if self.in_rows:
            yield [(value,) for start in starts[::2] for value in self._pair(e, start)]
            return
        words = [e.b.load(start, typ=kind, align=1) for start in starts]
        for k in range(self.group):
            yield [(codes_in_words(e, word, self.b, 4 * k),) for word in words]

    def _pair(self, e: Emitter, start: ir.Value) -> list[ir.Value]:
        """The even and the odd ones of two vectors of columns."""
        lanes = e.isa.lanes
        loaded = vector.load(e, start, vector.vector_type(I8, lanes))
        words = e.b.zext(loaded, vector.vector_type(I32, lanes))
        return [codes_in_words(e, words, self.b, bit) for bit in (0, 4)]

    def in_order(self, e: Emitter, cells: Values) -> Values:
        """The sums of a row by columns, from vectors in the order in which they were made."""
        if not self.in_rows:
            return cells
        count = e.isa.lanes
        ordered: list[ir.Value] = []
        for even, odd in zip(cells[::2], cells[1::2], strict=True):
            for first in (0, count // 2):
                lanes = [n + side for n in range(first, first + count // 2) for side in (0, count)]
                ordered.append(vector.shuffle(e, even, odd, lanes))
        return tuple(ordered)
