"""Short tables in registers, of which one instruction picks an element for each lane."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter


def _register(e: Emitter, element: ir.Type) -> tuple[int, str] | None:
    """How many elements of a type, f32 or i16, a register holds of which the target picks, and the
    instruction."""
    lanes = e.isa.vector_bits // vector.bits(element)
    name = e.isa.instruction("pick", vector.suffix(element), lanes)
    return (lanes, name) if name else None


def is_native(e: Emitter, kind: ir.Type) -> bool:
    """Whether the target picks elements of this type, f32 or i16, for all registers of it."""
    register = _register(e, kind.element)
    return register is not None and kind.count % register[0] == 0


def pick(e: Emitter, table: Sequence[float], index: ir.Value, element: ir.Type) -> ir.Value:
    """table[i] for each lane, whose lowest bits are i: an integer as wide as ``element``.

    The table has 16 elements, or 32 of i16. Only where ``is_native``.
    """
    register = _register(e, element)
    assert register is not None, "only where it is native"
    lanes, name = register
    kind = vector.vector_type(element, lanes)
    contents = ir.Constant(kind, [*table] * (lanes // len(table)))
    parts = vector.split(e, index, lanes)
    return vector.join(e, [e.intrinsic(name, kind, [contents, part]) for part in parts])
