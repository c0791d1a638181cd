"""Weights that become floats in registers: packed 32-bit integers to f32, or to bf16 if src is
bf16.

Panels of 4-bit weights hold eight k of a column in 32 bits. A shift brings the codes of one k into
the low bits of all lanes, where a table lookup gives their values::

    32 bits  | k0 k1 k2 k3 k4 k5 k6 k7 |  | k0 k1 k2 k3 k4 k5 k6 k7 |
                     column 0                     column 1

Row-major B has two columns in a byte. A vector of bytes becomes the even columns in one vector and
the odd ones in the next::

    byte     | c0 c1 |  | c2 c3 |  | c4 c5 |     ->     c0 c2 c4 ..     c1 c3 c5 ..

Sums stay in this order until `PackedMultiply.in_order`.

Instructions for pairs of bf16 take k from both halves of the 32 bits, which one shift brings to the
lowest bits of each::

    32 bits  | k0 k1 k2 k3   k4 k5 k6 k7 |     ->     k0 k4    k1 k5    k2 k6    k3 k7

Of column-major B, 128 bits of each column are loaded and transposed in registers: 32 k of 4 bits,
or four of f32.
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
_TRANSPOSED = 4  # 32-bit integers of a column in a 128-bit unit


@dataclass(frozen=True)
class PackedMultiply(Multiply):
    """f32 times packed weights. ``group`` is the k of a column in 32 bits of a panel. Column-major
    weights have columns ``column_stride`` bytes apart, and a group of 128 bits. A group of one
    means row-major 4-bit weights."""

    column_stride: int = 0

    @staticmethod
    def of(isa: Isa, weights: DataType, *, rows: bool = False) -> PackedMultiply | None:
        """The dot-product kind of 4-bit weights in panels, or row-major; None if they cannot be
        unpacked in registers."""
        if weights.bits >= 8 or not _in_registers(isa, weights):
            return None
        return PackedMultiply(DataType.f32, weights, 1 if rows else _WORD // weights.bits, FLOATS)

    @staticmethod
    def in_columns(isa: Isa, weights: DataType, column_stride: int) -> PackedMultiply | None:
        """The dot-product kind of column-major weights whose columns are ``apart`` elements apart;
        None if they cannot be unpacked in registers."""
        bits = column_stride * weights.bits
        if not _in_registers(isa, weights) or bits % 8 or isa.lanes < _TRANSPOSED:
            return None
        group = _TRANSPOSED * _WORD // weights.bits
        return PackedMultiply(DataType.f32, weights, group, FLOATS, column_stride=bits // 8)

    @property
    def in_rows(self) -> bool:
        """Whether B is row-major, two columns in a byte."""
        return self.group == 1

    @property
    def on_registers(self) -> Multiply:
        """The dot-product kind after unpacking: f32."""
        return Multiply(DataType.f32, DataType.f32, 1, FLOATS)

    @property
    def row_vectors(self) -> int:
        """Two, if B is row-major."""
        return 2 if self.in_rows else 0

    @property
    def steps(self) -> int:
        """One step for each k."""
        return self.group

    @property
    def parts(self) -> int:
        """The packed registers of a vector stay live while their elements are multiplied one by
        one."""
        return _TRANSPOSED + 1 if self.column_stride else 2

    @property
    def compensates_zero_points(self) -> bool:
        """Zero points of narrow weights are compensated in the sums, which costs little
        precision."""
        return self.b.bits < 8

    @property
    def element(self) -> tuple[ir.Type, ir.Type]:
        """The element types for addressing; 4-bit B is addressed in bytes."""
        return F32, I8 if self.b.bits < 8 else storage(self.b).element

    def broadcast(self, e: Emitter, pointer: ir.Value, step: int = 0) -> Values:
        """One k of A, in all lanes."""
        pointer = e.element(pointer, i64(step), F32)
        return (vector.splat(e, e.b.load(pointer, typ=F32, align=4), e.isa.lanes),)

    def columns(self, e: Emitter, starts: Sequence[ir.Value]) -> Iterator[list[Values]]:
        """The operands of the vectors of columns at ``starts``, for each k in turn."""
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
        """The packed registers of a vector of columns."""
        kind = vector.vector_type(I32, _TRANSPOSED)

        def load(column: int, _: int) -> ir.Value:
            return e.b.load(
                e.element(start, e.mul(i64(column), self.column_stride), I8), typ=kind, align=1
            )

        return vector.transpose(e, e.isa.lanes, 1, load)

    def _pair(self, e: Emitter, start: ir.Value) -> list[ir.Value]:
        """The even and the odd columns of two vectors."""
        lanes = e.isa.lanes
        loaded = vector.load(e, start, vector.vector_type(I8, lanes))
        packed = e.b.zext(loaded, vector.vector_type(I32, lanes))
        return [unpack_elements(e, packed, self.b, bit) for bit in (0, 4)]

    def in_order(self, e: Emitter, cells: Values) -> Values:
        """The sums of a row in column order."""
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
    """bf16 times 4-bit weights in panels, multiplied in pairs of k. A pair has one k from each half
    of the 32 bits."""

    @staticmethod
    def for_bf16(isa: Isa, weights: DataType) -> PairedGroups | None:
        """The dot-product kind for a bf16 src, or None if there is no instruction."""
        kind = multiply(isa, DataType.bf16, DataType.bf16)
        paired = kind is not None and kind.dot.group == 2
        tables = isa.instruction("pick", "i16", 2 * isa.lanes) is not None
        if kind is None or not (paired and tables and weights.bits == 4):
            return None
        return PairedGroups(DataType.bf16, weights, _WORD // weights.bits, kind.dot)

    @property
    def on_registers(self) -> Multiply:
        """The dot-product kind after unpacking: bf16."""
        return Multiply(DataType.bf16, DataType.bf16, 2, self.dot)

    @property
    def steps(self) -> int:
        """One step for each pair."""
        return self.group // 2

    @property
    def element(self) -> tuple[ir.Type, ir.Type]:
        """The element types for addressing; 4-bit B is addressed in bytes."""
        return storage(self.a).element, I8

    def broadcast(self, e: Emitter, pointer: ir.Value, step: int = 0) -> Values:
        """A pair of A, in all lanes."""
        register = e.b.load(pointer, typ=vector.vector_type(I16, self.group), align=2)
        pair = [step, step + self.steps]
        pairs = vector.shuffle(e, register, register, pair * e.isa.lanes)
        return (e.b.bitcast(pairs, vector.vector_type(BF16, 2 * e.isa.lanes)),)

    def columns(self, e: Emitter, starts: Sequence[ir.Value]) -> Iterator[list[Values]]:
        """The operands of the vectors of columns at ``starts``, for each pair in turn."""
        kind = vector.vector_type(I32, e.isa.lanes)
        packed = [e.b.load(start, typ=kind, align=1) for start in starts]
        bfloats = vector.vector_type(BF16, 2 * e.isa.lanes)
        for step in range(self.steps):
            found = (unpack_bf16(e, register, self.b, step * self.b.bits) for register in packed)
            yield [(e.b.bitcast(values, bfloats),) for values in found]


def _in_registers(isa: Isa, data_type: DataType) -> bool:
    """Whether packed elements of a type become f32 in few instructions."""
    native = isa.instruction("pick", "f32", isa.lanes) is not None
    taken = (*_NIBBLES, *_WIDER, *(_TABLED if native else ()))
    return isa.most_lanes is None and data_type in taken
