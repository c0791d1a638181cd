"""Products of bytes whose sums of two have 16 bits.

Vector units without VNNI multiply u8 by s8 and add neighbours up in one instruction, but in 16
bits, which saturate: 32 products take three instructions, one to widen the sums and one to add
them, where 16 bits multiplied by 16 bits take four. No sum of two can saturate beside two weights
whose sum is not beyond `_LARGEST`, whatever src holds::

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
"""255 * 128 = 32640. Of weights of both signs, the larger product alone is within 16 bits."""


@dataclass(frozen=True)
class Pairs(Multiply):
    """u8 times s8 by sums of two in 16 bits."""

    @staticmethod
    def of(isa: Isa, kind: Multiply) -> Pairs | None:
        """What multiplies the words of ``way``, if there is an instruction for them."""
        types = kind.a, kind.b, kind.shift
        if types != (DataType.u8, DataType.s8, 0) or kind.parts == 1:
            return None
        if isa.instruction(*_INSTRUCTION, isa.vector_bits // 8) is None:
            return None
        same = {field.name: getattr(kind, field.name) for field in fields(Multiply)}
        return Pairs(**{**same, "up_converted": False})

    @property
    def parts(self) -> int:
        """Words are multiplied as they are."""
        return 1

    def add(self, e: Emitter, a: Values, b: Values, total: ir.Value) -> ir.Value:
        """total + the products of the words of A and B."""
        name = e.isa.instruction(*_INSTRUCTION, e.isa.vector_bits // 8)
        assert name is not None, "there are no pairs without it"
        halves = vector.vector_type(I16, 2 * total.type.count)
        pairs = e.intrinsic(name, halves, [*a, *b])
        ones = vector.splat_constant(halves, 1)
        return e.b.add(total, e.intrinsic(self.dot.instruction, total.type, [pairs, ones]))


def sums(e: Emitter, packed: Value) -> Values:
    """The sums of neighbours among the bytes of words, twice: as the least ones and as the largest
    ones that `extremes` has found."""
    halves = _halves(e, packed)
    eight = vector.splat_constant(halves.type, 8)
    total = e.b.add(e.b.ashr(e.b.shl(halves, eight), eight), e.b.ashr(halves, eight))
    return (e.b.bitcast(total, packed.type),) * 2


def extremes(e: Emitter, found: Values, others: Values) -> Values:
    """The least and the largest sums of both, two in a word each."""
    chosen = []
    for order, one, other in zip("<>", found, others, strict=True):
        a, b = _halves(e, one), _halves(e, other)
        best = e.b.select(e.b.icmp_signed(order, a, b), a, b)
        chosen.append(e.b.bitcast(best, one.type))
    return tuple(chosen)


def exceeds(e: Emitter, least: Value, largest: Value) -> Value:
    """Words that are zero where no sum is beyond what is exact."""
    low, high = _halves(e, least), _halves(e, largest)
    limit = vector.splat_constant(low.type, _LARGEST)
    below = e.b.icmp_signed("<", low, e.b.neg(limit))
    beyond = e.b.or_(below, e.b.icmp_signed(">", high, limit))
    return e.b.bitcast(e.b.zext(beyond, low.type), least.type)


def _halves(e: Emitter, packed: Value) -> Value:
    return e.b.bitcast(packed, vector.vector_type(I16, 2 * packed.type.count))
