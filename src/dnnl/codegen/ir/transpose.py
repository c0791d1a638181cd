"""Transpose registers. `vector.transpose` transposes while it loads."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter


def transpose_registers(e: Emitter, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """Transpose a square of registers: as many rows as a register has lanes.

    Units of 128 bits are exchanged between registers first; the remaining steps stay inside units.
    """
    lanes = rows[0].type.count
    unit = min(lanes, 128 // vector.bits(rows[0].type))
    squares = [_sort_units(e, rows[first::unit], unit) for first in range(unit)]
    pieces = range(lanes // unit)
    return [
        column
        for piece in pieces
        for column in vector.interleave(e, [square[piece] for square in squares], unit)
    ]


def interleave_registers(e: Emitter, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """Interleave whole registers, element by element. ``rows`` are two or four registers of 8- or
    16-bit elements, and so is the result::

        a0 a1 a2 a3 ..    b0 b1 b2 b3 ..      ->      a0 b0 a1 b1 ..    .. a8 b8 a9 b9 ..
    """
    unit = 128 // vector.bits(rows[0].type)
    return _sort_units(e, vector.interleave(e, list(rows), unit), unit)


def _sort_units(e: Emitter, regs: Sequence[ir.Value], unit: int) -> list[ir.Value]:
    """Reorder 128-bit units: the first unit of every register, then the second of every register,
    and so on."""
    regs = list(regs)
    for _ in range((regs[0].type.count // unit).bit_length() - 1):
        regs = unzip(e, regs, unit)
    return regs


def unzip(e: Emitter, regs: list[ir.Value], unit: int) -> list[ir.Value]:
    """For each pair of registers the even units, then the odd ones."""
    lanes = range(2 * regs[0].type.count)
    return [
        vector.shuffle(e, a, b, [lane for lane in lanes if lane // unit % 2 == odd])
        for odd in (0, 1)
        for a, b in zip(regs[::2], regs[1::2], strict=True)
    ]
