"""Loads and stores of vectors that span several registers, one masked access for each register.

LLVM 22 drops the masks of some registers when it splits a masked vector itself.
"""

from __future__ import annotations

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I32, Emitter, i64
from dnnl.codegen.ir.vector import Mask


def load(e: Emitter, pointer: ir.Value, kind: ir.VectorType, mask: Mask) -> ir.Value:
    """Load consecutive elements. Lanes outside ``mask`` read as zero and touch no memory."""
    masks = _masks(e, kind, mask)
    if len(masks) == 1:
        return vector.load(e, pointer, kind, mask)
    part = vector.vector_type(kind.element, kind.count // len(masks))
    starts = [e.element(pointer, i64(n * part.count), part.element) for n in range(len(masks))]
    pairs = zip(starts, masks, strict=True)
    return vector.join(e, [vector.load(e, start, part, own) for start, own in pairs])


def store(
    e: Emitter, value: ir.Value, pointer: ir.Value, mask: Mask, *, streamed: bool = False
) -> None:
    """Store consecutive elements. Lanes outside ``mask`` touch no memory. ``streamed`` makes a
    store without a mask non-temporal."""
    masks = _masks(e, value.type, mask)
    if len(masks) == 1:
        vector.store(e, value, pointer, mask, streamed=streamed)
        return
    parts = vector.split(e, value, value.type.count // len(masks))
    for number, (part, own) in enumerate(zip(parts, masks, strict=True)):
        if not vector.is_empty(own):
            where = e.element(pointer, i64(number * part.type.count), part.type.element)
            vector.store(e, part, where, own)


def _masks(e: Emitter, kind: ir.VectorType, mask: Mask) -> list[Mask]:
    """The mask of each register that the vector spans; one mask if the access is not split."""
    lanes = min(kind.count, e.isa.vector_bits // vector.bits(kind))
    whole = lanes == kind.count or not e.isa.mask_registers
    if mask is None or whole or vector.is_empty(mask):
        return [mask]
    if isinstance(mask, ir.Constant):
        known = vector.flags(mask)
        return [vector.known_lanes(known[at : at + lanes]) for at in range(0, len(known), lanes)]
    return _split(e, mask, lanes)


def _split(e: Emitter, mask: ir.Value, lanes: int) -> list[Mask]:
    """Split a run-time mask into masks of ``lanes`` lanes.

    Without mask registers the mask is split as integers: LLVM 22 otherwise loads a register in full
    even if none of its lanes is set.
    """
    if e.isa.merging:
        return list(vector.split(e, mask, lanes))
    wide = e.b.sext(mask, vector.vector_type(I32, mask.type.count))
    parts = vector.split(e, wide, lanes)
    return [e.b.icmp_signed("<", part, vector.splat_constant(part.type, 0)) for part in parts]
