"""4-bit elements: two to a byte, the even one in the low half.

A code is an element in the low half of an i8; stores ignore the high half. Pairs are bytes as
stored: consecutive elements, the first one in a low half. A store never changes the other half of a
byte.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, I16, Emitter, Values, i64

_LOW, _HIGH = 0x0F, 0xF0


def load_pairs(e: Emitter, where: ir.Value, lanes: int, mask: vector.Mask) -> ir.Value:
    """Load consecutive elements as bytes. The first is the even one of the byte at ``where``."""
    low, high = _halves(e, mask)
    return vector.load(e, where, vector.vector_type(I8, lanes // 2), _either(e, low, high))


def load_pairs_anywhere(
    e: Emitter, pointer: ir.Value, offset: ir.Value, lanes: int, mask: vector.Mask
) -> ir.Value:
    """Load consecutive elements as bytes from ``offset`` (i64, in elements), odd or even. The bytes
    are shifted so that the first element is in a low half."""
    low, high = _halves(e, mask)
    kind = vector.vector_type(I8, lanes // 2)
    wide = vector.vector_type(I16, lanes // 4) if lanes % 4 == 0 else kind
    odd = e.b.and_(offset, i64(1))
    shift = vector.splat(e, e.b.trunc(e.b.shl(odd, i64(2)), wide.element), wide.count)
    first = e.b.ashr(offset, i64(1))  # a window may start before the first element

    def load(at: ir.Value, mask: vector.Mask) -> ir.Value:
        return e.b.bitcast(vector.load(e, e.element(pointer, at, I8), kind, mask), wide)

    def half(value: ir.Value, bits: int) -> ir.Value:
        return e.b.and_(e.b.bitcast(value, kind), vector.splat_constant(kind, bits))

    # At an odd offset each high element is in the next byte's low half.
    evens = half(e.b.lshr(load(first, low), shift), _LOW)
    odds = half(e.b.shl(load(e.b.add(first, odd), high), shift), _HIGH)
    return e.b.or_(evens, odds)


def unpack(e: Emitter, pairs: ir.Value) -> ir.Value:
    """Split bytes into codes."""
    wide = vector.vector_type(I16, pairs.type.count)
    apart = e.b.zext(pairs, wide)
    apart = e.b.or_(apart, e.b.shl(apart, vector.splat_constant(wide, 4)))
    apart = e.b.and_(apart, vector.splat_constant(wide, _LOW << 8 | _LOW))
    return e.b.bitcast(apart, vector.vector_type(I8, 2 * pairs.type.count))


def pack(e: Emitter, codes: ir.Value) -> ir.Value:
    """Pack codes into bytes."""
    wide = vector.vector_type(I16, codes.type.count // 2)
    pairs = e.b.bitcast(codes, wide)
    low = e.b.and_(pairs, vector.splat_constant(wide, _LOW))
    high = e.b.and_(
        e.b.lshr(pairs, vector.splat_constant(wide, 4)), vector.splat_constant(wide, _HIGH)
    )
    return e.b.trunc(e.b.or_(low, high), vector.vector_type(I8, wide.count))


def halves(e: Emitter, pairs: ir.Value) -> list[ir.Value]:
    """The codes of the low halves, and those of the high halves."""
    low = e.b.and_(pairs, vector.splat_constant(pairs.type, _LOW))
    return [low, e.b.lshr(pairs, vector.splat_constant(pairs.type, 4))]


def exchange(e: Emitter, even: ir.Value, odd: ir.Value) -> list[ir.Value]:
    """Transpose the 2 x 2 codes of each pair of bytes: the low halves of both, then the high
    halves."""
    low, high, four = (vector.splat_constant(even.type, bits) for bits in (_LOW, _HIGH, 4))
    lows = e.b.or_(e.b.and_(even, low), e.b.shl(odd, four))
    return [lows, e.b.or_(e.b.lshr(even, four), e.b.and_(odd, high))]


def store_pairs(e: Emitter, pairs: ir.Value, where: ir.Value, mask: vector.Mask) -> None:
    """Store consecutive elements as bytes. The first is the even one of the byte at ``where``.

    If the mask has one half of a byte, the other half is read and written back: no other thread may
    own it.
    """
    low, high = _halves(e, mask)
    touched = _either(e, low, high)
    if not _same(low, high):
        own = _own(e, pairs.type, low, high)
        old = e.b.and_(vector.load(e, where, pairs.type, touched), e.b.not_(own))
        pairs = e.b.or_(e.b.and_(pairs, own), old)
    vector.store(e, pairs, where, touched)


def zero_outside(e: Emitter, pairs: ir.Value, mask: vector.Mask) -> ir.Value:
    """Zero the elements outside a mask."""
    return e.b.and_(pairs, _own(e, pairs.type, *_halves(e, mask)))


def _own(e: Emitter, kind: ir.Type, low: vector.Mask, high: vector.Mask) -> ir.Value:
    """The bits of the halves that the masks contain."""
    return e.b.or_(_where(e, low, kind, _LOW), _where(e, high, kind, _HIGH))


def _where(e: Emitter, mask: vector.Mask, kind: ir.Type, bits: int) -> ir.Value:
    """``bits`` in the bytes of the mask, else 0."""
    value = vector.splat_constant(kind, bits)
    return value if mask is None else e.b.select(mask, value, vector.splat_constant(kind, 0))


def load_each(e: Emitter, pointer: ir.Value, offsets: ir.Value, mask: vector.Mask) -> ir.Value:
    """Load the codes at ``offsets`` (i64 elements, one for each lane)."""
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
    """Store one code (vectors of one lane) and keep the other half of the byte."""
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
    """The bytes whose low half is in the mask, and those whose high half is."""
    if mask is None:
        return [None, None]
    if isinstance(mask, ir.Constant):
        known = vector.flags(mask)
        return [vector.known_lanes(known[0::2]), vector.known_lanes(known[1::2])]
    return [*_split(e, mask)]


def _same(low: vector.Mask, high: vector.Mask) -> bool:
    """Whether both masks are known to be equal."""
    if isinstance(low, ir.Constant) and isinstance(high, ir.Constant):
        return vector.flags(low) == vector.flags(high)
    return low is high


def _either(e: Emitter, low: vector.Mask, high: vector.Mask) -> vector.Mask:
    """The union of both masks."""
    if low is None or high is None:
        return None
    if isinstance(low, ir.Constant) and isinstance(high, ir.Constant):
        pairs = zip(vector.flags(low), vector.flags(high), strict=True)
        return vector.known_lanes([a or b for a, b in pairs])
    return e.b.or_(low, high)
