"""Short tables in registers, of which one instruction picks an element for each lane."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen import vector
from dnnl.codegen.builder import F32, I16, Emitter

_REGISTER_BITS = 512
_PICK = {F32: "llvm.x86.avx512.permvar.sf.512", I16: "llvm.x86.avx512.permvar.hi.512"}


def is_native(e: Emitter, kind: ir.Type) -> bool:
    """Whether the target picks elements of this type, f32 or i16, for all registers of it."""
    return e.isa.lookup and vector.bits(kind) * kind.count % _REGISTER_BITS == 0


def pick(e: Emitter, table: Sequence[float], index: ir.Value, element: ir.Type) -> ir.Value:
    """table[i] for each lane, whose lowest bits are i: an integer as wide as ``element``.

    The table has 16 elements, or 32 of i16. Only where ``is_native``.
    """
    lanes = _REGISTER_BITS // vector.bits(element)
    kind = vector.vector_type(element, lanes)
    register = ir.Constant(kind, [*table] * (lanes // len(table)))
    parts = vector.split(e, index, lanes)
    return vector.join(e, [e.intrinsic(_PICK[element], kind, [register, part]) for part in parts])
