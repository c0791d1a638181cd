"""Products of typed operands: what lies in memory, what registers hold, and what multiplies.

A product sums over k. *A* is broadcast: of a row, one word with as many k as a *group* has. *B* is
read by vectors: panels have a word with the group's k for each column, side by side::

    A   row      | k0 k1 k2 k3 |                              -> all lanes
    B   k-group  | k0 k1 k2 k3 | k0 k1 k2 k3 | k0 k1 k2 k3 |
                     column 0      column 1      column 2

Where B lies in rows, the same words are made in registers: of the rows of a group, as many vectors
of words as there are rows.

Floats that no instruction multiplies as they are become f32: those of A before, those of B when
they are loaded, and so do bytes beside floats. Bytes that no instruction multiplies are widened to
16 bits, or 32, in registers; no sum on the way leaves 32 bits, so that they are exact everywhere.
A vector has as many f64 as f32, in two registers.
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
    """How two types are multiplied.

    ``a`` and ``b`` are the types of A and of the panels in memory, ``group`` how many k a word has.
    ``dot`` is the instruction; if ``swapped``, it takes B first. Where it wants a B of the other
    sign, ``shift`` is what loading adds to each element: the sums are then too large by ``shift``
    times the sum of A's row. ``tiles`` is the instruction of a matrix unit for the same words: it
    multiplies blocks of them, and ``dot`` what is left, without any shift. Where A is ``widened``,
    elements of 16 bits lie in memory: of a word of four, those at even places before the others.
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
        """The type of the sums."""
        return _SUMS[self.dot.accumulator]

    @property
    def accumulator_bytes(self) -> int:
        """The size of a sum."""
        return 8 if self.accumulator is F64 else 4

    @property
    def span(self) -> int:
        """How many registers a vector of sums fills."""
        return 2 if self.accumulator is F64 else 1

    @property
    def is_integer(self) -> bool:
        """Whether bytes are multiplied."""
        return self.a in _BYTES

    @property
    def parts(self) -> int:
        """How many registers the operands of one vector fill."""
        return self.group // self.dot.group

    @property
    def on_registers(self) -> Multiply:
        """The same arithmetic on operands that lie in memory as in registers."""
        return self

    @property
    def row_vectors(self) -> int:
        """How many vectors of columns are made at a time where B lies in rows; 0 where it does
        not."""
        return self.group

    @property
    def steps(self) -> int:
        """In how many steps a word of A is multiplied."""
        return 1

    @property
    def shifted_late(self) -> bool:
        """Whether zero points of B are taken off the sums, and not off what is loaded."""
        return self.is_integer

    @property
    def element(self) -> tuple[ir.Type, ir.Type]:
        """The types by which A and B are addressed."""
        return I16 if self.up_converted else storage(self.a).element, storage(self.b).element

    @property
    def group_bytes(self) -> int:
        """The size of a word of A in memory."""
        return self.group * self.a.size * (1 + self.up_converted)

    def zero(self, e: Emitter) -> ir.Constant:
        """The sums of nothing."""
        return vector.splat_constant(vector.vector_type(self.accumulator, e.isa.lanes), 0)

    def ones(self, e: Emitter) -> Values:
        """A row of ones: its sums are those of the columns of B."""
        packed = vector.vector_type(I32, e.isa.lanes)
        return self._registers(e, vector.splat_constant(packed, 0x01010101), self.a)

    def broadcast(self, e: Emitter, pointer: ir.Value, step: int = 0) -> Values:
        """What a ``step`` multiplies of the word of A at an address, in all lanes."""
        lanes = e.isa.lanes
        if self.up_converted:
            pairs = (e.b.load(e.element(pointer, i64(n), I32), typ=I32, align=2) for n in range(2))
            kind = vector.vector_type(I16, 2 * lanes)
            return tuple(e.b.bitcast(vector.splat(e, pair, lanes), kind) for pair in pairs)
        if self.group == 1:
            element, _ = self.element
            return (vector.splat(e, e.b.load(pointer, typ=element, align=self.a.size), lanes),)
        word = e.b.load(pointer, typ=I32, align=self.a.size)
        return self._registers(e, vector.splat(e, word, lanes), self.a)

    def columns(self, e: Emitter, starts: Sequence[ir.Value]) -> Iterator[list[Values]]:
        """The operands of the vectors of columns that begin at ``starts``, for each step in turn
        that a word of A is multiplied in."""
        yield [self.load(e, start) for start in starts]

    def in_order(self, e: Emitter, cells: Values) -> Values:
        """The sums of a row by columns, from vectors in the order in which they were made."""
        return cells

    def load(self, e: Emitter, pointer: ir.Value) -> Values:
        """The words of a vector of columns at an address of a panel."""
        lanes = e.isa.lanes
        if self.group == 1:
            row = storage(self.b, self.accumulator)
            kind = vector.vector_type(row.element, lanes)
            return (row.to_core(e, vector.load(e, pointer, kind)),)
        kind = vector.vector_type(I32, lanes)
        return self.from_packed(e, e.b.load(pointer, typ=kind, align=self.b.size))

    def load_rows(self, e: Emitter, pointer: ir.Value, apart: int | ir.Value) -> list[Values]:
        """The words of as many vectors of columns side by side as a group has k, whose rows lie
        ``apart``, in elements."""
        element = ir.IntType(8 * self.b.size)
        kind = vector.vector_type(element, e.isa.lanes * self.group)
        starts = [e.element(pointer, e.mul(i64(k), apart), element) for k in range(self.group)]
        rows = interleave_registers(e, [vector.load(e, start, kind) for start in starts])
        packed = vector.vector_type(I32, e.isa.lanes)
        return [self.from_packed(e, e.b.bitcast(row, packed)) for row in rows]

    def from_packed(self, e: Emitter, packed: ir.Value) -> Values:
        """The operands of the instruction out of words of B."""
        if self.shift:
            packed = e.b.xor(packed, vector.splat_constant(packed.type, _SIGNS))
        signed = self.b is DataType.s8
        stands_for = DataType.s8 if signed != bool(self.shift) else DataType.u8
        return self._registers(e, packed, stands_for if self.is_integer else self.b)

    def add(self, e: Emitter, a: Values, b: Values, total: ir.Value) -> ir.Value:
        """total + the products of the words of A and B."""
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
        """sums + the bytes of words of A."""
        signed = self.a is DataType.s8
        for number in range(self.group):
            sums = e.b.add(sums, _byte(e, packed, number, signed=signed))
        return sums

    def _registers(self, e: Emitter, packed: ir.Value, of: DataType) -> Values:
        """The operands of the instruction out of words of elements of a type."""
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
    """Byte ``number`` of each element, as wide as the element."""
    kind, width = values.type, values.type.element.width
    up, down = width - 8 - 8 * number, width - 8
    if signed:
        top = e.b.shl(values, vector.splat_constant(kind, up)) if up else values
        return e.b.ashr(top, vector.splat_constant(kind, down))
    low = e.b.lshr(values, vector.splat_constant(kind, 8 * number)) if number else values
    return e.b.and_(low, vector.splat_constant(kind, 0xFF)) if up else low


def multiply(
    isa: Isa, src: DataType, weights: DataType, *, grouped: bool = True, tiled: bool = False
) -> Multiply | None:
    """The best way to multiply two types, or None: f64, or any two of f32, bf16, f16, u8 and s8.

    If not ``grouped``, floats are multiplied one k at a time, for layouts that have no groups. If
    ``tiled``, a matrix unit multiplies what it can; words are the same.
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
    return Multiply(DataType.f32, weights, 1, FLOATS)


def _tiles(isa: Isa, src: DataType, weights: DataType) -> Dot | None:
    """The instruction of the matrix unit for two types, if there is one."""
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
