"""Weights that become floats in registers out of words of 32 bits: f32, or bf16 beside a src of
that.

Panels of 4-bit weights hold a word with eight k for each column, so that a shift brings the codes
of one k into the low halves of all words, where a table in a register has their values::

    word     | k0 k1 k2 k3 k4 k5 k6 k7 |  | k0 k1 k2 k3 k4 k5 k6 k7 |
                     column 0                     column 1

Where B lies in rows, a byte has two columns, and half as many bytes as a vector pair has columns
become the even ones in one vector, and the odd ones in the next::

    byte     | c0 c1 |  | c2 c3 |  | c4 c5 |     ->     c0 c2 c4 ..     c1 c3 c5 ..

Sums stay so apart until `Words.in_order`.

An instruction for pairs of bf16 takes k that lie in the two halves of a word, which one shift
brings to the lowest bits of both::

    word     | k0 k1 k2 k3   k4 k5 k6 k7 |     ->     k0 k4    k1 k5    k2 k6    k3 k7

Where B lies in columns, four words of each are loaded and turned in registers: 32 k of 4 bits, four
of f32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.conversion.convert import storage, unpack_bf16, unpack_elements
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import BF16, F32, I8, I16, I32, Emitter, Values, i64
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.row import FLOATS
from dnnl.codegen.product.multiply import Multiply, multiply
from dnnl.types.dtype import DataType

_NIBBLES = (DataType.s4, DataType.u4)
_TABLED = (DataType.f4_e2m1,)
_WIDER = (DataType.f32, DataType.bf16, DataType.f16, DataType.s8, DataType.u8)
_WORD = 32  # bits
_TRANSPOSED = 4  # words of a column: as many bits as a unit of all registers has


@dataclass(frozen=True)
class PackedMultiply(Multiply):
    """f32 times weights in words. Columns that lie ``apart``, in bytes, have all of their k side by
    side, those of panels no more than those of a word: the ``group``. Where that is one, weights of
    4 bits lie in rows."""

    column_stride: int = 0

    @staticmethod
    def of(isa: Isa, weights: DataType, *, rows: bool = False) -> PackedMultiply | None:
        """How weights of 4 bits are multiplied that lie in panels, or else in rows; None if they
        have no values in registers."""
        if weights.bits >= 8 or not _in_registers(isa, weights):
            return None
        return PackedMultiply(DataType.f32, weights, 1 if rows else _WORD // weights.bits, FLOATS)

    @staticmethod
    def in_columns(isa: Isa, weights: DataType, column_stride: int) -> PackedMultiply | None:
        """How weights are multiplied whose columns lie ``apart``, in elements."""
        bits = column_stride * weights.bits
        if not _in_registers(isa, weights) or bits % 8 or isa.lanes < _TRANSPOSED:
            return None
        group = _TRANSPOSED * _WORD // weights.bits
        return PackedMultiply(DataType.f32, weights, group, FLOATS, column_stride=bits // 8)

    @property
    def in_rows(self) -> bool:
        """Whether B lies in rows, two columns to a byte."""
        return self.group == 1

    @property
    def on_registers(self) -> Multiply:
        """Products of f32."""
        return Multiply(DataType.f32, DataType.f32, 1, FLOATS)

    @property
    def row_vectors(self) -> int:
        """A pair where it lies in rows."""
        return 2 if self.in_rows else 0

    @property
    def steps(self) -> int:
        """One for each k."""
        return self.group

    @property
    def parts(self) -> int:
        """Words of each vector stay while their elements are multiplied one after the other."""
        return _TRANSPOSED + 1 if self.column_stride else 2

    @property
    def shifted_late(self) -> bool:
        """Zero points of few bits are taken off the sums, which lose little by that."""
        return self.b.bits < 8

    @property
    def element(self) -> tuple[ir.Type, ir.Type]:
        """B of 4 bits is addressed by bytes."""
        return F32, I8 if self.b.bits < 8 else storage(self.b).element

    def broadcast(self, e: Emitter, pointer: ir.Value, step: int = 0) -> Values:
        """One k of A, in all lanes."""
        pointer = e.element(pointer, i64(step), F32)
        return (vector.splat(e, e.b.load(pointer, typ=F32, align=4), e.isa.lanes),)

    def columns(self, e: Emitter, starts: Sequence[ir.Value]) -> Iterator[list[Values]]:
        """The operands of the vectors of columns that begin at ``starts``, for each k in turn."""
        kind = vector.vector_type(I32, e.isa.lanes)
        if self.in_rows:
            yield [(value,) for start in starts[::2] for value in self._pair(e, start)]
            return
        if self.column_stride:
            columns = [self._transposed(e, start) for start in starts]
            groups = [list(packed) for packed in zip(*columns, strict=True)]
        else:
            groups = [[e.b.load(start, typ=kind, align=1) for start in starts]]
        for packed in groups:
            for bit in range(0, _WORD, self.b.bits):
                yield [(unpack_elements(e, register, self.b, bit),) for register in packed]

    def _transposed(self, e: Emitter, start: ir.Value) -> list[ir.Value]:
        """Words of a vector of columns."""
        kind = vector.vector_type(I32, _TRANSPOSED)

        def load(column: int, _: int) -> ir.Value:
            return e.b.load(
                e.element(start, i64(column * self.column_stride), I8), typ=kind, align=1
            )

        return vector.transpose(e, e.isa.lanes, 1, load)

    def _pair(self, e: Emitter, start: ir.Value) -> list[ir.Value]:
        """The even and the odd ones of two vectors of columns."""
        lanes = e.isa.lanes
        loaded = vector.load(e, start, vector.vector_type(I8, lanes))
        packed = e.b.zext(loaded, vector.vector_type(I32, lanes))
        return [unpack_elements(e, packed, self.b, bit) for bit in (0, 4)]

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


@dataclass(frozen=True)
class PairedGroups(PackedMultiply):
    """bf16 times weights of 4 bits in panels, of which an instruction multiplies two k at a time:
    as many as lie between them are the steps."""

    @staticmethod
    def for_bf16(isa: Isa, weights: DataType) -> PairedGroups | None:
        """How weights are multiplied, None where no instruction does it."""
        kind = multiply(isa, DataType.bf16, DataType.bf16)
        paired = kind is not None and kind.dot.group == 2
        tables = isa.instruction("pick", "i16", 2 * isa.lanes) is not None
        if kind is None or not (paired and tables and weights.bits == 4):
            return None
        return PairedGroups(DataType.bf16, weights, _WORD // weights.bits, kind.dot)

    @property
    def on_registers(self) -> Multiply:
        """Products of bf16."""
        return Multiply(DataType.bf16, DataType.bf16, 2, self.dot)

    @property
    def steps(self) -> int:
        """One for each pair."""
        return self.group // 2

    @property
    def element(self) -> tuple[ir.Type, ir.Type]:
        """B of 4 bits is addressed by bytes."""
        return storage(self.a).element, I8

    def broadcast(self, e: Emitter, pointer: ir.Value, step: int = 0) -> Values:
        """A pair of A, in all lanes."""
        register = e.b.load(pointer, typ=vector.vector_type(I16, self.group), align=2)
        pair = [step, step + self.steps]
        pairs = vector.shuffle(e, register, register, pair * e.isa.lanes)
        return (e.b.bitcast(pairs, vector.vector_type(BF16, 2 * e.isa.lanes)),)

    def columns(self, e: Emitter, starts: Sequence[ir.Value]) -> Iterator[list[Values]]:
        """The operands of vectors of columns from ``starts`` on, for each pair in turn."""
        kind = vector.vector_type(I32, e.isa.lanes)
        packed = [e.b.load(start, typ=kind, align=1) for start in starts]
        bfloats = vector.vector_type(BF16, 2 * e.isa.lanes)
        for step in range(self.steps):
            found = (unpack_bf16(e, register, self.b, step * self.b.bits) for register in packed)
            yield [(e.b.bitcast(values, bfloats),) for values in found]


def _in_registers(isa: Isa, data_type: DataType) -> bool:
    """Whether elements of a type in words become f32 in few instructions."""
    native = isa.instruction("pick", "f32", isa.lanes) is not None
    taken = (*_NIBBLES, *_WIDER, *(_TABLED if native else ()))
    return isa.device is None and data_type in taken
