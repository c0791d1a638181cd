"""Register tiles: some rows times the weights of a block of units, all gates at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dnnl.codegen.conversion.convert import Storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, Emitter, Value, Values, i64
from dnnl.codegen.ir.vector import Mask

_IN_FLIGHT = 8
"""Multiply-adds that a processor has under way: sums of so few accumulators are split."""
Tile = list[list[Value]]
"""Accumulators by row and gate."""


@dataclass(frozen=True)
class Factor:
    """The weights of a block of units: the address of the first input of the first gate, and how
    many elements inputs and gates are apart; ``storage`` is their type in memory. ``mask`` has the
    units that are there."""

    pointer: Value
    storage: Storage
    per_input: int
    gates: tuple[int, ...]
    mask: Mask


def multiply(e: Emitter, first: Tile, rows: Sequence[Value], factor: Factor, inputs: int) -> Tile:
    """``first`` plus the products of ``inputs`` elements of each row with the weights."""
    lanes, kind = e.isa.lanes, vector.vector_type(F32, e.isa.lanes)
    stored = vector.vector_type(factor.storage.element, lanes)
    count, gates = len(rows), len(factor.gates)
    split = max(1, min(_IN_FLIGHT // (count * gates), inputs)) if inputs else 1
    zero = vector.splat_constant(kind, 0)
    sets = [first, *([[zero] * gates for _ in rows] for _ in range(split - 1))]

    def step(base: Values, weights: Value, number: int, tile: Tile) -> Tile:
        apart, element = factor.per_input * number, factor.storage.element
        columns = [
            factor.storage.to_core(
                e,
                vector.load(
                    e, e.element(weights, e.number(apart + gate), element), stored, factor.mask
                ),
            )
            for gate in factor.gates
        ]
        made: Tile = []
        for row, sums in zip(base, tile, strict=True):
            scalar = e.b.load(e.element(row, i64(number), F32), typ=F32, align=4)
            value = vector.splat(e, scalar, lanes)
            pairs = zip(columns, sums, strict=True)
            made.append([vector.multiply_add(e, value, column, total) for column, total in pairs])
        return made

    def body(_: Value, weights: Value, *carried: Value) -> Values:
        base, flat = carried[:count], carried[count:]
        tiles = [_shaped(flat, number, count, gates) for number in range(split)]
        tiles = [step(base, weights, number, tile) for number, tile in enumerate(tiles)]
        following = [e.b.gep(row, [i64(split)], source_etype=F32) for row in base]
        apart = e.number(split * factor.per_input)
        behind = e.b.gep(weights, [apart], source_etype=factor.storage.element)
        return behind, *following, *(v for tile in tiles for row in tile for v in row)

    flat = [value for tile in sets for row in tile for value in row]
    whole = inputs // split * split
    carried = e.loop(
        i64(0), i64(whole), body, (e.opaque(factor.pointer), *map(e.opaque, rows), *flat),
        step=split, unroll=False, name="k",
    )  # fmt: skip
    weights, base, flat = carried[0], carried[1 : 1 + count], list(carried[1 + count :])
    tiles = [_shaped(flat, number, count, gates) for number in range(split)]
    for number in range(inputs - whole):
        tiles[number] = step(base, weights, number, tiles[number])
    total = tiles[0]
    for tile in tiles[1:]:
        total = [
            [e.b.fadd(a, b) for a, b in zip(*pair, strict=True)]
            for pair in zip(total, tile, strict=True)
        ]
    return total


def _shaped(flat: Sequence[Value], number: int, rows: int, gates: int) -> Tile:
    start = number * rows * gates
    return [list(flat[start + row * gates : start + (row + 1) * gates]) for row in range(rows)]
