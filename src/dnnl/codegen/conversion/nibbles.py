"""Elements of 4 bits in memory: two share a byte, the even one in its low half.

A code is such an element in the low half of an i8; what the high half holds does not matter when
it is stored. Pairs are bytes as in memory, of neighbours of which the first is in a low half.
Nothing writes a half byte that belongs to another element with another value.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, I16, Emitter, Values, i64

_LOW, _HIGH = 0x0F, 0xF0


def load_pairs(e: Emitter, where: ir.Value, lanes: int, mask: vector.Mask) -> ir.Value:
    """The bytes of neighbours, of which the first is the even one of the byte at ``where``."""
    low, high = _halves(e, mask)
    return vector.load(e, where, vector.vector_type(I8, lanes // 2), _either(e, low, high))


def load_pairs_anywhere(
    e: Emitter, pointer: ir.Value, offset: ir.Value, lanes: int, mask: vector.Mask
) -> ir.Value:
    """The bytes of neighbours of which the first is at ``offset`` (i64 elements), in either half of
    a byte, shifted so that it lies in the low one."""
    low, high = _halves(e, mask)
    kind = vector.vector_type(I8, lanes // 2)
    wide = vector.vector_type(I16, lanes // 4) if lanes % 4 == 0 else kind
    odd = e.b.and_(offset, i64(1))
    shift = vector.splat(e, e.b.trunc(e.b.shl(odd, i64(2)), wide.element), wide.count)
    first = e.b.ashr(offset, i64(1))  # a window may begin before the first element

    def load(at: ir.Value, mask: vector.Mask) -> ir.Value:
        return e.b.bitcast(vector.load(e, e.element(pointer, at, I8), kind, mask), wide)

    def half(value: ir.Value, bits: int) -> ir.Value:
        return e.b.and_(e.b.bitcast(value, kind), vector.splat_constant(kind, bits))

    # Where the first is in a high half, its right neighbour is in the low half of the next byte.
    evens = half(e.b.lshr(load(first, low), shift), _LOW)
    odds = half(e.b.shl(load(e.b.add(first, odd), high), shift), _HIGH)
    return e.b.or_(evens, odds)


def unpack(e: Emitter, pairs: ir.Value) -> ir.Value:
    """The codes of neighbours from their bytes."""
    wide = vector.vector_type(I16, pairs.type.count)
    apart = e.b.zext(pairs, wide)
    apart = e.b.or_(apart, e.b.shl(apart, vector.splat_constant(wide, 4)))
    apart = e.b.and_(apart, vector.splat_constant(wide, _LOW << 8 | _LOW))
    return e.b.bitcast(apart, vector.vector_type(I8, 2 * pairs.type.count))


def pack(e: Emitter, codes: ir.Value) -> ir.Value:
    """The bytes of neighbours from their codes."""
    wide = vector.vector_type(I16, codes.type.count // 2)
    pairs = e.b.bitcast(codes, wide)
    low = e.b.and_(pairs, vector.splat_constant(wide, _LOW))
    high = e.b.and_(
        e.b.lshr(pairs, vector.splat_constant(wide, 4)), vector.splat_constant(wide, _HIGH)
    )
    return e.b.trunc(e.b.or_(low, high), vector.vector_type(I8, wide.count))


def halves(e: Emitter, pairs: ir.Value) -> list[ir.Value]:
    """The codes in the low halves of bytes, and those in the high halves."""
    low = e.b.and_(pairs, vector.splat_constant(pairs.type, _LOW))
    return [low, e.b.lshr(pairs, vector.splat_constant(pairs.type, 4))]


def exchange(e: Emitter, even: ir.Value, odd: ir.Value) -> list[ir.Value]:
    """The 2 x 2 codes of each pair of bytes transposed: the bytes of the low halves of both, and
    those of the high ones."""
    low, high, four = (vector.splat_constant(even.type, bits) for bits in (_LOW, _HIGH, 4))
    lows = e.b.or_(e.b.and_(even, low), e.b.shl(odd, four))
    return [lows, e.b.or_(e.b.lshr(even, four), e.b.and_(odd, high))]


def store_pairs(e: Emitter, pairs: ir.Value, where: ir.Value, mask: vector.Mask) -> None:
    """Store the bytes of neighbours, of which the first is the even one of the byte at ``where``.

    A byte of which the mask has but one half keeps the other: no other element may be there.
    """
    low, high = _halves(e, mask)
    touched = _either(e, low, high)
    if not _same(low, high):
        own = _own(e, pairs.type, low, high)
        old = e.b.and_(vector.load(e, where, pairs.type, touched), e.b.not_(own))
        pairs = e.b.or_(e.b.and_(pairs, own), old)
    vector.store(e, pairs, where, touched)


def zero_outside(e: Emitter, pairs: ir.Value, mask: vector.Mask) -> ir.Value:
    """The bytes with zeros for the elements that a mask does not have."""
    return e.b.and_(pairs, _own(e, pairs.type, *_halves(e, mask)))


def _own(e: Emitter, kind: ir.Type, low: vector.Mask, high: vector.Mask) -> ir.Value:
    """The bits of the low and high halves that masks have."""
    return e.b.or_(_where(e, low, kind, _LOW), _where(e, high, kind, _HIGH))


def _where(e: Emitter, mask: vector.Mask, kind: ir.Type, bits: int) -> ir.Value:
    """``bits`` in the bytes of the mask."""
    value = vector.splat_constant(kind, bits)
    return value if mask is None else e.b.select(mask, value, vector.splat_constant(kind, 0))


def load_each(e: Emitter, pointer: ir.Value, offsets: ir.Value, mask: vector.Mask) -> ir.Value:
    """The codes at ``offsets`` (i64 elements, one for each lane)."""
    lanes = offsets.type.count
    kind = vector.vector_type(I8, lanes)
    places = e.b.ashr(offsets, vector.splat_constant(offsets.type, 1))
    loaded = vector.gather(e, pointer, places, kind, mask)
    odd = e.b.trunc(e.b.and_(offsets, vector.splat_constant(offsets.type, 1)), kind)
    shifted = e.b.lshr(loaded, e.b.shl(odd, vector.splat_constant(kind, 2)))
    return e.b.and_(shifted, vector.splat_constant(kind, _LOW))


def store_one(
    e: Emitter, code: ir.Value, pointer: ir.Value, offset: ir.Value, mask: vector.Mask
) -> None:
    """Store one code (vectors of one lane) beside its neighbour in the byte, which stays."""
    number, at = (vector.only(e, value) for value in (code, offset))

    def write() -> Values:
        where = e.b.gep(pointer, [e.b.lshr(at, i64(1))], source_etype=I8)
        shift = e.b.shl(e.b.trunc(e.b.and_(at, i64(1)), I8), ir.Constant(I8, 2))
        own = e.b.shl(ir.Constant(I8, _LOW), shift)
        old = e.b.and_(e.b.load(where, typ=I8, align=1), e.b.not_(own))
        new = e.b.and_(e.b.shl(number, shift), own)
        e.b.store(e.b.or_(old, new), where, align=1)
        return ()

    if mask is None:
        write()
    else:
        e.branch(vector.only(e, mask), write, lambda: ())


def _split(e: Emitter, value: ir.Value) -> list[ir.Value]:
    """The even and the odd lanes."""
    lanes = value.type.count
    picks: Sequence[list[int]] = [list(range(side, lanes, 2)) for side in (0, 1)]
    return [vector.shuffle(e, value, value, pick) for pick in picks]


def _halves(e: Emitter, mask: vector.Mask) -> list[vector.Mask]:
    """The bytes of which the mask has the low half, and those of which it has the high one."""
    if mask is None:
        return [None, None]
    if isinstance(mask, ir.Constant):
        known = vector.flags(mask)
        return [vector.known_lanes(known[0::2]), vector.known_lanes(known[1::2])]
    return [*_split(e, mask)]


def _same(low: vector.Mask, high: vector.Mask) -> bool:
    """Whether both halves are known to be of the same bytes."""
    if isinstance(low, ir.Constant) and isinstance(high, ir.Constant):
        return vector.flags(low) == vector.flags(high)
    return low is high


def _either(e: Emitter, low: vector.Mask, high: vector.Mask) -> vector.Mask:
    """The bytes of which a mask has either half."""
    if low is None or high is None:
        return None
    if isinstance(low, ir.Constant) and isinstance(high, ir.Constant):
        pairs = zip(vector.flags(low), vector.flags(high), strict=True)
        return vector.known_lanes([a or b for a, b in pairs])
    return e.b.or_(low, high)
