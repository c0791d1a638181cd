"""How a nest is walked whose sizes only the execution knows: the numbers that its code reads.

The code of such a nest (`open_nest`) has one canonical walk. What is particular about an execution
is planned here, when its memories are known: which loops are one, which of them the vectors lie
along, and how work is shared out. The code reads that from a block of 64-bit words::

    way | units of work | extent of the lane loop | how much of it one unit does
    where each operand begins; its stride along the lane loop
    (extent, stride in each operand) of each outer loop, that over pieces of the lane loop last
    (extent, stride in each operand) of each loop of the reduction, the innermost one last
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod

from dnnl.codegen import sharing
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.nest import Nest

HEAD = 4
"""How many words a block has before those of the operands."""
_LINE = 64  # elements; whole cache lines of any type


class Way(IntEnum):
    """Where vectors lie."""

    EACH = 0  # nowhere: every point is done by itself
    LINES = 1  # along the lane loop: outputs are contiguous there, inputs too or they stay
    ROWS = 2  # along the innermost loop of the reduction, in the same way


@dataclass(frozen=True)
class Form:
    """The numbers of operands and of loops, which are those of the code: every description with
    as many axes has the same ones."""

    operands: int
    outer: int
    reduced: int

    @staticmethod
    def of(nest: Nest) -> Form:
        """The form of a nest; the lane loop has pieces, over which goes a loop of its own."""
        return Form(len(nest.operands), max(1, len(nest.parallel)), len(nest.reduced))

    @property
    def words(self) -> int:
        """How long a block is."""
        return HEAD + 2 * self.operands + (self.outer + self.reduced) * (1 + self.operands)


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


def plan(nest: Nest, lanes: int) -> Plan:
    """Plan a nest over tensors without blocks, of which everything is known; vectors have at most
    so many ``lanes``."""
    form = Form.of(nest)
    offsets = [operand.offset(operand.index) for operand in nest.operands]
    known = [offset for offset in offsets if offset is not None]
    assert len(known) == len(offsets), "tensors in blocks have no strides"
    dst = len(nest.inputs)
    outer = _merged(_loops(nest.parallel, known, dst))
    reduced = _merged(_loops(nest.reduced, known, 0 if nest.inputs else dst))
    lane = outer.pop() if outer else _Loop(1, (0,) * form.operands)
    way = _way(nest, lane, reduced)
    lines = prod(loop.extent for loop in outer)
    inside = prod(loop.extent for loop in reduced)
    work = lines * lane.extent * inside
    threads = max(1, work // sharing.LEAST_WORK)
    piece = max(1, lane.extent)
    if threads > 1:
        wanted = -(-min(sharing.SHARES, 2 * threads) // lines)
        least = (lanes if reduced else _LINE) if way is not Way.ROWS else 1
        piece = -(-max(1, lane.extent // wanted) // least) * least
    pieces = -(-lane.extent // piece)
    outer = [*outer, _Loop(pieces, lane.times(piece))]
    bases = (offset.const for offset in known)
    words = [way, lines * pieces, lane.extent, piece, *bases, *lane.strides]
    for loops, count in ((outer, form.outer), (reduced, form.reduced)):
        filled = [_Loop(1, (0,) * form.operands)] * (count - len(loops)) + loops
        words += [word for loop in filled for word in (loop.extent, *loop.strides)]
    assert len(words) == form.words
    return Plan(tuple(words), threads)


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
    inputs = len(nest.inputs)

    def contiguous(loop: _Loop, read: Sequence[int], written: Sequence[int]) -> bool:
        return all(loop.strides[number] in (0, 1) for number in read) and all(
            loop.strides[number] == 1 for number in written
        )

    read, written = range(inputs), range(inputs, len(nest.operands))
    lines = contiguous(lane, read, written)
    if not reduced or (lines and lane.strides[0] == 1):
        return Way.LINES if lines else Way.EACH
    along = set(_moving(nest, nest.reduced))
    rows = contiguous(
        reduced[-1], [n for n in read if n in along], [n for n in written if n in along]
    )
    if rows:
        return Way.ROWS
    return Way.LINES if lines else Way.EACH


def _moving(nest: Nest, axes: Sequence[Axis]) -> Iterator[int]:
    """The numbers of the operands whose index has one of the axes."""
    for number, operand in enumerate(nest.operands):
        if any(axis in form.strides for form in operand.index for axis in axes):
            yield number
