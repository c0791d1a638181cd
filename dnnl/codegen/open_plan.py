"""How a nest is walked whose sizes only the execution knows: the numbers that its code reads.

The code of such a nest (`open_nest`) has one canonical walk. What is particular about an execution
is planned here, when its memories are known: which loops are one, which of them the vectors lie
along, and how work is shared out. The code reads that from a block of 64-bit words::

    way | units of work | whether stores pass the caches by
    the loop over lines: extent, how much of it one unit does; the lane loop inside: the same
    where each operand begins; its stride from line to line; its stride along the lane loop
    (extent, stride in each operand) of each outer loop, those over pieces of the lines and of the
    lane loop last
    (extent, stride in each operand) of each loop of the reduction, the innermost one last
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod

from dnnl.codegen import sharing
from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest import Nest

HEAD = 7
"""How many words a block has before those of the operands."""
_LINE = 64  # elements; whole cache lines of any type
# In elements: lines that are too short to be walked one by one, and all those of a unit.
_SHORT, _ROOM = 63, 4096


class Way(IntEnum):
    """Where vectors lie."""

    EACH = 0  # nowhere: every point is done by itself
    LINES = 1  # along the lane loop: outputs are contiguous there, inputs too or they stay
    ROWS = 2  # along the innermost loop of the reduction, in the same way
    COLUMNS = 3  # as in LINES; the first vectors of all lines, then the second ones, ...


@dataclass(frozen=True)
class Form:
    """The numbers of operands and of loops, which are those of the code: every description with
    as many axes has the same ones."""

    operands: int
    outer: int
    reduced: int

    @staticmethod
    def of(nest: Nest) -> Form:
        """The form of a nest. Its two innermost loops are cut into pieces, over which go loops of
        their own."""
        return Form(len(nest.operands), max(2, len(nest.parallel)), len(nest.reduced))

    @property
    def words(self) -> int:
        """How long a block is."""
        return HEAD + 3 * self.operands + (self.outer + self.reduced) * (1 + self.operands)


@dataclass(frozen=True)
class _Loop:
    extent: int
    strides: tuple[int, ...]

    def times(self, count: int) -> tuple[int, ...]:
        """How far so many iterations go."""
        return tuple(count * stride for stride in self.strides)


@dataclass(frozen=True)
class Plan:
    """The words of a nest, and the most threads for which there is work."""

    words: tuple[int, ...]
    threads: int


def plan(nest: Nest, pattern: Nest, isa: Isa) -> Plan:
    """Plan a nest over tensors without blocks, of which everything is known; its code has been
    written from ``pattern``."""
    form = Form.of(nest)
    offsets = [operand.offset(operand.index) for operand in nest.operands]
    known = [offset for offset in offsets if offset is not None]
    assert len(known) == len(offsets), "tensors in blocks have no strides"
    dst = len(nest.inputs)
    outer = _merged(_loops(nest.parallel, known, dst))
    reduced = _merged(_loops(nest.reduced, known, 0 if nest.inputs else dst))
    once = _Loop(1, (0,) * form.operands)
    lane = outer.pop() if outer else once
    lines = outer.pop() if outer else once
    way = _way(pattern, lane, reduced)
    rest = prod(loop.extent for loop in outer)
    work = rest * lines.extent * lane.extent * prod(loop.extent for loop in reduced)
    threads = max(1, work // sharing.LEAST_WORK)
    pieces = max(1, lines.extent), max(1, lane.extent)
    if way is Way.LINES and not reduced and lane.extent <= _SHORT and lines.extent > 1:
        way = Way.COLUMNS
    if threads > 1:
        least = 1 if way in (Way.ROWS, Way.EACH) else _LINE
        pieces = _pieces(-(-min(sharing.SHARES, 2 * threads) // rest), lines, lane, least)
    if way is Way.COLUMNS:
        pieces = min(pieces[0], max(1, _ROOM // max(1, lane.extent))), pieces[1]
    for loop, piece in zip((lines, lane), pieces, strict=True):
        outer.append(_Loop(-(-loop.extent // piece), loop.times(piece)))
    units = rest * outer[-2].extent * outer[-1].extent
    words = [way, units, int(_streams(nest, isa, way))]
    words += [lines.extent, pieces[0], lane.extent, pieces[1]]
    words += [*(offset.const for offset in known), *lines.strides, *lane.strides]
    for loops, count in ((outer, form.outer), (reduced, form.reduced)):
        filled = [once] * (count - len(loops)) + loops
        words += [word for loop in filled for word in (loop.extent, *loop.strides)]
    assert len(words) == form.words
    return Plan(tuple(words), threads)


def _pieces(wanted: int, lines: _Loop, lane: _Loop, least: int) -> tuple[int, int]:
    """How much of the loop over lines, and of the lane loop, a unit does, if there are to be about
    so many: some lines, or else a part of one, of which neighbours share no cache line."""
    if lines.extent >= wanted:
        return lines.extent // wanted, max(1, lane.extent)
    parts = -(-wanted // max(1, lines.extent))
    return 1, -(-max(1, lane.extent // parts) // least) * least


def _streams(nest: Nest, isa: Isa, way: Way) -> bool:
    """Whether stores had better pass the caches by: as in nests of known sizes where all tensors
    are large together, and those of a line are neighbours."""
    caches, neighbours = isa.caches, way is Way.ROWS or (way is Way.LINES and not nest.reduced)
    if nest.reads_dst or not (caches.steered and caches.streams_few_rows and neighbours):
        return False
    descs = {operand.slot: operand.desc for operand in nest.operands if operand.contents is None}
    nbytes = sum(desc.data_type.nbytes(desc.nelems()) for desc in descs.values())
    return nbytes >= caches.streamed


def _loops(axes: Sequence[Axis], offsets: Sequence[Affine], first: int) -> list[_Loop]:
    """The loops over ``axes`` in the order of the operand ``first``, the longest steps outside."""
    loops = (
        _Loop(axis.extent, tuple(offset.stride(axis) for offset in offsets))
        for axis in axes
        if axis.extent != 1
    )
    return sorted(loops, key=lambda loop: -abs(loop.strides[first]))


def _merged(loops: Sequence[_Loop]) -> list[_Loop]:
    """Neighbours that are neighbours in all operands become one loop."""
    done: list[_Loop] = []
    for loop in loops:
        if done and done[-1].strides == loop.times(loop.extent):
            done[-1] = _Loop(done[-1].extent * loop.extent, loop.strides)
        else:
            done.append(loop)
    return done


def _way(nest: Nest, lane: _Loop, reduced: Sequence[_Loop]) -> Way:
    lines = _contiguous(nest, nest.parallel, lane)
    if not reduced or (lines and lane.strides[0] == 1):
        return Way.LINES if lines else Way.EACH
    if _contiguous(nest, nest.reduced, reduced[-1]):
        return Way.ROWS
    return Way.LINES if lines else Way.EACH


def _contiguous(nest: Nest, axes: Sequence[Axis], loop: _Loop) -> bool:
    """Whether all operands that move along a loop over some of ``axes`` are contiguous there; those
    that may stay still may also do so."""
    for operand, stride in zip(nest.operands, loop.strides, strict=True):
        if stride != 1 and moves(operand, axes) and (stride or not may_stay(nest, operand, axes)):
            return False
    return True


def moves(operand: Operand, axes: Sequence[Axis]) -> bool:
    """Whether the index of an operand has one of the axes."""
    return bool(_own_axes(operand) & set(axes))


def may_stay(nest: Nest, operand: Operand, axes: Sequence[Axis]) -> bool:
    """Whether an operand that moves along one of the axes may stay still along another one."""
    return operand in nest.inputs and not _own_axes(operand) >= set(axes)


def _own_axes(operand: Operand) -> set[Axis]:
    return {axis for form in operand.index for axis in form.strides}
