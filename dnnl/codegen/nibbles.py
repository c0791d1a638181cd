"""Elements of 4 bits in memory: two share a byte, the even one in its low half.

A code is such an element in the low half of an i8; what the high half holds does not matter when
it is stored. Nothing writes a half byte that belongs to another element with another value.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen import vector
from dnnl.codegen.builder import I8, Emitter, Values, i64

_LOW = 0x0F
_HIGH = -0x10  # 0xF0 as a signed byte


def load_line(e: Emitter, where: ir.Value, lanes: int, mask: vector.Mask) -> ir.Value:
    """The codes of neighbours, of which the first is the even one of the byte at ``where``."""
    kind = vector.vector_type(I8, lanes // 2)
    halves = _halves(e, mask)
    loaded = vector.load(e, where, kind, None if halves is None else e.b.or_(*halves))
    low = e.b.and_(loaded, vector.splat_constant(kind, _LOW))
    high = e.b.lshr(loaded, vector.splat_constant(kind, 4))
    half = lanes // 2
    return vector.shuffle(e, low, high, [at for k in range(half) for at in (k, half + k)])


def store_line(e: Emitter, codes: ir.Value, where: ir.Value, mask: vector.Mask) -> None:
    """Store neighbours, of which the first is the even one of the byte at ``where``.

    A byte of which the mask has but one half keeps the other: no other element may be there.
    """
    kind = vector.vector_type(I8, codes.type.count // 2)
    low, high = _split(e, codes)
    low = e.b.and_(low, vector.splat_constant(kind, _LOW))
    high = e.b.shl(high, vector.splat_constant(kind, 4))
    halves = _halves(e, mask)
    if halves is None:
        vector.store(e, e.b.or_(low, high), where)
        return
    touched = e.b.or_(*halves)
    old = vector.load(e, where, kind, touched)
    low = e.b.select(halves[0], low, e.b.and_(old, vector.splat_constant(kind, _LOW)))
    high = e.b.select(halves[1], high, e.b.and_(old, vector.splat_constant(kind, _HIGH)))
    vector.store(e, e.b.or_(low, high), where, touched)


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


def _halves(e: Emitter, mask: vector.Mask) -> list[ir.Value] | None:
    """The bytes of which the mask has the low half, and those of which it has the high one."""
    return None if mask is None else _split(e, mask)
