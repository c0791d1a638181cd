"""Interleave vectors: the first element of each, then the second of each, and so on."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I1, Emitter


def interleave(e: Emitter, vectors: Sequence[ir.Value]) -> list[ir.Value]:
    """Interleave ``vectors`` of equal length. The result is as many vectors as were given."""
    lanes, count = vectors[0].type.count, len(vectors)
    interleaved = []
    for begin in range(0, lanes * count, lanes):
        at = range(begin, begin + lanes)
        part = vectors[0]
        picks = [place // count if place % count == 0 else 0 for place in at]
        for which, value in enumerate(vectors[1:], 1):
            own = {
                n: lanes + place // count for n, place in enumerate(at) if place % count == which
            }
            done = picks if which == 1 else list(range(lanes))
            part = vector.shuffle(e, part, value, [own.get(n, done[n]) for n in range(lanes)])
        interleaved.append(part)
    return interleaved


def interleave_masks(e: Emitter, masks: Sequence[vector.Mask], lanes: int) -> list[vector.Mask]:
    """The masks that belong to the vectors of `interleave`, from one mask for each operand."""
    if all(mask is None or isinstance(mask, ir.Constant) for mask in masks):
        known = [[True] * lanes if mask is None else vector.flags(mask) for mask in masks]
        every = [known[n % len(masks)][n // len(masks)] for n in range(lanes * len(masks))]
        return [vector.known_lanes(every[at : at + lanes]) for at in range(0, len(every), lanes)]
    full = vector.splat_constant(vector.vector_type(I1, lanes), 1)
    return list(interleave(e, [full if mask is None else mask for mask in masks]))
