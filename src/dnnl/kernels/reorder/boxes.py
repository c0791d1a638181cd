"""Index spaces cut into boxes, for kernels with run-time sizes and strides.

On a *box* the offset of every operand is affine: a base, and loops with an extent and a stride in
each operand. Blocks, tails, padding and groups determine the cuts, so that the generated code only
walks boxes. The iterations of a box's outer loops are its *rows*. A row has two loops: the inner
one is the ``lane`` loop, along which dst is contiguous if it is so along any loop. `BoxTraversal`
says how rows are traversed.

The generated code reads boxes from a block of 64-bit launch parameters::

    block   boxes | the most outer loops of any, or whether one item does all | box ...
    box     traversal | zero | rows | outer loops | extents of the row's loops: lane, other
            (base, stride along the lane loop, stride along the other loop) of each view
            (extent, stride in each view) of each outer loop

The second parameter is the number of counters of loops where threads have memory for these.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise, product
from math import lcm, prod

from dnnl.codegen.ir.kernel import Sizes
from dnnl.codegen.memory.address import block_boundaries
from dnnl.codegen.nest import work_items
from dnnl.codegen.nest.work_items import SHARES
from dnnl.types.memory_desc import MemoryDesc

HEAD = 6
"""The number of launch parameters of a box before those of the views."""
_WORK_OF_A_ROW = 4096
# In elements: the longest narrow line, and the size of a row of lines; the number of lines below
# which a longer loop is preferred.
_WIDE, _ROW = 256, 4096
_SHORT = 16
_LINE = 64  # in elements: whole cache lines of any type
# The width of rows of squares, whose lines of src should stay in the first-level cache.
_WIDEST_SQUARES = 64


class BoxTraversal(IntEnum):
    """How the rows of a box are traversed."""

    EACH = 0  # element by element
    LINES = 1  # by vectors along the lane loop; dst and src are contiguous
    SQUARES = 2  # by transposed squares: src is contiguous along the other loop of the row


@dataclass(frozen=True)
class View:
    """One operand: its descriptor, and for each dimension how many consecutive positions share an
    element. A dimension of size 1 is shared by all."""

    desc: MemoryDesc
    groups: tuple[int, ...] = ()

    def divisors(self, dim: int) -> tuple[int, ...]:
        """The sizes of nested blocks, or of the group, of a dimension, smallest first."""
        if self.groups:
            return (self.groups[dim],) if self.groups[dim] > 1 else ()
        return block_boundaries(self.desc, dim)

    def steps(self, dim: int, extent: int) -> list[tuple[int, int]]:
        """(divisor, stride) of the levels of a dimension, innermost first: position ``i`` is at the
        sum of ``i // divisor % next divisor * stride``."""
        desc = self.desc
        if desc.dims[dim] == 1 and extent != 1:
            return []
        if self.groups:
            return [(self.groups[dim], desc.strides[dim])]
        levels, stride, size = [], 1, 1
        for blocked, block in reversed(desc.inner_blocks):
            if blocked == dim:
                levels.append((size, stride))
                size *= block
            stride *= block
        return [*levels, (size, desc.strides[dim])]


@dataclass(frozen=True)
class BoxLoop:
    """The extent, and the stride in each view."""

    extent: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Box:
    """A part of the index space; ``zero`` if it is padding. ``loops`` are outermost first."""

    zero: bool
    bases: tuple[int, ...]
    loops: tuple[BoxLoop, ...]
    traversal: BoxTraversal = BoxTraversal.EACH

    @property
    def points(self) -> int:
        """The number of points."""
        return prod(loop.extent for loop in self.loops)


_Part = tuple[int, list[tuple[int, int]]]  # start, loops of (extent, unit), outermost first


def sizes(views: Sequence[View], lanes: int, square: int, *, counters: bool = True) -> Sizes:
    """The launch parameters for an execution on ``views``, the first of which is dst and the second
    src. ``lanes`` is the size of a vector, ``square`` that of a transposed square. With
    ``counters``, the code counts the outer loops."""
    boxes = [_arranged(box, views) for box in _cut(views)]
    work = sum(box.points for box in boxes)
    alone = views[0].desc.data_type.bits == 4 and not _own_bytes(boxes)
    threads = 1 if alone else max(1, work // work_items.LEAST_WORK)
    boxes = [piece for box in boxes for piece in _with_long_rows(box, lanes)]
    if threads > 1:
        boxes = [piece for box in boxes for piece in _shared(box, lanes, square)]
    limit = max((len(box.loops) - 2 for box in boxes), default=0) if counters else int(alone)
    parameters = [len(boxes), limit, *(parameter for box in boxes for parameter in _encoded(box))]
    rows = max((prod(loop.extent for loop in box.loops[:-2]) for box in boxes), default=1)
    data = struct.pack(f"={len(parameters)}q", *parameters)
    return Sizes(data, threads, (1 if alone else rows,))


def _boundaries(views: Sequence[View], dim: int) -> list[int]:
    return sorted({size for view in views for size in view.divisors(dim)})


def _cut(views: Sequence[View]) -> Iterator[Box]:
    """The boxes of the tensor, then those of dst's padding."""
    dst = views[0].desc
    if dst.has_zero_dim:
        return
    ndims = range(dst.ndims)
    inside = [_parts(0, dst.dims[dim], _boundaries(views, dim)) for dim in ndims]
    yield from _boxes(views, inside, zero=False)
    own = [_boundaries(views[:1], dim) for dim in ndims]
    for padded in ndims:
        if dst.padded_dims[padded] > dst.dims[padded]:
            # Padding of earlier dimensions is done already.
            ends = [dst.dims[dim] if dim < padded else dst.padded_dims[dim] for dim in ndims]
            begins = [dst.dims[dim] if dim == padded else 0 for dim in ndims]
            parts = [_parts(begins[dim], ends[dim], own[dim]) for dim in ndims]
            yield from _boxes(views, parts, zero=True)


def _parts(begin: int, end: int, boundaries: list[int]) -> list[_Part]:
    """``begin`` to ``end`` cut into parts on which all offsets are affine."""
    if any(b % a for a, b in pairwise(boundaries)):
        return _crossing_parts(begin, end, boundaries)
    units = [1, *boundaries]
    parts: list[_Part] = []
    while begin < end:
        level = max(k for k, u in enumerate(units) if begin % u == 0 and (begin + u <= end))
        unit = units[level]
        stop = end
        if level + 1 < len(units):
            stop = min(end, (begin // units[level + 1] + 1) * units[level + 1])
        count = (stop - begin) // unit
        inner = [(units[k] // units[k - 1], units[k - 1]) for k in range(level, 0, -1)]
        parts.append((begin, [(count, unit), *inner]))
        begin += count * unit
    return parts


def _crossing_parts(begin: int, end: int, boundaries: list[int]) -> list[_Part]:
    """The parts of a range whose boundaries are not multiples of each other: the runs between
    boundaries, each of which repeats with their least common multiple."""
    period = lcm(*boundaries)
    whole = -(-begin // period) * period
    count = (end - whole) // period
    if count < 2:
        return _runs(begin, end, boundaries)
    parts = _runs(begin, whole, boundaries)
    for start, loops in _runs(whole, whole + period, boundaries):
        parts.append((start, [(count, period), *loops]))
    return parts + _runs(whole + count * period, end, boundaries)


def _runs(begin: int, end: int, boundaries: list[int]) -> list[_Part]:
    parts: list[_Part] = []
    while begin < end:
        stop = min(end, *((begin // size + 1) * size for size in boundaries))
        parts.append((begin, [(stop - begin, 1)]))
        begin = stop
    return parts


def _boxes(views: Sequence[View], parts: Sequence[Sequence[_Part]], *, zero: bool) -> Iterator[Box]:
    extents = views[0].desc.dims
    steps = [[view.steps(dim, size) for view in views] for dim, size in enumerate(extents)]
    pieces = [
        [_piece(part, levels) for part in choices]
        for choices, levels in zip(parts, steps, strict=True)
    ]
    starts = tuple(view.desc.offset0 for view in views)
    for chosen in product(*pieces):
        bases = tuple(map(sum, zip(starts, *(places for places, _ in chosen), strict=True)))
        yield Box(zero, bases, tuple(loop for _, loops in chosen for loop in loops))


def _piece(
    part: _Part, levels: Sequence[list[tuple[int, int]]]
) -> tuple[tuple[int, ...], list[BoxLoop]]:
    """The offset in each view at which a part begins, and its loops."""
    start, loops = part
    places = tuple(_place(steps, start) for steps in levels)
    results = []
    for extent, unit in loops:
        if extent > 1:
            following = (_place(steps, start + unit) for steps in levels)
            strides = tuple(b - a for a, b in zip(places, following, strict=True))
            results.append(BoxLoop(extent, strides))
    return places, results


def _place(steps: list[tuple[int, int]], index: int) -> int:
    total = 0
    for number, (divisor, stride) in enumerate(steps):
        step = index // divisor
        if number + 1 < len(steps):
            step %= steps[number + 1][0] // divisor
        total += step * stride
    return total


def _arranged(box: Box, views: Sequence[View]) -> Box:
    """The box with its loops merged and sorted by strides of dst, the two loops of a row last."""
    used = 1 if box.zero else len(views)
    loops = sorted(box.loops, key=lambda loop: -loop.strides[0])
    loops = _merged(loops, used)
    while len(loops) < 2:
        loops.insert(0, BoxLoop(1, (0,) * len(views)))
    lane = loops[-1]
    if lane.strides[0] != 1:
        return replace(box, loops=tuple(loops))
    if box.zero:
        return _if_aligned(
            replace(box, loops=tuple(loops), traversal=BoxTraversal.LINES), views[:1]
        )
    simple = all(stride in (0, 1) for stride in lane.strides[2:])
    if simple and lane.strides[1] == 1:
        return _if_aligned(
            replace(box, loops=tuple(loops), traversal=BoxTraversal.LINES), views[:2]
        )
    along = next((loop for loop in loops[:-1] if loop.strides[1] == 1), None)
    if not simple or along is None:
        return replace(box, loops=tuple(loops))
    loops = [*(loop for loop in loops[:-1] if loop is not along), along, lane]
    return _if_aligned(replace(box, loops=tuple(loops), traversal=BoxTraversal.SQUARES), views[:2])


def _merged(loops: list[BoxLoop], used: int) -> list[BoxLoop]:
    """Merge loops that are contiguous in all views."""
    done: list[BoxLoop] = []
    for loop in loops:
        outer = done[-1] if done else None
        if outer is not None and all(
            a == b * loop.extent
            for a, b in zip(outer.strides[:used], loop.strides[:used], strict=True)
        ):
            done[-1] = BoxLoop(outer.extent * loop.extent, loop.strides)
        else:
            done.append(loop)
    return done


def _if_aligned(box: Box, tensors: Sequence[View]) -> Box:
    """The box, traversed element by element if vectors of 4-bit elements would not begin at a
    byte."""
    for number, view in enumerate(tensors):
        apart = [loop.strides[number] for loop in box.loops if loop.strides[number] != 1]
        if view.desc.data_type.bits == 4 and any(step % 2 for step in (box.bases[number], *apart)):
            return replace(box, traversal=BoxTraversal.EACH)
    return box


def _own_bytes(boxes: Sequence[Box]) -> bool:
    """Whether no two rows write halves of the same byte."""
    return len(boxes) == 1 and boxes[0].traversal is not BoxTraversal.EACH


def _shared(box: Box, lanes: int, square: int) -> list[Box]:
    """The box with its rows split, if they are too few to be shared among threads or too wide; a
    remainder becomes a box of its own."""
    lane = len(box.loops) - 1
    extent = box.loops[lane].extent
    if box.traversal is not BoxTraversal.SQUARES:
        size = max(lanes, _LINE, extent // _missing(box) // _LINE * _LINE)
        return _split(box, lane, size) if box.loops[lane - 1].extent == 1 else _divided(box, 1)
    pieces = _split(box, lane, _WIDEST_SQUARES)
    return [part for piece in pieces for part in _divided(piece, square)]


def _divided(box: Box, step: int) -> list[Box]:
    """The box with the outer loop of its rows split into multiples of ``step``."""
    along = len(box.loops) - 2
    return _split(box, along, max(step, box.loops[along].extent // _missing(box) // step * step))


def _missing(box: Box) -> int:
    """The number of pieces into which each row should be split, so that there are enough work
    items."""
    wanted = min(SHARES, box.points // _WORK_OF_A_ROW)
    return max(1, -(-wanted // prod(loop.extent for loop in box.loops[:-2])))


def _with_long_rows(box: Box, lanes: int) -> list[Box]:
    """The box with rows that suit vectors, which traverse them column by column: wide lines become
    rows of lines of one vector, narrow lines are grouped as far as a cache holds them."""
    *outer, along, lane = box.loops
    if box.traversal is not BoxTraversal.LINES:
        return [box]
    if lane.extent > _WIDE:
        whole, *rest = _split(box, len(box.loops) - 1, lanes, len(box.loops) - 1)
        return [whole, *(piece for box in rest for piece in _with_long_rows(box, lanes))]
    place = max(range(len(outer)), key=lambda k: outer[k].extent, default=-1)
    if along.extent < _SHORT and place >= 0 and outer[place].extent >= 2 * along.extent:
        outer, along = [*outer[:place], *outer[place + 1 :], along], outer[place]
        box = replace(box, loops=(*outer, along, lane))
    else:
        place = len(outer)
    return _split(box, len(outer), _ROW // lane.extent, place)


def _split(box: Box, place: int, size: int, outside: int = -2) -> list[Box]:
    """Split the loop at ``place`` into pieces of ``size``; the loop over the pieces is inserted
    before the one at ``outside``. A remainder becomes a box of its own."""
    loop = box.loops[place]
    if loop.extent < 2 * size:
        return [box]
    count, rest = divmod(loop.extent, size)
    pieces = BoxLoop(count, tuple(stride * size for stride in loop.strides))
    loops = list(box.loops)
    loops[place] = replace(loop, extent=size)
    results = [replace(box, loops=(*loops[:outside], pieces, *loops[outside:]))]
    if rest:
        loops[place] = replace(loop, extent=rest)
        bases = [
            a + count * size * stride for a, stride in zip(box.bases, loop.strides, strict=True)
        ]
        results.append(replace(box, bases=tuple(bases), loops=tuple(loops)))
    return results


def _encoded(box: Box) -> Iterator[int]:
    *outer, along, lane = box.loops
    rows = prod(loop.extent for loop in outer)
    yield from (box.traversal, box.zero, rows, len(outer), lane.extent, along.extent)
    for row in zip(box.bases, lane.strides, along.strides, strict=True):
        yield from row
    for loop in outer:
        yield from (loop.extent, *loop.strides)
