"""Byte products through 16-bit sums of pairs, for vector units without VNNI.

One instruction (pmaddubsw) multiplies u8 by s8 and adds neighbours in 16 bits with saturation. With
widening and accumulation, 32 products take three instructions; 16-bit multiplications take four. No
pair saturates, whatever src is, if two weights sum up to at most `_LARGEST` in magnitude::

    src      | a0 a1 a2 a3 |       0 <= a <= 255
    weights  | w0 w1 w2 w3 |       |w0 + w1|, |w2 + w3| <= 128
    sums     | a0 w0 + a1 w1 | a2 w2 + a3 w3 |       within 16 bits
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I16, Emitter, Value, Values
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import Multiply
from dnnl.types.dtype import DataType

_INSTRUCTION = "add pairs of bytes", "u8"
_LARGEST = 128
"""255 * 128 = 32640. If the weights differ in sign, each product alone is within 16 bits."""


@dataclass(frozen=True)
class Pairs(Multiply):
    """u8 times s8 through 16-bit sums of pairs."""

    @staticmethod
    def of(isa: Isa, kind: Multiply) -> Pairs | None:
        """The pairs that replace ``kind``, or None if there is no instruction for it."""
        types = kind.a, kind.b, kind.shift
        if types != (DataType.u8, DataType.s8, 0) or kind.parts == 1:
            return None
        if isa.instruction(*_INSTRUCTION, isa.vector_bits // 8) is None:
            return None
        same = {field.name: getattr(kind, field.name) for field in fields(Multiply)}
        return Pairs(**{**same, "up_converted": False})

    @property
    def parts(self) -> int:
        """K groups are multiplied without unpacking."""
        return 1

    def add(self, e: Emitter, a: Values, b: Values, total: ir.Value) -> ir.Value:
        """total + the products of the groups of A and B."""
        name = e.isa.instruction(*_INSTRUCTION, e.isa.vector_bits // 8)
        assert name is not None, "there are no pairs without it"
        halves = vector.vector_type(I16, 2 * total.type.count)
        pairs = e.intrinsic(name, halves, [*a, *b])
        ones = vector.splat_constant(halves, 1)
        return e.b.add(total, e.intrinsic(self.dot.instruction, total.type, [pairs, ones]))


def sums(e: Emitter, packed: Value) -> Values:
    """The sums of neighbouring bytes, twice: as the first minima and maxima for `extremes`."""
    halves = _halves(e, packed)
    eight = vector.splat_constant(halves.type, 8)
    total = e.b.add(e.b.ashr(e.b.shl(halves, eight), eight), e.b.ashr(halves, eight))
    return (e.b.bitcast(total, packed.type),) * 2


def extremes(e: Emitter, found: Values, others: Values) -> Values:
    """The minima and maxima of two results, two 16-bit sums in each lane."""
    chosen = []
    for order, one, other in zip("<>", found, others, strict=True):
        a, b = _halves(e, one), _halves(e, other)
        best = e.b.select(e.b.icmp_signed(order, a, b), a, b)
        chosen.append(e.b.bitcast(best, one.type))
    return tuple(chosen)


def exceeds(e: Emitter, least: Value, largest: Value) -> Value:
    """Non-zero lanes where a sum is outside the exact range."""
    low, high = _halves(e, least), _halves(e, largest)
    limit = vector.splat_constant(low.type, _LARGEST)
    below = e.b.icmp_signed("<", low, e.b.neg(limit))
    beyond = e.b.or_(below, e.b.icmp_signed(">", high, limit))
    return e.b.bitcast(e.b.zext(beyond, low.type), least.type)


def _halves(e: Emitter, packed: Value) -> Value:
    return e.b.bitcast(packed, vector.vector_type(I16, 2 * packed.type.count))
