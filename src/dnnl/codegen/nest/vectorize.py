"""Chooses the vector axis, and the operands that are loaded in squares.

The best vector axis is nearly always the one along which the destination is contiguous. An operand
that is contiguous along another axis gets that as its tile axis: rows of 128 bits are loaded along
it, one for each lane, and transposed in registers. An axis that would fill vectors or rows badly is
joined with the axis around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log2, prod

from dnnl.codegen.isa.caches import LINE, Caches
from dnnl.codegen.memory.access import Access, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.memory.place import NEAR
from dnnl.codegen.nest.loop_order import Square
from dnnl.codegen.nest.space import Space, stride
from dnnl.types.size import is_known, surely_below, surely_divides, surely_equal, typical

# Costs in vector loads: a lane of a gather, a lane of a scatter, a step of a horizontal reduction.
_GATHER, _SCATTER, _ACROSS = 1.5, 2.0, 3.0
# An axis is joined with the one around it if its last block would be emptier than this on average.
_WELL_FILLED = 0.8
# Width of the units of which the vector registers of all targets consist.
_UNIT_BITS = 128


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors of ``lanes`` iterations. ``lane`` is the axis along a vector, ``loop`` the axis over
    vectors. ``reduced`` vectors run along a reduction. The lanes of ``grouped`` ones are the items
    of a work-group, each of which has scalars."""

    lanes: int
    lane: Axis | None = None
    loop: Axis | None = None
    reduced: bool = False
    grouped: bool = False


@dataclass(frozen=True, eq=False)
class Squares:
    """Squares that are transposed in registers. ``tile`` is the axis along a row of a square,
    ``pieces`` the squares that are loaded side by side, ``along`` the loop over them in row
    direction. ``shape`` is what the loop order depends on."""

    tile: Axis
    pieces: Axis
    along: Axis
    shape: Square

    @property
    def columns(self) -> int:
        """The vectors that are loaded at a time."""
        return self.tile.extent * self.pieces.extent


def crosses_lanes(space: Space, vectors: Vectors, access: Access) -> bool:
    """Whether an operand is strided along the lanes and invariant in reductions."""
    if access.offset is None or vectors.lane is None:
        return False
    return space.invariant(access) and space.step(access, vectors.lane) not in (0, 1)


def in_rows(space: Space, vectors: Vectors, tile: Axis, access: Access) -> bool:
    """Whether an operand is loaded in rows along ``tile``, the axis of squares."""
    rows = access.offset is not None and access.offset.stride(tile) == 1
    return rows and crosses_lanes(space, vectors, access)


def vectorize(space: Space, lanes: int, caches: Caches) -> tuple[Space, Vectors, Squares | None]:
    """Cut the vector axis into vectors of at most ``lanes`` lanes, and an axis of a strided operand
    into squares."""
    line = vector_axis(space, lanes)
    if line is None:
        return space, Vectors(1), None
    if line in space.inner:
        return *in_vectors(space, line, min(lanes, round_up_power(line.typical))), None
    longer, joined = lengthened(space, space.outputs[0], line, lanes)
    found, vectors, squares = _across(longer, joined, lanes, caches)
    apart = found.lines and any(crosses_lanes(found, vectors, access) for access in found.reads)
    if squares is None and apart:  # only squares compute where the lanes of joined axes are
        return _across(space, line, lanes, caches)
    return found, vectors, squares


def _across(
    space: Space, line: Axis, lanes: int, caches: Caches
) -> tuple[Space, Vectors, Squares | None]:
    """Cut a parallel axis into vectors, and an axis of a strided operand into squares."""
    lanes = min(lanes, round_up_power(line.typical))
    space, vectors = in_vectors(space, line, lanes)
    for access in space.reads if lanes > 1 else ():
        tile = _tile_axis(space, vectors, access)
        if tile is not None:
            return _in_squares(space, vectors, access, tile, caches)
    return space, vectors, None


def vector_axis(space: Space, lanes: int) -> Axis | None:
    """The axis along which vectors of at most ``lanes`` lanes cost least; None without axes."""
    every = (*space.axes, *space.inner)
    return min(every, key=lambda axis: _cost(space, axis, lanes), default=None)


def in_vectors(space: Space, line: Axis, lanes: int) -> tuple[Space, Vectors]:
    """Cut the axis ``line`` into vectors of ``lanes`` lanes."""
    reduced = line in space.inner
    lane, loop = Axis(lanes, "lane"), Axis(-(-line.extent // lanes), line.name)
    return space.cut(line, loop, Affine.of(lane), lanes), Vectors(lanes, lane, loop, reduced)


def _cost(space: Space, axis: Axis, most: int) -> tuple[float, int]:
    """The cost of memory accesses for each point if vectors run along ``axis``, in vector loads.
    Ties are broken by the longest axis."""
    extent = axis.typical
    lanes = min(most, round_up_power(extent))
    share = -(-extent // lanes) / extent
    inside = axis in space.inner
    repeats = prod(inner.typical for inner in space.inner)
    total = _ACROSS * log2(lanes) if inside else 0.0
    for operand, access in space.accesses.items():
        invariant = space.invariant(access)
        if inside and invariant:
            total += 1.0
        else:
            count = 1 if invariant else repeats
            written = operand in space.outputs
            total += count * share * _vector_cost(space, access, axis, lanes, written)
    return total, -extent


def _vector_cost(space: Space, access: Access, axis: Axis, lanes: int, written: bool) -> float:
    step = stride(access, axis)
    found = space.indirect_strides(access)
    if step == 0 and found and 1 not in found:
        return _GATHER * lanes  # the indirect axis moves the operand, and not to neighbours
    if step is not None and is_known(step) and step in (0, 1):
        return 1.0
    if written and interleave_factor(space, access, axis) > 1:
        return 2.0
    if written:
        return _SCATTER * lanes
    if step is not None and is_known(step) and 1 < step <= NEAR:
        return step + 1.0
    rows = _rows(access, lanes)
    tiled = space.invariant(access) and any(
        other is not axis and stride(access, other) == 1 and 2 * other.typical >= rows
        for other in space.axes
    )
    return 2.0 if tiled else _GATHER * lanes


def interleave_factor(space: Space, access: Access, axis: Axis | None) -> int:
    """How many outputs of one buffer alternate along an axis, filling each other's gaps; 1 if
    none."""
    step = stride(access, axis) if axis is not None else None
    slot = access.operand.slot
    parts = sum(output.slot == slot for output in space.outputs)
    return step if step is not None and is_known(step) and parts >= step > 1 else 1


def _tile_axis(space: Space, vectors: Vectors, access: Access) -> Axis | None:
    """The loop along which ``access`` is contiguous, if it is strided along the lanes."""
    if not crosses_lanes(space, vectors, access):
        return None
    others = (axis for axis in space.axes if axis is not vectors.loop)
    return next((axis for axis in others if _row_axis(space, access, axis, vectors.lanes)), None)


def _in_squares(
    space: Space, vectors: Vectors, read: Access, tile: Axis, caches: Caches
) -> tuple[Space, Vectors, Squares]:
    """Cut ``tile`` into squares of ``read``: one row for each lane, of which registers hold at most
    16 columns."""
    assert vectors.lane is not None
    lanes = vectors.lanes
    rows = _row_length(read, tile, lanes)
    most = max(1, min(4, min(lanes, 16) // rows, -(-tile.typical // rows)))
    apart = space.step_bytes(read, vectors.lane), space.step_bytes(space.dst, tile)
    shape = Square(*apart, lanes, most, fills_lines(space.dst, vectors), caches)
    space, line = lengthened(space, read.operand, tile, rows, vectors)
    # Along joined lines the computed addresses cost more than conflict misses.
    divided = line is tile and space.lines
    pieces = Axis(shape.most_pieces if divided else shape.pieces, "piece")
    row = Axis(rows, "tile")
    at_once = rows * pieces.extent
    loop = Axis(-(-line.extent // at_once), line.name)
    space = space.cut(line, loop, Affine.of(pieces, rows) + Affine.of(row), at_once)
    return space, vectors, Squares(row, pieces, loop, shape)


def lengthened(
    space: Space, operand: Operand, axis: Axis, size: int, vectors: Vectors | None = None
) -> tuple[Space, Axis]:
    """The axis; or, if it would fill blocks of ``size`` badly, its line with the axis around it in
    the operand. ``vectors`` are given once they are chosen."""
    while axis.typical < _WELL_FILLED * size * -(-axis.typical // size):
        access = space.accesses[operand]
        others = (other for other in space.axes if vectors is None or other is not vectors.loop)
        outer = next((other for other in others if _lies_around(space, access, other, axis)), None)
        if outer is None or not _only_across(space, access, outer, axis, size, vectors):
            break
        space, axis = space.joined(operand, outer, axis)
    return space, axis


def _lies_around(space: Space, access: Access, outer: Axis, inner: Axis) -> bool:
    """Whether ``outer`` and ``inner`` are contiguous in an operand and without bounds."""
    if access.offset is None or outer is inner:
        return False
    far = access.offset.stride(inner) * inner.extent
    contiguous = surely_equal(access.offset.stride(outer), far)
    return contiguous and not space.bounded(outer, inner)


def _only_across(
    space: Space, access: Access, outer: Axis, inner: Axis, lanes: int, vectors: Vectors | None
) -> bool:
    """Whether no other operand needs vectors along the two axes. Before the vector axis is chosen,
    every other operand must be invariant along both, or be an input that is loaded in rows along
    one other axis, the same for all. Afterwards, none may be contiguous along the two."""
    if any(form.stride(axis) for form in space.numbers.values() for axis in (outer, inner)):
        return False
    row_axes = set()
    for other in space.accesses.values():
        if other is access:
            continue
        if other.offset is None:
            return False
        steps = {other.offset.stride(axis) for axis in (outer, inner)}
        if 1 in steps:
            return False
        if vectors is None and steps != {0}:
            rows = [axis for axis in space.axes if _row_axis(space, other, axis, lanes)]
            if 0 in steps or len(rows) != 1 or other.operand in space.outputs:
                return False
            row_axes.add(rows[0])
    return len(row_axes) <= 1


def _row_axis(space: Space, access: Access, axis: Axis, lanes: int) -> bool:
    """Whether an operand can be loaded in rows along an axis."""
    contiguous = space.invariant(access) and stride(access, axis) == 1
    return contiguous and 2 * axis.typical >= _rows(access, lanes)


def _row_length(access: Access, axis: Axis, lanes: int) -> int:
    """The length of the rows of a square: 128 bits, but at most the lanes; half of that for a short
    axis of 4-bit elements."""
    rows = _rows(access, lanes)
    longer = _UNIT_BITS // access.operand.desc.data_type.bits
    return min(lanes, longer) if axis.typical > rows else rows


def _rows(access: Access, lanes: int) -> int:
    """The shortest row of a square: 128 bits in registers, where 4-bit elements may take bytes, but
    at most the lanes."""
    return min(lanes, _UNIT_BITS // max(8, access.operand.desc.data_type.bits))


def fills_lines(dst: Access, vectors: Vectors, factor: int = 1) -> bool:
    """Whether each whole vector, or ``factor`` interleaved ones, is stored to whole cache lines."""
    return aligned(dst, vectors, factor) and has_whole_lines(dst, vectors, factor)


def has_whole_lines(dst: Access, vectors: Vectors, factor: int = 1) -> bool:
    """Whether a whole vector, or ``factor`` interleaved ones, has the size of some cache lines."""
    return factor * vectors.lanes * dst.operand.desc.data_type.bits % (8 * LINE) == 0


def aligned(
    dst: Access,
    vectors: Vectors,
    factor: int = 1,
    divides: Callable[[int, int], bool] = surely_divides,
) -> bool:
    """Whether each whole vector, or ``factor`` interleaved ones, is stored to a multiple of its
    size; ``divides(lanes, step)`` says that of the distance between two."""
    if dst.offset is None or vectors.lane is None or dst.offset.stride(vectors.lane) != factor:
        return False
    first, apart = dst.offset.const, [*dst.offset.without(vectors.lane).strides.values()]
    if not surely_below(first % vectors.lanes, factor):
        apart.append(first)
    # The least is asked first: the others are multiples of it in dense tensors.
    return all(divides(vectors.lanes, step) for step in sorted(apart, key=typical))


def round_up_power(value: int) -> int:
    return 1 << (value - 1).bit_length()
