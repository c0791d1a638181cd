"""Expands sparse values: places packed values at the set bits of a mask, with zeros between.

Targets without such an instruction expand eight elements at a time: the bits select a row of a
table, which has the index of the value for each element::

    bits    0 1 1 0 0 1 0 0      values   a b c ...
    table   - 0 1 - - 2 - -      ->       0 a b 0 0 c 0 0
"""

from __future__ import annotations

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, I64, Emitter, Value, i64

_BYTE = 8
_PIECE, _REGISTER = 16, 64
_NONE = 0x80
"""The index of an absent element, for which the lookup gives zero."""


class Expander:
    """Emits expansions of a multiple of 8 bytes."""

    def __init__(self, e: Emitter) -> None:
        self.e = e
        self._whole = e.isa.instruction("expand", "u8", _REGISTER)
        self._pick = e.isa.instruction("pick bytes", "u8", _PIECE)
        self._table = e.module.table(I8, _places()) if self._pick else None

    def expand(self, bits: Value, values: Value, dst: Value, count: int) -> Value:
        """Expand ``values`` by ``bits`` to ``count`` elements at ``dst``. Returns the number of
        values used (i64)."""
        e, taken = self.e, i64(0)
        whole = 0 if self._whole is None else count // _REGISTER * _REGISTER
        for begin in range(0, whole, _REGISTER):
            octet = e.element(bits, i64(begin // _BYTE), I8)
            taken = self._expanded(octet, values, taken, e.element(dst, i64(begin), I8))
        for begin in range(whole, count, _PIECE):
            size = min(_PIECE, count - begin)
            masks = [
                e.b.load(e.element(bits, i64((begin + first) // _BYTE), I8), typ=I8)
                for first in range(0, size, _BYTE)
            ]
            to = e.element(dst, i64(begin), I8)
            write = self._one_by_one if self._pick is None else self._picked
            taken = write(masks, values, taken, to)
        return taken

    def _expanded(self, bits: Value, values: Value, taken: Value, dst: Value) -> Value:
        """Expand a register with one instruction."""
        e, kind = self.e, vector.vector_type(I8, _REGISTER)
        assert self._whole is not None
        mask = e.b.load(bits, typ=I64, align=1)
        following = vector.load(e, e.element(values, taken, I8), kind)
        lanes = e.b.bitcast(mask, vector.vector_type(ir.IntType(1), _REGISTER))
        zeros = vector.splat_constant(kind, 0)
        vector.store(e, e.intrinsic(self._whole, kind, [following, zeros, lanes]), dst)
        return e.add(taken, e.intrinsic("llvm.ctpop.i64", I64, [mask]))

    def _picked(self, masks: list[Value], values: Value, taken: Value, dst: Value) -> Value:
        """Expand the two halves of a register with one table lookup."""
        e, kind = self.e, vector.vector_type(I64, 2)
        data = where = ir.Constant(kind, None)
        for half, mask in enumerate(masks):
            lane = ir.Constant(ir.IntType(32), half)
            row = e.element(self._table, e.mul(e.b.zext(mask, I64), _BYTE), I8)
            where = e.b.insert_element(where, e.b.load(row, typ=I64, align=1), lane)
            following = e.b.load(e.element(values, taken, I8), typ=I64, align=1)
            data = e.b.insert_element(data, following, lane)
            taken = e.add(taken, self._count(mask))
        if len(masks) > 1:  # the second half indexes its own values
            own = ir.Constant(kind, [0, int.from_bytes([_BYTE] * _BYTE, "little")])
            where = e.b.or_(where, own)
        elements = vector.vector_type(I8, _PIECE)
        assert self._pick is not None
        made = e.intrinsic(
            self._pick, elements, [e.b.bitcast(data, elements), e.b.bitcast(where, elements)]
        )
        if len(masks) == 1:
            first = e.b.extract_element(e.b.bitcast(made, kind), ir.Constant(ir.IntType(32), 0))
            e.b.store(first, dst, align=1)
        else:
            vector.store(e, made, dst)
        return taken

    def _one_by_one(self, masks: list[Value], values: Value, taken: Value, dst: Value) -> Value:
        e = self.e
        for number in range(_BYTE * len(masks)):
            mask = masks[number // _BYTE]
            bit = e.b.and_(e.b.lshr(mask, ir.Constant(I8, number % _BYTE)), ir.Constant(I8, 1))
            value = e.b.load(e.element(values, taken, I8), typ=I8)
            there = e.b.mul(value, bit)
            e.b.store(there, e.element(dst, i64(number), I8))
            taken = e.add(taken, e.b.zext(bit, I64))
        return taken

    def _count(self, mask: Value) -> Value:
        return self.e.intrinsic("llvm.ctpop.i64", I64, [self.e.b.zext(mask, I64)])


def _places() -> list[int]:
    """For each byte of bits, the value index of each of its eight elements."""
    rows = []
    for mask in range(1 << _BYTE):
        found = 0
        for bit in range(_BYTE):
            there = mask >> bit & 1
            rows.append(found if there else _NONE)
            found += there
    return rows
