"""Permute the elements of registers by indices that are computed at run time."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I32, Emitter
from dnnl.codegen.isa import Isa

_ONE, _TWO = "permute", "permute two"
_BITS = 32


def permutes(isa: Isa, bits: int, lanes: int) -> bool:
    """Whether the target permutes elements of ``bits`` bits across registers of ``lanes`` lanes."""
    return bits == _BITS and isa.instruction(_ONE, "f32", lanes) is not None


def permuted(e: Emitter, parts: Sequence[ir.Value], index: ir.Value) -> ir.Value:
    """Select elements of the concatenated registers ``parts`` by ``index`` (i32, one for each
    lane).

    Elements have 32 bits, or fewer if they are integers. Only where the target `permutes`.
    """
    kind, lanes = parts[0].type, parts[0].type.count
    floats, integers = vector.vector_type(F32, lanes), vector.vector_type(I32, lanes)
    if vector.bits(kind) < _BITS:
        found = permuted(e, [e.b.zext(part, integers) for part in parts], index)
        return e.b.trunc(found, kind)
    parts = [e.b.bitcast(part, floats) for part in parts]
    one, two = (e.isa.instruction(name, "f32", lanes) for name in (_ONE, _TWO))
    assert one is not None, "only where the target permutes"
    at_once = 2 if two and len(parts) > 1 else 1
    value: ir.Value = None
    for first in range(0, len(parts), at_once):
        some = parts[first : first + at_once]
        if two and len(some) == 2:
            picked = e.intrinsic(two, floats, [some[0], index, some[1]])
        else:
            picked = e.intrinsic(one, floats, [*some, index])
        if value is not None:
            # The instruction ignores the upper bits of an index, so a range check selects the
            # register.
            here = vector.splat_constant(index.type, first * lanes)
            picked = e.b.select(e.b.icmp_signed(">=", index, here), picked, value)
        value = picked
    return e.b.bitcast(value, kind)
