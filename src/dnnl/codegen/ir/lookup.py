"""Table lookups by one shuffle instruction: tables of 16 or 32 elements in a register."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter


def _register(e: Emitter, element: ir.Type) -> tuple[int, str] | None:
    """The elements that a register holds, and LLVM's name of the lookup instruction for ``element``
    (f32 or i16); None if the target has none."""
    lanes = e.isa.vector_bits // vector.bits(element)
    name = e.isa.instruction("pick", vector.suffix(element), lanes)
    return (lanes, name) if name else None


def is_native(e: Emitter, kind: ir.Type) -> bool:
    """Whether the target looks up elements of this type (f32 or i16) and ``kind`` fills whole
    registers."""
    register = _register(e, kind.element)
    return register is not None and kind.count % register[0] == 0


def pick(e: Emitter, table: Sequence[float], index: ir.Value, element: ir.Type) -> ir.Value:
    """``table[i]`` for each lane of ``index``, where i is the lowest bits of the lane.

    ``index`` holds integers as wide as ``element``. The table has 16 elements of f32, or 32 of i16.
    Only where `is_native`.
    """
    register = _register(e, element)
    assert register is not None, "only where it is native"
    lanes, name = register
    kind = vector.vector_type(element, lanes)
    contents = ir.Constant(kind, [*table] * (lanes // len(table)))
    parts = vector.split(e, index, lanes)
    return vector.join(e, [e.intrinsic(name, kind, [contents, part]) for part in parts])
