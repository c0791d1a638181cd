"""Splits a reduction into parts that run in parallel.

The number of parts depends on the shape and on the kind of machine, never on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.codegen.ir.builder import Type
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.codegen.nest.groups import line_of, parts_of_lines
from dnnl.codegen.nest.schedule import widths
from dnnl.codegen.nest.space import Space, stride
from dnnl.codegen.nest.vectorize import Vectors, vectorize
from dnnl.codegen.nest.work_items import target_items
from dnnl.types.size import is_known, larger, smaller, typical

REGISTERS = 4
"""The registers that a vector of a part spans along the parallel axes. Rows of a channels-last
source are then read a few lines at a time. With a single result it may span twice as many."""

_MOST_PARTS = 512
_F32 = 4
# Reductions of fewer elements are not split where only an execution knows how many there are.
_SHORT = 64
# A part fills this fraction of the second-level cache, to leave room for conflict misses.
_PART = 16
# Rows along the innermost axis are split at multiples of this many elements, between vectors.
_MULTIPLE = 64
# The sizes tried before the last piece may be shorter.
_MOST_SIZES = 128


def most_parts(isa: Isa, points: int, reduced: int) -> int:
    """The maximum number of parts of a reduction of ``reduced`` elements for each of ``points``
    points."""
    width = part_lanes(isa, isa.lanes)
    return parts_of(isa, points, reduced, min(max(1, points), width) if is_known(points) else width)


def part_lanes(isa: Isa, lanes: int) -> int:
    """The lanes of a part's vector along the parallel axes; a register has ``lanes``."""
    return REGISTERS * lanes if isa.lanes > 1 else 1


def parts_of(isa: Isa, points: int, reduced: int, width: int) -> int:
    """The number of parts: enough for all threads, and each small enough for the cache if ``width``
    points are reduced at a time."""
    shared = -(-target_items(isa, points * reduced) // larger(1, -(-points // width)))
    cached = -(-reduced * width * _F32 * _PART // isa.caches.l2) if isa.caches.l2 else 1
    return larger(1, smaller(smaller(_MOST_PARTS, reduced), larger(shared, cached)))


def worth_splitting(parts: int, reduced: int) -> bool:
    """Whether to split a reduction of ``reduced`` elements into ``parts``. Code for several parts
    serves a single one as well; only of short reductions its second phase would take long."""
    if is_known(parts) or typical(parts) < 2:
        return parts > 1
    return reduced >= _SHORT


def cut_reduction(
    isa: Isa, space: Space, points: int, reduced: int, results: Sequence[Operand], core: Type
) -> tuple[Space, int, int]:
    """Split the reduction of ``space``. Returns the space, the number of parts, and the
    registers that vectors of ``core`` should span. The ``results`` of the parts follow each
    other in memory."""
    space = space.merged()
    lanes, _ = widths(isa, core)
    _, vectors, _ = vectorize(space, part_lanes(isa, lanes), isa.caches)
    width = 1 if vectors.reduced else vectors.lanes
    parts = smaller(most_parts(isa, points, reduced), parts_of(isa, points, reduced, width))
    multiple, shared = _MULTIPLE, line_of(isa, space)
    if shared is not None:
        multiple = max(multiple, shared[1])
        parts = smaller(parts, parts_of_lines(points, reduced, shared[1]))
    count, number = 1, ZERO
    registers = _registers(vectors, len(results))
    if not worth_splitting(parts, reduced):
        return space.displaced(results, number), count, registers
    for axis in sorted(space.inner, key=lambda axis: -_longest_step(space, axis)):
        pieces = smaller(axis.extent, larger(1, parts // count))
        size = -(-axis.extent // pieces)
        if 1 < typical(size) < axis.typical:
            rows = any(stride(access, axis) == 1 for access in space.reads)
            size = even_piece(axis.extent, size, rows=rows, multiple=multiple)
        pieces = -(-axis.extent // size)
        if typical(pieces) > 1:
            part = Axis(pieces, f"{axis.name}_part")
            space = space.cut_off(axis, part, size)
            number, count = number * pieces + Affine.of(part), count * pieces
        if typical(size) > 1:
            break
    return space.displaced(results, number), count, registers


def _registers(vectors: Vectors, results: int) -> int:
    """The registers that vectors should span that were planned with `REGISTERS`."""
    if vectors.reduced:
        return 1
    even = vectors.loop is not None and vectors.loop.typical % 2 == 0
    return 2 * REGISTERS if even and results == 1 else REGISTERS


def even_piece(extent: int, size: int, *, rows: bool, multiple: int = _MULTIPLE) -> int:
    """A size of at least ``size`` that divides the extent, if one is near. ``rows`` of consecutive
    elements are split between vectors instead, at a ``multiple``."""
    if rows:
        return -(-size // multiple) * multiple
    if not is_known(extent):
        return size
    sizes = range(size, min(2 * size, size + _MOST_SIZES))
    return next((s for s in sizes if extent % s == 0), size)


def _longest_step(space: Space, axis: Axis) -> int:
    return max((space.step_bytes(access, axis) for access in space.reads), default=0)
