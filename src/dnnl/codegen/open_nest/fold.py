"""Reductions in open nests: at once, or cut into parts that are merged afterwards.

The code has all of that, and the sizes of an execution decide what of it has work. Parts are those
that `parts` makes of known sizes; besides, short lines that lie one behind the other are folded as
fewer long ones, whose parts lie side by side::

    r0  a b c        r0  a b c a b c  r1
    r1  a b c   ->   r2  a b c a b c  r3
    r2  a b c
    r3  a b c

How many parts there are follows from the sizes, never from the number of threads.
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
"""The work items of a merger. That is a hundredth of all work at most, and a second phase that
threads share would cost time where nothing is to be merged."""
_PARTIALS = 2**16
_WHOLE = 64  # elements: lines of a multiple of it leave nothing over
_LONG = 4 * _WHOLE  # and those that are as long little
_FEW = 8  # long lines are worth a merger


def open_partials_desc(values: int, data_type: DataType) -> MemoryDesc:
    """The room for the partial results of a fold of any size to so many ``values``."""
    return MemoryDesc((_PARTIALS * values,), data_type)


@dataclass(frozen=True, eq=False)
class OpenFold:
    """A fold over sizes that only the execution knows, with ``room`` for partial results in the
    argument ``slot``."""

    fold: Fold
    slot: int
    scratch: MemoryDesc

    def works(self, slot: int, start: int) -> tuple[OpenWork, OpenWork, OpenWork]:
        """All at once, a part, and what is to be done behind these, the merger: their blocks follow
        each other in the argument ``slot`` from the word ``start`` on."""
        nests = self._nests
        whole = OpenWork(nests[0], slot, start)
        part = OpenWork(nests[1], slot, whole.end, parts=True)
        return whole, part, OpenWork(nests[2], slot, part.end)

    def plans(self, pattern: OpenFold, isa: Isa) -> tuple[OpenPlan, OpenPlan, OpenPlan]:
        """Plan the phases where everything is known; their code has been written from
        ``pattern``."""
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
        """All at once, a part, the merger."""
        parts = self._parts
        return at_once(self.fold), parts.part(self.fold), parts.merger(RUNTIME_DIM, self.fold)

    @cached_property
    def _forms(self) -> tuple[Form, Form, Form]:
        whole, part, merger = self._nests
        return Form.of(whole), Form.of(part, parts=True), Form.of(merger)

    @cached_property
    def _parts(self) -> Parts:
        """The partial results, in the order that the first input has."""
        first, reduction = self.fold.inputs[0], self.fold.reduction
        offset = first.offset(first.index)
        assert offset is not None, "tensors in blocks have no strides"
        points = [axis for axis in self.fold.parallel if axis.extent != 1]
        points.sort(key=lambda axis: -abs(offset.stride(axis)))
        values = len(reduction.neutral)
        return Parts(tuple(points), values, self.slot, self.scratch, reduction.data_type)

    def _cut(self, loops: Loops, isa: Isa) -> tuple[Loops, int]:
        """The loops with the reduction in parts, and how many these are."""
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
    """The loops where several short lines are one, and how many; of ``room`` for so many parts."""
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
    """The size of the pieces of each reduced loop, from the outermost to the first one that is not
    in single iterations: about ``most`` parts, and no more."""
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
    """The loops with pieces of these ``sizes`` of the reduced ones, and how many parts these make.
    The results of each part lie ``apart`` elements behind those of the one before."""
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
