"""A reduction cut into parts, which are then as parallel as what is kept.

In how many follows from the shape and the machine's kind, never from the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.codegen.ir.builder import Type
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.codegen.nest.schedule import widths
from dnnl.codegen.nest.space import Space, stride
from dnnl.codegen.nest.vectorize import Vectors, vectorize
from dnnl.codegen.nest.work_items import target_items

REGISTERS = 4
"""How many registers the vectors of a part fill that lie along what is kept: the rows of a source
whose channels are innermost are then read a few lines at a time. Those of a single result may fill
twice as many."""

_MOST_PARTS = 512
_F32 = 4
# A part fills this share of the second cache, whose lines may have conflict misses.
_PART = 16
# Rows along the innermost axis are cut between vectors, whatever their length.
_MULTIPLE = 64
# Sizes that are tried before a last piece may be shorter.
_MOST_SIZES = 128


def most_parts(isa: Isa, points: int, reduced: int) -> int:
    """The most parts into which a reduction of ``reduced`` elements to each of ``kept`` is cut."""
    return parts_of(isa, points, reduced, min(max(1, points), part_lanes(isa, isa.lanes)))


def part_lanes(isa: Isa, lanes: int) -> int:
    """The lanes of the vectors of a part that lie along what is kept, ``lanes`` to a register."""
    return REGISTERS * lanes if isa.lanes > 1 else 1


def parts_of(isa: Isa, points: int, reduced: int, width: int) -> int:
    """Parts enough to be shared out, and so small that a cache holds one, where ``width`` of what
    is kept are done side by side."""
    shared = -(-target_items(isa, points * reduced) // max(1, -(-points // width)))
    cached = -(-reduced * width * _F32 * _PART // isa.caches.l2) if isa.caches.l2 else 1
    return max(1, min(_MOST_PARTS, reduced, max(shared, cached)))


def cut_reduction(
    isa: Isa, space: Space, points: int, reduced: int, results: Sequence[Operand], core: Type
) -> tuple[Space, int, int]:
    """The space with its reduction of ``reduced`` elements to each of ``kept`` in parts, how many
    they are, and how many registers its vectors of ``core`` had better fill. The ``results`` of
    each part lie behind those of the parts before it."""
    space = space.merged()
    lanes, _ = widths(isa, core)
    _, vectors, _ = vectorize(space, part_lanes(isa, lanes), isa.caches)
    width = 1 if vectors.reduced else vectors.lanes
    parts = min(most_parts(isa, points, reduced), parts_of(isa, points, reduced, width))
    count, number = 1, ZERO
    for axis in sorted(space.inner, key=lambda axis: -_longest_step(space, axis)):
        pieces = min(axis.extent, parts // count)
        size = -(-axis.extent // pieces)
        if 1 < size < axis.extent:
            rows = any(stride(access, axis) == 1 for access in space.reads)
            size = even_piece(axis.extent, size, rows=rows)
        pieces = -(-axis.extent // size)
        if pieces > 1:
            part = Axis(pieces, f"{axis.name}_part")
            space = space.cut_off(axis, part, size)
            number, count = number * pieces + Affine.of(part), count * pieces
        if size > 1:
            break
    return space.displaced(results, number), count, _registers(vectors, len(results))


def _registers(vectors: Vectors, results: int) -> int:
    """How many registers vectors had better fill that were planned for `REGISTERS`."""
    if vectors.reduced:
        return 1
    even = vectors.loop is not None and vectors.loop.extent % 2 == 0
    return 2 * REGISTERS if even and results == 1 else REGISTERS


def even_piece(extent: int, size: int, *, rows: bool) -> int:
    """A size near the given one, and no less, that divides the extent, or at least cuts ``rows``
    of neighbours between vectors."""
    if rows:
        return -(-size // _MULTIPLE) * _MULTIPLE
    sizes = range(size, min(2 * size, size + _MOST_SIZES))
    return next((s for s in sizes if extent % s == 0), size)


def _longest_step(space: Space, axis: Axis) -> int:
    return max((space.step_bytes(access, axis) for access in space.reads), default=0)
