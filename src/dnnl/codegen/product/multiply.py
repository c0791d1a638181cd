"""Dot-product kinds: how two operand types are stored, unpacked in registers and multiplied.

A product sums over k. Consecutive k form a *K group*, as many as one instruction sums up. *A* is
broadcast: one group of a row to all lanes. *B* is loaded in vectors: panels hold the group of each
column side by side::

    A   row      | k0 k1 k2 k3 |                              -> all lanes
    B   k-group  | k0 k1 k2 k3 | k0 k1 k2 k3 | k0 k1 k2 k3 |
                     column 0      column 1      column 2

Row-major B is interleaved in registers: the rows of a group become as many vectors of groups.

Floats that no instruction multiplies become f32: A before the product, B as it is loaded. Bytes
times floats become f32 as well. Bytes that no instruction multiplies are extended in registers to
16 or 32 bits. Their sums never exceed 32 bits, so they are exact on every target. A vector of f64
has as many elements as one of f32, in two registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import BF16, F32, F64, I8, I16, I32, Emitter, Values, i64
from dnnl.codegen.ir.transpose import interleave_registers
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.row import DOUBLES, FLOATS, INTEGERS, Dot
from dnnl.types.dtype import DataType

_FLOATS = (DataType.f32, DataType.bf16, DataType.f16)
_BYTES = (DataType.u8, DataType.s8)
_SUMS = {"f32": F32, "f64": F64, "s32": I32}
_ELEMENTS = {"bf16": BF16, "u8": I8, "s8": I8, "s16": I16, "s32": I32}
_HALF_RANGE = 128
_SIGNS = 0x80808080


@dataclass(frozen=True)
class Multiply:
    """A dot-product kind: how two types are multiplied.

    ``a`` and ``b`` are the stored types of A and of B's panels, ``group`` the k of a K group.
    ``dot`` is the instruction; if ``swapped``, it takes B first. ``shift`` is added to each element
    of B as it is loaded, for instructions that want the other sign: sums are then too large by
    ``shift`` times the sum of A's row. ``tiles`` is the instruction of a matrix unit for the same
    groups; ``dot`` does the remainders, without shift. If A is ``up_converted``, it is stored as
    16-bit elements: of a group of four, those at even positions first.
    """

    a: DataType
    b: DataType
    group: int
    dot: Dot
    swapped: bool = False
    shift: int = 0
    tiles: Dot | None = None
    up_converted: bool = False

    @property
    def accumulator(self) -> ir.Type:
        """The element type of accumulators."""
        return _SUMS[self.dot.accumulator]

    @property
    def span(self) -> int:
        """The registers of an accumulator vector."""
        return 2 if self.accumulator is F64 else 1

    @property
    def is_integer(self) -> bool:
        """Whether bytes are multiplied."""
        return self.a in _BYTES

    @property
    def parts(self) -> int:
        """The registers of the operands of one vector."""
        return self.group // self.dot.group

    @property
    def on_registers(self) -> Multiply:
        """The dot-product kind after unpacking in registers."""
        return self

    @property
    def row_vectors(self) -> int:
        """The vectors of columns that are interleaved at once from row-major B; 0 if row-major B is
        not supported."""
        return self.group

    @property
    def steps(self) -> int:
        """The steps in which a K group of A is multiplied."""
        return 1

    @property
    def compensates_zero_points(self) -> bool:
        """Whether zero points of B are compensated in the sums, instead of subtracted from loaded
        B."""
        return self.is_integer

    @property
    def element(self) -> tuple[ir.Type, ir.Type]:
        """The element types by which A and B are addressed."""
        return I16 if self.up_converted else storage(self.a).element, storage(self.b).element

    @property
    def group_bytes(self) -> int:
        """The stored bytes of a K group of A."""
        return self.group * self.a.size * (1 + self.up_converted)

    def zero(self, e: Emitter) -> ir.Constant:
        """An accumulator of zero."""
        return vector.splat_constant(vector.vector_type(self.accumulator, e.isa.lanes), 0)

    def ones(self, e: Emitter) -> Values:
        """A row of ones. Its sums are the column sums of B."""
        packed = vector.vector_type(I32, e.isa.lanes)
        return self._registers(e, vector.splat_constant(packed, 0x01010101), self.a)

    def broadcast(self, e: Emitter, pointer: ir.Value, step: int = 0) -> Values:
        """The part of the K group of A at ``pointer`` that a ``step`` multiplies, in all lanes."""
        lanes = e.isa.lanes
        if self.up_converted:
            pairs = (e.b.load(e.element(pointer, i64(n), I32), typ=I32, align=2) for n in range(2))
            kind = vector.vector_type(I16, 2 * lanes)
            return tuple(e.b.bitcast(vector.splat(e, pair, lanes), kind) for pair in pairs)
        if self.group == 1:
            element, _ = self.element
            return (vector.splat(e, e.b.load(pointer, typ=element, align=self.a.size), lanes),)
        packed = e.b.load(pointer, typ=I32, align=self.a.size)
        return self._registers(e, vector.splat(e, packed, lanes), self.a)

    def columns(self, e: Emitter, starts: Sequence[ir.Value]) -> Iterator[list[Values]]:
        """The operands of the vectors of columns at ``starts``, for each step in turn."""
        yield [self.load(e, start) for start in starts]

    def in_order(self, e: Emitter, cells: Values) -> Values:
        """The sums of a row in column order."""
        return cells

    def load(self, e: Emitter, pointer: ir.Value) -> Values:
        """Load a vector of columns from a panel."""
        lanes = e.isa.lanes
        if self.group == 1:
            row = storage(self.b, self.accumulator)
            kind = vector.vector_type(row.element, lanes)
            return (row.to_core(e, vector.load(e, pointer, kind)),)
        kind = vector.vector_type(I32, lanes)
        return self.from_packed(e, e.b.load(pointer, typ=kind, align=self.b.size))

    def load_rows(self, e: Emitter, pointer: ir.Value, apart: int | ir.Value) -> list[Values]:
        """Load and interleave row-major B: the groups of as many vectors of columns as a group has
        k. Rows are ``apart`` elements apart."""
        element = ir.IntType(8 * self.b.size)
        kind = vector.vector_type(element, e.isa.lanes * self.group)
        starts = [e.element(pointer, e.mul(i64(k), apart), element) for k in range(self.group)]
        rows = interleave_registers(e, [vector.load(e, start, kind) for start in starts])
        packed = vector.vector_type(I32, e.isa.lanes)
        return [self.from_packed(e, e.b.bitcast(row, packed)) for row in rows]

    def from_packed(self, e: Emitter, packed: ir.Value) -> Values:
        """The instruction's operands from packed groups of B."""
        if self.shift:
            packed = e.b.xor(packed, vector.splat_constant(packed.type, _SIGNS))
        signed = self.b is DataType.s8
        stands_for = DataType.s8 if signed != bool(self.shift) else DataType.u8
        return self._registers(e, packed, stands_for if self.is_integer else self.b)

    def add(self, e: Emitter, a: Values, b: Values, total: ir.Value) -> ir.Value:
        """total + the products of the groups of A and B."""
        dot = self.dot
        for pair in zip(a, b, strict=True):
            first, second = reversed(pair) if self.swapped else pair
            if dot.instruction:
                operands = [total, first, second] if dot.add else [first, second]
                result = e.intrinsic(dot.instruction, total.type, operands)
                total = result if dot.add else e.b.add(total, result)
            elif self.accumulator is I32:
                total = e.b.add(total, e.b.mul(first, second))
            else:
                total = vector.multiply_add(e, first, second, total)
        return total

    def total(self, e: Emitter, packed: ir.Value, sums: ir.Value) -> ir.Value:
        """sums + the bytes of packed groups of A."""
        signed = self.a is DataType.s8
        for number in range(self.group):
            sums = e.b.add(sums, _byte(e, packed, number, signed=signed))
        return sums

    def _registers(self, e: Emitter, packed: ir.Value, of: DataType) -> Values:
        """The instruction's operands from packed elements of a type."""
        lanes, signed = packed.type.count, of is DataType.s8
        if self.parts == 1:
            kind = vector.vector_type(_ELEMENTS[of.name], lanes * self.group)
            return (e.b.bitcast(packed, kind),)
        element = _ELEMENTS[self.dot.a]
        kind = vector.vector_type(element, lanes * 32 // element.width)
        values = e.b.bitcast(packed, kind)
        return tuple(
            _byte(e, values, number, signed=signed) for number in range(element.width // 8)
        )


def _byte(e: Emitter, values: ir.Value, number: int, *, signed: bool) -> ir.Value:
    """Byte ``number`` of each element, extended to the element's width."""
    kind, width = values.type, values.type.element.width
    up, down = width - 8 - 8 * number, width - 8
    if signed:
        top = e.b.shl(values, vector.splat_constant(kind, up)) if up else values
        return e.b.ashr(top, vector.splat_constant(kind, down))
    low = e.b.lshr(values, vector.splat_constant(kind, 8 * number)) if number else values
    return e.b.and_(low, vector.splat_constant(kind, 0xFF)) if up else low


@dataclass(frozen=True)
class WidenedPairs(Multiply):
    """f32 by pairs of bf16, which become f32 as they are loaded: one instruction for each vector,
    a shift or a mask, where bf16 that are no pairs take two."""

    @staticmethod
    def of_bf16() -> WidenedPairs:
        """The dot-product kind, which every target has."""
        return WidenedPairs(DataType.f32, DataType.bf16, 2, FLOATS)

    def broadcast(self, e: Emitter, pointer: ir.Value, step: int = 0) -> Values:
        """Two elements of A, each in all lanes."""
        starts = (e.element(pointer, i64(k), F32) for k in range(self.group))
        loaded = (e.b.load(start, typ=F32, align=self.a.size) for start in starts)
        return tuple(vector.splat(e, value, e.isa.lanes) for value in loaded)

    def from_packed(self, e: Emitter, packed: ir.Value) -> Values:
        """The first and the second of each pair."""
        kind = vector.vector_type(F32, packed.type.count)
        first = e.b.shl(packed, vector.splat_constant(packed.type, 16))
        second = e.b.and_(packed, vector.splat_constant(packed.type, 0xFFFF0000))
        return e.b.bitcast(first, kind), e.b.bitcast(second, kind)


def as_f32(weights: DataType = DataType.f32) -> Multiply:
    """Products of f32 by weights that are converted to f32 as they are loaded, one k at a time."""
    return Multiply(DataType.f32, weights, 1, FLOATS)


def multiply(
    isa: Isa, src: DataType, weights: DataType, *, grouped: bool = True, tiled: bool = False
) -> Multiply | None:
    """The best dot-product kind for two types: f64, or any two of f32, bf16, f16, u8 and s8; else
    None.

    Without ``grouped``, floats are multiplied one k at a time, for layouts without K groups. With
    ``tiled``, a matrix unit multiplies what it can; groups are the same.
    """
    tiles = _tiles(isa, src, weights) if tiled and grouped else None
    if src in _BYTES and weights in _BYTES:
        return _of_bytes(isa, src, weights, tiles)
    if src is weights is DataType.f64:
        return Multiply(src, weights, 1, DOUBLES)
    if not {src, weights} <= {*_FLOATS, *_BYTES}:
        return None
    for dot in isa.dots:
        if grouped and dot.group > 1 and (dot.a, dot.b) == (src.name, weights.name):
            return Multiply(src, weights, dot.group, dot, tiles=tiles)
    return as_f32(weights)


def _tiles(isa: Isa, src: DataType, weights: DataType) -> Dot | None:
    """The matrix unit's instruction for two types, or None."""
    dots = () if isa.matrix is None else isa.matrix.dots
    pair = (src.name, weights.name)
    return next((dot for dot in dots if (dot.a, dot.b) == pair), None)


def _of_bytes(isa: Isa, src: DataType, weights: DataType, tiles: Dot | None) -> Multiply:
    other = DataType.u8 if weights is DataType.s8 else DataType.s8
    shift = _HALF_RANGE if weights is DataType.s8 else -_HALF_RANGE
    for b, added in ((weights, 0),) if tiles else ((weights, 0), (other, shift)):
        for dot in isa.dots:
            pair = (src.name, b.name)
            if (dot.a, dot.b) in (pair, pair[::-1]):
                swapped = (dot.a, dot.b) != pair
                return Multiply(src, weights, dot.group, dot, swapped, added, tiles)
    packed = next((dot for dot in isa.dots if dot.a == dot.b == "s16"), INTEGERS)
    return Multiply(src, weights, 4, packed, tiles=tiles)
