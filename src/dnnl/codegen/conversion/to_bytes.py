"""Conversion of f32 to s8 and u8 by rounding and saturating pack instructions.

Rounding to s32 gives -2^31 on overflow and for NaN, so large values are clamped first. Pack
instructions saturate the rest; NaN becomes the minimum. Four registers of 32-bit integers become
one of bytes, always inside units of 128 bits; a final shuffle orders their 32-bit lanes::

    a0 a1 a2 a3 | a4 ..     b0 b1 ..      c0 c1 ..      d0 d1 ..      32 bits
    a0 a1 a2 a3 b0 b1 b2 b3 | a4 ..       c0 c1 c2 c3 d0 d1 d2 d3 | c4 ..       16 bits
    a0 a1 a2 a3 b0 b1 b2 b3 c0 c1 c2 c3 d0 d1 d2 d3 | a4 ..                      bytes
"""

from __future__ import annotations

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I8, I16, I32, Emitter
from dnnl.codegen.isa import Isa

GROUP = 4
"""The registers of f32 that one register of bytes takes."""
_TO_NEAREST = 4  # the current rounding mode
_DWORDS = 4  # 32-bit lanes of a 128-bit unit
_MASKED = 16  # lanes of a register whose instructions take masks


def rounds(isa: Isa, lanes: int) -> bool:
    """Whether the target has the instructions for vectors of ``lanes`` f32."""
    return isa.instruction("to integers", "f32", min(lanes, isa.lanes)) is not None


def to_byte(e: Emitter, value: ir.Value, *, signed: bool) -> ir.Value:
    """Round f32 to s8 or u8, ties to even, saturated; NaN becomes the minimum."""
    lanes = min(value.type.count, e.isa.lanes)
    parts = vector.split(e, value, lanes)
    if lanes == e.isa.lanes and len(parts) % GROUP == 0:
        numbers = [nearest(e, _limited(e, part, signed)) for part in parts]
        groups = [numbers[at : at + GROUP] for at in range(0, len(numbers), GROUP)]
        return vector.join(e, [_packed(e, group, signed) for group in groups])
    if lanes == _MASKED and not signed:
        return _unsigned(e, parts)
    number = vector.join(e, [nearest(e, _limited(e, part, signed)) for part in parts])
    low, high = (-128, 127) if signed else (0, 255)
    most, least = (vector.splat_constant(number.type, limit) for limit in (high, low))
    number = e.b.select(e.b.icmp_signed("<", number, most), number, most)
    number = e.b.select(e.b.icmp_signed(">", number, least), number, least)
    return e.b.trunc(number, vector.vector_type(I8, number.type.count))


def _limited(e: Emitter, value: ir.Value, signed: bool) -> ir.Value:
    """Clamp to the largest byte; NaN stays NaN."""
    return vector.minimum(e, vector.splat_constant(value.type, 127.0 if signed else 255.0), value)


def nearest(e: Emitter, value: ir.Value, mask: ir.Value | None = None) -> ir.Value:
    """Round f32 to s32; zero where the mask is off."""
    lanes = value.type.count
    name = e.isa.instruction("to integers", "f32", lanes)
    assert name is not None, "only where the target rounds"
    kind = vector.vector_type(I32, lanes)
    if lanes < _MASKED:
        return e.intrinsic(name, kind, [value])
    every = ir.Constant(ir.IntType(lanes), -1)
    zero, rounding = vector.splat_constant(kind, 0), ir.Constant(I32, _TO_NEAREST)
    return e.intrinsic(name, kind, [value, zero, every if mask is None else mask, rounding])


def _packed(e: Emitter, numbers: list[ir.Value], signed: bool) -> ir.Value:
    """Saturate four registers of s32 to one of bytes."""

    def halved(operation: str, element: ir.IntType, a: ir.Value, b: ir.Value) -> ir.Value:
        name = e.isa.instruction(operation, f"s{2 * element.width}", a.type.count)
        assert name is not None, "what rounds saturates"
        kind = vector.vector_type(element, 2 * a.type.count)
        return e.intrinsic(name, kind, [a, b])

    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    low, high = (halved("to s16", I16, a, b) for a, b in pairs)
    packed = halved("to s8" if signed else "to u8", I8, low, high)
    dwords = e.b.bitcast(packed, numbers[0].type)
    units = dwords.type.count // _DWORDS
    order = [unit * _DWORDS + place for place in range(_DWORDS) for unit in range(units)]
    return e.b.bitcast(vector.shuffle(e, dwords, dwords, order), packed.type)


def _unsigned(e: Emitter, parts: list[ir.Value]) -> ir.Value:
    """Round registers with masks to u8. The unsigned pack reads -2^31 as a large number, so
    negative values are set to zero first.

    On processors with a matrix unit a mask does that: their compares run on the port that takes no
    maxima.
    """
    zero, numbers = vector.splat_constant(parts[0].type, 0.0), []
    for part in parts:
        if e.isa.matrix is None:
            numbers.append(nearest(e, vector.maximum(e, part, zero)))
        else:
            mask = e.b.fcmp_ordered(">", part, zero)
            numbers.append(nearest(e, part, e.b.bitcast(mask, ir.IntType(_MASKED))))
    number = vector.join(e, numbers)
    most = vector.splat_constant(number.type, 255)
    number = e.b.select(e.b.icmp_unsigned("<", number, most), number, most)
    return e.b.trunc(number, vector.vector_type(I8, number.type.count))
