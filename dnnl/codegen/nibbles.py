"""Elements of 4 bits in memory: two share a byte, the even one in its low half.

A code is such an element in the low half of an i8; what the high half holds does not matter when
it is stored. Nothing writes a half byte that belongs to another element with another value.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen import vector
from dnnl.codegen.builder import I8, I16, Emitter, Values, i64

_LOW = 0x0F


def load_line(e: Emitter, where: ir.Value, lanes: int, mask: vector.Mask) -> ir.Value:
    """The codes of neighbours, of which the first is the even one of the byte at ``where``."""
    loaded = load_bytes(e, where, lanes, mask)
    pairs = vector.vector_type(I16, lanes // 2)
    wide = e.b.zext(loaded, pairs)
    apart = e.b.or_(wide, e.b.shl(wide, vector.splat_constant(pairs, 4)))
    apart = e.b.and_(apart, vector.splat_constant(pairs, _LOW << 8 | _LOW))
    return e.b.bitcast(apart, vector.vector_type(I8, lanes))


def load_line_anywhere(
    e: Emitter, pointer: ir.Value, offset: ir.Value, lanes: int, mask: vector.Mask
) -> ir.Value:
    """The codes of neighbours, of which the first is at ``offset`` (i64 elements), in either half
    of a byte."""
    low, high = _halves(e, mask)
    kind, pairs = vector.vector_type(I8, lanes // 2), vector.vector_type(I16, lanes // 2)
    odd = e.b.and_(offset, i64(1))
    shift = e.b.shl(e.b.trunc(odd, I16), ir.Constant(I16, 2))
    first = e.b.lshr(offset, i64(1))

    def load(at: ir.Value, mask: vector.Mask) -> ir.Value:
        return e.b.zext(vector.load(e, e.element(pointer, at, I8), kind, mask), pairs)

    # Where the first is in a high half, its right neighbour is in the low half of the next byte.
    evens = e.b.lshr(load(first, low), vector.splat(e, shift, lanes // 2))
    up = e.b.add(shift, ir.Constant(I16, 4))
    odds = e.b.shl(load(e.b.add(first, odd), high), vector.splat(e, up, lanes // 2))
    evens = e.b.and_(evens, vector.splat_constant(pairs, _LOW))
    odds = e.b.and_(odds, vector.splat_constant(pairs, _LOW << 8))
    return e.b.bitcast(e.b.or_(evens, odds), vector.vector_type(I8, lanes))


def load_bytes(e: Emitter, where: ir.Value, lanes: int, mask: vector.Mask) -> ir.Value:
    """The bytes of neighbours, of which the first is the even one of the byte at ``where``."""
    low, high = _halves(e, mask)
    return vector.load(e, where, vector.vector_type(I8, lanes // 2), _either(e, low, high))


def pair(e: Emitter, loaded: ir.Value) -> list[ir.Value]:
    """The codes in the low halves of bytes, and those in the high halves."""
    low = e.b.and_(loaded, vector.splat_constant(loaded.type, _LOW))
    return [low, e.b.lshr(loaded, vector.splat_constant(loaded.type, 4))]


def store_line(e: Emitter, codes: ir.Value, where: ir.Value, mask: vector.Mask) -> None:
    """Store neighbours, of which the first is the even one of the byte at ``where``.

    A byte of which the mask has but one half keeps the other: no other element may be there.
    """
    kind = vector.vector_type(I8, codes.type.count // 2)
    pairs = vector.vector_type(I16, codes.type.count // 2)
    wide = e.b.bitcast(codes, pairs)
    low = e.b.and_(wide, vector.splat_constant(pairs, _LOW))
    high = e.b.and_(
        e.b.lshr(wide, vector.splat_constant(pairs, 4)), vector.splat_constant(pairs, _LOW << 4)
    )
    packed = e.b.trunc(e.b.or_(low, high), kind)
    low_bytes, high_bytes = _halves(e, mask)
    if low_bytes is None and high_bytes is None:
        vector.store(e, packed, where)
        return
    touched = _either(e, low_bytes, high_bytes)
    own = e.b.or_(_where(e, low_bytes, kind, _LOW), _where(e, high_bytes, kind, _LOW << 4))
    old = e.b.and_(vector.load(e, where, kind, touched), e.b.not_(own))
    vector.store(e, e.b.or_(e.b.and_(packed, own), old), where, touched)


def _where(e: Emitter, mask: vector.Mask, kind: ir.Type, bits: int) -> ir.Value:
    """``bits`` in the bytes of the mask."""
    value = vector.splat_constant(kind, bits)
    return value if mask is None else e.b.select(mask, value, vector.splat_constant(kind, 0))


def load_each(e: Emitter, pointer: ir.Value, offsets: ir.Value, mask: vector.Mask) -> ir.Value:
    """The codes at ``offsets`` (i64 elements, one for each lane)."""
    lanes = offsets.type.count
    kind = vector.vector_type(I8, lanes)
    places = e.b.lshr(offsets, vector.splat_constant(offsets.type, 1))
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


def _either(e: Emitter, low: vector.Mask, high: vector.Mask) -> vector.Mask:
    """The bytes of which a mask has either half."""
    if low is None or high is None:
        return None
    if isinstance(low, ir.Constant) and isinstance(high, ir.Constant):
        pairs = zip(vector.flags(low), vector.flags(high), strict=True)
        return vector.known_lanes([a or b for a, b in pairs])
    return e.b.or_(low, high)
