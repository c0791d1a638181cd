"""The generator for compute-bound work: batch-reduce matrix products on a tile of registers.

A *tile* is what the registers hold: ``rows`` x ``vectors`` accumulators. Its product with a panel
of weights is a sum over nested *levels*, the innermost over neighbouring k, the outer ones over
whatever the operation reduces besides: blocks of channels, taps of a convolution, a batch::

             vectors x lanes columns of B
             +-----------+-----------+
       k ->  |  b0       |  b1       |    one vector load each
             +-----------+-----------+
    row 0  a | acc[0][0] | acc[0][1] |    one broadcast load a row,
    row 1  a | acc[1][0] | acc[1][1] |    one multiply-add a cell
     ...     |           |           |
             +-----------+-----------+

Rows of A lie anywhere (a constant offset each), its k elements at any constant stride; columns of B
are contiguous. The tile never leaves the registers until the last level is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen import vector
from dnnl.codegen.builder import F32, Emitter, Values, i64
from dnnl.codegen.isa import Isa


@dataclass(frozen=True)
class Tile:
    """The register tile: ``rows`` x ``vectors`` accumulators of the target's vector width."""

    rows: int
    vectors: int


def max_rows(isa: Isa, vectors: int) -> int:
    """How many rows fit beside ``vectors`` columns of B and one broadcast."""
    return max(1, (isa.registers - vectors - 1) // vectors)


def choose_vectors(isa: Isa, columns: int, row_step: int = 0) -> int:
    """How many vectors wide a tile should be for this many columns.

    Two vectors need the fewest loads a product of those shapes whose rows still divide common
    sizes; another width is taken only where it leaves fewer columns idle. ``row_step`` is the
    distance of the rows of A in elements: where the rows of such a tile would fall into the same
    few sets of the first-level cache and drive each other out, the tile is made wide and low.
    Of scalars a tile is as square as registers allow: idle ones cost little.
    """
    if isa.lanes == 1:
        return 4 if columns > 2 else 2
    widths: tuple[int, ...] = (2, 3, 1)
    if columns >= 4 * isa.lanes and max_rows(isa, 2) > isa.caches.lines_kept(4 * row_step):
        widths = (4,)
    best, least = widths[0], None
    for vectors in widths:
        idle = -columns % (vectors * isa.lanes)
        if least is None or idle < least:
            best, least = vectors, idle
    return best


@dataclass(frozen=True)
class Level:
    """One loop of the reduction: where it begins and ends, and how far one step goes in A and in
    B, in elements."""

    begin: ir.Value
    end: ir.Value
    a_step: int
    b_step: int

    @property
    def count(self) -> int | None:
        """The number of steps, None if it is only known at run time."""
        constant = isinstance(self.begin, ir.Constant) and isinstance(self.end, ir.Constant)
        return int(self.end.constant - self.begin.constant) if constant else None

    @property
    def from_zero(self) -> bool:
        """Whether it begins with step 0 and its end is known."""
        return self.count is not None and self.begin.constant == 0

    def continues(self, inner: Level) -> bool:
        """Whether a step of this level goes where the steps of ``inner`` end."""
        steps = inner.count
        if steps is None or not (self.from_zero and inner.from_zero):
            return False
        return (self.a_step, self.b_step) == (inner.a_step * steps, inner.b_step * steps)

    @staticmethod
    def over(extent: int, a_step: int, b_step: int) -> Level:
        """A level with a constant number of steps."""
        return Level(i64(0), i64(extent), a_step, b_step)


def merge_levels(levels: Sequence[Level]) -> list[Level]:
    """The same levels with those joined that step through A and B as one longer line."""
    merged: list[Level] = []
    for level in reversed(levels):
        inner = merged[0] if merged else None
        if level.from_zero and level.count == 1 and inner is not None:
            continue
        if inner is not None and level.continues(inner):
            steps = (level.count or 0) * (inner.count or 0)
            merged[0] = Level.over(steps, inner.a_step, inner.b_step)
        else:
            merged.insert(0, level)
    return merged


@dataclass(frozen=True)
class Panels:
    """Where one product finds its operands: the bases of A and B, the offset of each row in A and
    of each vector in B, in elements."""

    a: ir.Value
    b: ir.Value
    rows: tuple[int, ...]
    vectors: tuple[int, ...]


def zeros(e: Emitter, tile: Tile) -> Values:
    """The accumulators of a fresh tile, row by row."""
    kind = vector.vector_type(F32, e.isa.lanes)
    return (vector.splat_constant(kind, 0.0),) * (tile.rows * tile.vectors)


Leaf = Callable[[Emitter, Values, Panels], Values]


def accumulate(
    e: Emitter, acc: Values, panels: Panels, levels: Sequence[Level], leaf: Leaf | None = None
) -> Values:
    """acc + the sum over all levels of A's column times B's row; ``acc`` is row by row.

    ``leaf`` does what is inside the innermost level instead of one such product.
    """
    if not levels:
        return leaf(e, acc, panels) if leaf else _rank_one(e, acc, panels)
    level = levels[0]
    if e.isa.device is not None:
        return _by_index(e, acc, panels, levels, leaf)
    a = e.opaque(e.element(panels.a, e.mul(level.begin, level.a_step), F32))
    b = e.opaque(e.element(panels.b, e.mul(level.begin, level.b_step), F32))

    def body(_: ir.Value, a: ir.Value, b: ir.Value, *values: ir.Value) -> Values:
        at = Panels(a, b, panels.rows, panels.vectors)
        results = accumulate(e, values, at, levels[1:], leaf)
        following = e.element(a, i64(level.a_step), F32), e.element(b, i64(level.b_step), F32)
        return (*following, *results)

    return e.loop(level.begin, level.end, body, (a, b, *acc), unroll=False, name="k")[2:]


def _by_index(
    e: Emitter, acc: Values, panels: Panels, levels: Sequence[Level], leaf: Leaf | None
) -> Values:
    """`accumulate` with addresses from the number of the step: pointers that a loop carries lose
    their types on the way to SPIR-V."""
    level = levels[0]

    def body(index: ir.Value, *values: ir.Value) -> Values:
        a = e.element(panels.a, e.mul(index, level.a_step), F32)
        b = e.element(panels.b, e.mul(index, level.b_step), F32)
        return accumulate(e, values, Panels(a, b, panels.rows, panels.vectors), levels[1:], leaf)

    return e.loop(level.begin, level.end, body, acc, unroll=False, name="k")


def _rank_one(e: Emitter, acc: Values, panels: Panels) -> Values:
    lanes = e.isa.lanes
    kind = vector.vector_type(F32, lanes)
    columns = [
        vector.load(e, e.element(panels.b, i64(offset), F32), kind) for offset in panels.vectors
    ]
    result = []
    cells = iter(acc)
    for offset in panels.rows:
        scalar = e.b.load(e.element(panels.a, i64(offset), F32), typ=F32, align=4)
        row = vector.splat(e, scalar, lanes)
        result += [vector.multiply_add(e, row, column, next(cells)) for column in columns]
    return tuple(result)
