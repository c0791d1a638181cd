"""Register tiles: some rows times the weights of a block of units, all gates at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import F32, I8, I32, Emitter, Value, Values, i64
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.product.brgemm import prefetch_bytes
from dnnl.codegen.product.multiply import Multiply, as_f32
from dnnl.types.size import Size

_IN_FLIGHT = 8
"""Multiply-adds that a processor has under way: sums of so few accumulators are split."""
Tile = list[list[Value]]
"""Accumulators by row and gate."""


@dataclass(frozen=True)
class Factor:
    """The weights of a block of units: the address of the first input of the first gate, and how
    many elements K blocks and gates are apart; ``multiply`` is how they are multiplied. ``mask``
    has the units that are there, if they are not in blocks. Of each gate ``zeros``, if there are
    any, are what weights that become f32 have too much."""

    pointer: Value
    multiply: Multiply
    per_block: int
    gates: tuple[int, ...]
    mask: Mask
    zeros: Sequence[Value] = ()

    def columns(self, e: Emitter, start: Value) -> list[Values]:
        """The operands of a K group of each gate."""
        found = self._loaded(e, start)
        if not self.zeros:
            return found
        pairs = zip(found, self.zeros, strict=True)
        return [(e.b.fsub(own, zero),) for (own,), zero in pairs]

    def _loaded(self, e: Emitter, start: Value) -> list[Values]:
        _, element = self.multiply.element
        starts = [e.element(start, e.number(gate), element) for gate in self.gates]
        if self.mask is None:
            return [self.multiply.load(e, own) for own in starts]
        row, kind = storage(self.multiply.b), vector.vector_type(element, e.isa.lanes)
        return [(row.to_core(e, vector.load(e, own, kind, self.mask)),) for own in starts]


@dataclass(frozen=True)
class Ahead:
    """What a product prefetches into the second-level cache: ``step`` bytes from an address on for
    each K block."""

    pointer: Value
    step: int

    def behind(self, e: Emitter, offset: Value) -> Ahead:
        """The same so many bytes behind."""
        return replace(self, pointer=e.element(self.pointer, offset, I8))


def widened(e: Emitter, factor: Factor, blocks: int, panel: Value) -> Factor:
    """The weights of so many K groups in f32, which are written to a ``panel`` of [input, gate,
    unit]."""
    _, element = factor.multiply.element
    lanes, gates, group = e.isa.lanes, len(factor.gates), factor.multiply.group

    def one(number: Value, to: Value) -> Values:
        start = e.element(factor.pointer, e.mul(number, factor.per_block), element)
        for gate, values in enumerate(factor.columns(e, start)):
            for k, own in enumerate(values):
                vector.store(e, own, e.element(to, i64((k * gates + gate) * lanes), F32))
        return (e.b.gep(to, [i64(group * gates * lanes)], source_etype=F32),)

    e.loop(i64(0), i64(blocks), one, (panel,), unroll=False, name="widen")
    beside = tuple(lanes * number for number in range(gates))
    return Factor(panel, as_f32(), gates * lanes, beside, None)


def multiply(
    e: Emitter,
    first: Tile,
    rows: Sequence[Value],
    factor: Factor,
    blocks: int | Value,
    *,
    apart: int = 1,
    ahead: Ahead | None = None,
) -> Tile:
    """``first`` plus the products of ``blocks`` K groups of each row, so many groups ``apart``,
    with the weights; their number may be a value of the kernel. A row more of ``first`` than there
    are rows is multiplied by ones."""
    kind, (a_element, b_element) = factor.multiply, factor.multiply.element
    count, gates, sums = len(rows), len(factor.gates), len(first)
    split, rest = 1, 0
    end = e.number(blocks) if isinstance(blocks, int | Size) else blocks
    if isinstance(blocks, int):
        split = max(1, min(_IN_FLIGHT // (sums * gates), blocks))
        rest = blocks % split
        end = i64(blocks - rest)
    sets = [first, *([[kind.zero(e)] * gates for _ in first] for _ in range(split - 1))]

    def step(base: Values, weights: Value, number: int, tile: Tile) -> Tile:
        start = e.element(weights, e.number(factor.per_block * number), b_element)
        columns = factor.columns(e, start)
        made: Tile = []
        for row, totals in zip_longest(base, tile):
            if row is None:
                value = kind.ones(e)
            else:
                start = e.element(row, i64(kind.group * apart * number), a_element)
                value = kind.broadcast(e, start)
            pairs = zip(columns, totals, strict=True)
            made.append([kind.add(e, value, column, total) for column, total in pairs])
        return made

    lines, step_ahead = ((), 0) if ahead is None else ((e.opaque(ahead.pointer),), ahead.step)
    asks = len(lines)

    def body(_: Value, weights: Value, *carried: Value) -> Values:
        lines, carried = carried[:asks], carried[asks:]
        lines = tuple(prefetch_bytes(e, line, split * step_ahead) for line in lines)
        base, flat = carried[:count], carried[count:]
        tiles = [shaped(flat, number, sums, gates) for number in range(split)]
        tiles = [step(base, weights, number, tile) for number, tile in enumerate(tiles)]
        following = [e.b.gep(row, [i64(split * apart * kind.group)], source_etype=a_element)
                     for row in base]  # fmt: skip
        behind = e.b.gep(weights, [e.number(split * factor.per_block)], source_etype=b_element)
        cells = (value for tile in tiles for row in tile for value in row)
        return behind, *lines, *following, *cells

    flat = [value for tile in sets for row in tile for value in row]
    carried = e.loop(
        i64(0), end, body, (e.opaque(factor.pointer), *lines, *map(e.opaque, rows), *flat),
        step=split, unroll=False, name="k",
    )  # fmt: skip
    weights, carried = carried[0], carried[1 + asks :]
    base, flat = carried[:count], list(carried[count:])
    tiles = [shaped(flat, number, sums, gates) for number in range(split)]
    for number in range(rest):
        tiles[number] = step(base, weights, number, tiles[number])
    add = e.b.add if kind.accumulator is I32 else e.b.fadd
    total = tiles[0]
    for tile in tiles[1:]:
        total = [
            [add(a, b) for a, b in zip(*pair, strict=True)]
            for pair in zip(total, tile, strict=True)
        ]
    return total


def shaped(flat: Sequence[Value], number: int, rows: int, gates: int) -> Tile:
    """Tile ``number`` of those whose accumulators stand one behind the other."""
    start = number * rows * gates
    return [list(flat[start + row * gates : start + (row + 1) * gates]) for row in range(rows)]
