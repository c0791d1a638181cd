"""Transposing what registers hold already; `vector.transpose` does it while rows are loaded."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dnnl.codegen import vector
from dnnl.codegen.builder import Emitter


def transpose_registers(e: Emitter, rows: Sequence[ir.Value]) -> list[ir.Value]:
    """Columns from as many rows, each of them a register, as it has lanes.

    Units of 128 bits change places first, so that each register has the same unit of all rows that
    are a unit's lanes apart; the rest stays inside the units.
    """
    lanes = rows[0].type.count
    unit = min(lanes, 128 // vector.bits(rows[0].type))
    squares = [list(rows[first::unit]) for first in range(unit)]
    for _ in range((lanes // unit).bit_length() - 1):
        squares = [_unzip(e, square, unit) for square in squares]
    pieces = range(lanes // unit)
    return [
        column
        for piece in pieces
        for column in vector.interleave(e, [square[piece] for square in squares], unit)
    ]


def _unzip(e: Emitter, regs: list[ir.Value], unit: int) -> list[ir.Value]:
    """The even units of each pair of registers, then the odd ones of each."""
    lanes = range(2 * regs[0].type.count)
    return [
        vector.shuffle(e, a, b, [lane for lane in lanes if lane // unit % 2 == odd])
        for odd in (0, 1)
        for a, b in zip(regs[::2], regs[1::2], strict=True)
    ]
