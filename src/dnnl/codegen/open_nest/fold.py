"""Reductions of open sizes: unsplit, or in parts that are merged afterwards.

The code contains both; the plan of an execution gives work to one of them. Parts are chosen as for
known sizes (`parts`). In addition, short contiguous lines are reduced as fewer long lines, which
then hold several parts side by side::

    r0  a b c        r0  a b c a b c  r1
    r1  a b c   ->   r2  a b c a b c  r3
    r2  a b c
    r3  a b c

The number of parts depends on the sizes, never on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.folds import Fold, Parts, at_once
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.parts import even_piece, part_lanes, parts_of
from dnnl.codegen.nest.schedule import widths
from dnnl.codegen.open_nest.nest import OpenWork
from dnnl.codegen.open_nest.plan import Form, Loop, Loops, OpenPlan, Traversal, plan, plan_loops
from dnnl.types.dtype import DataType
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.memory_desc import MemoryDesc

MERGERS = 1
"""The work items of a merge: it is at most a hundredth of all work, and a second parallel phase
would cost time even without anything to merge."""
_PARTIALS = 2**16
_WHOLE = 64  # elements; lines of a multiple of this have no tail
_LONG = 4 * _WHOLE  # longer lines have a negligible tail
_FEW = 8  # this many long lines are worth a merge


def open_partials_desc(values: int, data_type: DataType) -> MemoryDesc:
    """Memory for the partial results of a fold of any size to ``values`` values."""
    return MemoryDesc((_PARTIALS * values,), data_type)


@dataclass(frozen=True, eq=False)
class OpenFold:
    """A fold with open sizes. ``scratch``, in argument ``slot``, holds its partial results."""

    fold: Fold
    slot: int
    scratch: MemoryDesc

    def works(self, slot: int, start: int) -> tuple[OpenWork, OpenWork, OpenWork]:
        """The unsplit fold, the reduction of a part, and the merge, which is a phase of its own.
        Their parameters follow each other in argument ``slot`` from parameter ``start`` on."""
        nests = self._nests
        whole = OpenWork(nests[0], slot, start)
        part = OpenWork(nests[1], slot, whole.end, parts=True)
        return whole, part, OpenWork(nests[2], slot, part.end)

    def plans(self, pattern: OpenFold, isa: Isa) -> tuple[OpenPlan, OpenPlan, OpenPlan]:
        """Plan the three nests for known sizes. Their code was emitted from ``pattern``."""
        whole, part, merger = pattern._forms
        patterns, nest = pattern._nests, self._parts.part(self.fold)
        loops, count = self._cut(Loops.of(nest, patterns[1]), isa)
        if count == 1:
            own = plan(at_once(self.fold), patterns[0], isa)
            return own, OpenPlan.idle(part), OpenPlan.idle(merger)
        merged = self._parts.merger(count, self.fold)
        folded = prod(axis.extent for axis in self.fold.reduced)
        return (
            OpenPlan.idle(whole),
            plan_loops(part, loops, nest, isa, folded),
            plan_loops(merger, Loops.of(merged, patterns[2]), merged, isa, folded),
        )

    @cached_property
    def _nests(self) -> tuple[Nest, Nest, Nest]:
        """The nests of the unsplit fold, of a part, and of the merge."""
        parts = self._parts
        return at_once(self.fold), parts.part(self.fold), parts.merger(RUNTIME_DIM, self.fold)

    @cached_property
    def _forms(self) -> tuple[Form, Form, Form]:
        whole, part, merger = self._nests
        return Form.of(whole), Form.of(part, parts=True), Form.of(merger)

    @cached_property
    def _parts(self) -> Parts:
        """The partial results, in the axis order of the first input."""
        first, reduction = self.fold.inputs[0], self.fold.reduction
        offset = first.offset(first.index)
        assert offset is not None, "tensors in blocks have no strides"
        points = [axis for axis in self.fold.parallel if axis.extent != 1]
        points.sort(key=lambda axis: -abs(offset.stride(axis)))
        values = len(reduction.neutral)
        return Parts(tuple(points), values, self.slot, self.scratch, reduction.data_type)

    def _cut(self, loops: Loops, isa: Isa) -> tuple[Loops, int]:
        """The loops with the reduction in parts, and the number of parts."""
        inputs = len(self.fold.inputs)
        points = prod(axis.extent for axis in self.fold.parallel)
        scratch = self.scratch.nelems() // len(self.fold.reduction.neutral) // max(1, points)
        loops, neighbours = _lengthened(loops, inputs, scratch)
        points, scratch = points * neighbours, scratch // neighbours
        reduced = prod(loop.extent for loop in loops.reduced)
        lanes, _ = widths(isa, self.fold.core)
        width = part_lanes(isa, lanes) if loops.traversal is Traversal.LINES else 1
        most = max(1, min(scratch, parts_of(isa, points, reduced, width)))
        sizes = _pieces(loops, most) if reduced else []
        loops, count = _in_pieces(loops, sizes, inputs, points)
        return loops, count * neighbours


def _lengthened(loops: Loops, inputs: int, scratch: int) -> tuple[Loops, int]:
    """The loops with several short lines joined into one, and how many were joined. ``scratch`` is
    the maximum number of parts."""
    lane, alone = loops.lane, not loops.outer and loops.lines.extent == 1
    if not (alone and loops.traversal is Traversal.LINES and loops.reduced and lane.extent < _LONG):
        return loops, 1
    *others, along = loops.reduced
    if along.strides[:inputs] != lane.times(lane.extent)[:inputs]:
        return loops, 1
    count = _WHOLE // gcd(_WHOLE, lane.extent)
    while count > 1 and (along.extent % count or count > min(scratch, along.extent // _FEW)):
        count //= 2
    along = Loop(along.extent // count, along.times(count))
    longer = Loop(lane.extent * count, lane.strides)
    return replace(loops, lane=longer, reduced=(*others, along)), count


def _pieces(loops: Loops, most: int) -> list[int]:
    """The piece size of each reduced loop, from the outermost up to the first with pieces longer
    than 1: at most ``most`` parts."""
    sizes: list[int] = []
    count = 1
    for loop in loops.reduced:
        size = -(-loop.extent // max(1, min(loop.extent, most // count)))
        if 1 < size < loop.extent:
            rows = loops.traversal is Traversal.ROWS and loop is loops.reduced[-1]
            size = min(loop.extent, even_piece(loop.extent, size, rows=rows))
        sizes.append(size)
        count *= -(-loop.extent // size)
        if size > 1:
            break
    return sizes


def _in_pieces(loops: Loops, sizes: Sequence[int], inputs: int, apart: int) -> tuple[Loops, int]:
    """The loops with reduced ones cut into pieces of ``sizes``, and the number of parts. Results of
    consecutive parts are ``apart`` elements apart."""
    outer, part, piece, count = list(loops.outer), loops.part, 0, 1
    reduced = list(loops.reduced)
    for number, size in reversed(list(enumerate(sizes))):
        loop = loops.reduced[number]
        results = (apart * count,) * (len(loop.strides) - inputs)
        over = Loop(-(-loop.extent // size), (*loop.times(size)[:inputs], *results))
        count *= over.extent
        if size == 1:
            outer.insert(0, over)
            del reduced[number]
        elif over.extent > 1:
            part, piece = over, size
    made = replace(loops, outer=tuple(outer), part=part, piece=piece, reduced=tuple(reduced))
    return made, count
