"""Plans nests with open sizes: the launch parameters that their code reads.

The code of such a nest (`open_nest.nest`) has one canonical order of loops. A plan is made when the
memories of an execution are known. It merges loops, chooses the loop along which vectors run, and
divides the work. The parameters are 64-bit integers::

    traversal | units of work | whether stores are non-temporal | iterations of a fold
    the loop over lines: extent, iterations of a unit; the lane loop inside: the same
    the offset of each operand; its stride from line to line; its stride along the lane loop
    (extent, stride in each operand) of each outer loop; the last two run over pieces of the lines
    and of the lane loop
    (extent, stride in each operand) of each loop of the reduction, the innermost one last
    if the reduction may be split: (iterations of a part, iterations before the next part) of each
    loop of the reduction
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod

from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest import work_items
from dnnl.codegen.nest.nest import Nest

HEAD = 8
"""The number of parameters before those of the operands."""
UNITS = 1
"""The parameter with the number of units of work."""
_LINE = 64  # elements; whole cache lines of any type
# In elements: lines too short to be walked one by one, and the most that a unit has of those.
_SHORT, _MOST_UNIT = 63, 4096


class Traversal(IntEnum):
    """The loop along which vectors run."""

    EACH = 0  # none: every point is done by itself
    LINES = 1  # the lane loop: outputs are contiguous there, inputs contiguous or uniform
    ROWS = 2  # the innermost loop of the reduction, with the same condition
    COLUMNS = 3  # as LINES, but the first vectors of all lines, then the second ones, ...


@dataclass(frozen=True)
class Form:
    """The numbers of operands and loops in the code. All descriptions with the same number of axes
    share them. With ``parts``, a reduction may be split; more outer loops run over the parts, the
    first one over the pieces of a loop."""

    operands: int
    outer: int
    reduced: int
    parts: bool

    @staticmethod
    def of(nest: Nest, *, parts: bool = False) -> Form:
        """The form of a nest. Its two innermost loops are cut into pieces, with outer loops over
        them."""
        reduced = len(nest.reduced)
        outer = max(2, len(nest.parallel)) + (1 + reduced if parts else 0)
        return Form(len(nest.operands), outer, reduced, parts)

    def loop(self, number: int) -> int:
        """The first parameter of a loop; outer loops come before those of the reduction."""
        return HEAD + 3 * self.operands + number * (1 + self.operands)

    def cut(self, number: int) -> int:
        """The first parameter of the piece of a reduced loop that a part has."""
        return self.loop(self.outer + self.reduced) + 2 * number

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.cut(self.reduced if self.parts else 0)


@dataclass(frozen=True)
class Loop:
    """A loop: its extent, and its stride in each operand."""

    extent: int
    strides: tuple[int, ...]

    def times(self, count: int) -> tuple[int, ...]:
        """The distance of ``count`` iterations in each operand."""
        return tuple(count * stride for stride in self.strides)


@dataclass(frozen=True)
class Loops:
    """The loops of a nest over plain tensors, merged and sorted by stride. ``starts`` are the
    offsets of the operands.

    A part of a split reduction has a ``piece`` of its outermost loop, or all of it if ``piece`` is
    zero. ``part`` runs over the pieces.
    """

    starts: tuple[int, ...]
    outer: tuple[Loop, ...]
    lines: Loop
    lane: Loop
    reduced: tuple[Loop, ...]
    traversal: Traversal
    part: Loop
    piece: int = 0

    @staticmethod
    def of(nest: Nest, pattern: Nest) -> Loops:
        """The loops of a nest with known sizes. Its code was emitted from ``pattern``."""
        offsets = [operand.offset(operand.index) for operand in nest.operands]
        known = [offset for offset in offsets if offset is not None]
        assert len(known) == len(offsets), "tensors in blocks have no strides"
        dst = len(nest.inputs)
        outer = _merged(_loops(nest.parallel, known, dst))
        reduced = _merged(_loops(nest.reduced, known, 0 if nest.inputs else dst))
        once = Loop(1, (0,) * len(known))
        lane = outer.pop() if outer else once
        lines = outer.pop() if outer else once
        traversal = _traversal(pattern, lane, reduced)
        starts = tuple(offset.const for offset in known)
        return Loops(starts, tuple(outer), lines, lane, tuple(reduced), traversal, once)


@dataclass(frozen=True)
class OpenPlan:
    """The launch parameters of a nest, and the number of threads that the work is enough for."""

    parameters: tuple[int, ...]
    threads: int

    @property
    def units(self) -> int:
        """The units of work."""
        return self.parameters[UNITS]

    @staticmethod
    def idle(form: Form) -> OpenPlan:
        """The plan of a nest without work."""
        return OpenPlan((0,) * form.size, 1)


def plan(nest: Nest, pattern: Nest, isa: Isa) -> OpenPlan:
    """Plan a nest with known sizes, see `Loops`."""
    loops = Loops.of(nest, pattern)
    return plan_loops(Form.of(nest), loops, nest, isa, prod(axis.extent for axis in nest.reduced))


def plan_loops(form: Form, loops: Loops, nest: Nest, isa: Isa, folded: int) -> OpenPlan:
    """Plan loops for code of a form. ``folded`` are the iterations of a fold, unless the reduction
    is split."""
    outer, lines, lane, traversal = list(loops.outer), loops.lines, loops.lane, loops.traversal
    rest = prod(loop.extent for loop in (loops.part, *outer))
    inner = prod(loop.extent for loop in loops.reduced[1:])
    inner *= loops.piece or prod(loop.extent for loop in loops.reduced[:1])
    work = rest * lines.extent * lane.extent * inner
    threads, wanted = max(1, work // work_items.LEAST_WORK), work_items.open_units(isa, work)
    pieces = max(1, lines.extent), max(1, lane.extent)
    if (
        traversal is Traversal.LINES
        and not loops.reduced
        and lane.extent <= _SHORT
        and lines.extent > 1
    ):
        traversal = Traversal.COLUMNS
    if wanted > 1:
        least = 1 if traversal in (Traversal.ROWS, Traversal.EACH) else _LINE
        pieces = _pieces(-(-wanted // rest), lines, lane, least)
    if traversal is Traversal.COLUMNS:
        pieces = min(pieces[0], max(1, _MOST_UNIT // max(1, lane.extent))), pieces[1]
    for loop, piece in zip((lines, lane), pieces, strict=True):
        outer.append(Loop(-(-loop.extent // piece), loop.times(piece)))
    units = rest * outer[-2].extent * outer[-1].extent
    nontemporal = _nontemporal(nest, isa, traversal) and _in_lines(
        nest, loops, (*outer, lines, lane)
    )
    parameters = [traversal, units, int(nontemporal), folded]
    parameters += [lines.extent, pieces[0], lane.extent, pieces[1]]
    parameters += [*loops.starts, *lines.strides, *lane.strides]
    once = Loop(1, (0,) * form.operands)
    parts = [loops.part] if form.parts else []
    missing = [once] * (form.reduced - len(loops.reduced))
    outer = [*parts, *[once] * (form.outer - len(parts) - len(outer)), *outer]
    for loop in (*outer, *missing, *loops.reduced):
        parameters += [loop.extent, *loop.strides]
    if form.parts:
        cuts = [(loop.extent, 0) for loop in (*missing, *loops.reduced)]
        if loops.piece:
            cuts[len(missing)] = loops.piece, loops.piece
        parameters += [parameter for own in cuts for parameter in own]
    assert len(parameters) == form.size
    return OpenPlan(tuple(parameters), threads)


def _pieces(wanted: int, lines: Loop, lane: Loop, least: int) -> tuple[int, int]:
    """The lines, and the iterations of the lane loop, of one unit, for about ``wanted`` units:
    several lines, or a part of one. Units do not share cache lines."""
    if lines.extent >= wanted:
        return lines.extent // wanted, max(1, lane.extent)
    parts = -(-wanted // max(1, lines.extent))
    return 1, -(-max(1, lane.extent // parts) // least) * least


def _nontemporal(nest: Nest, isa: Isa, traversal: Traversal) -> bool:
    """Whether stores should be non-temporal: as for known sizes if all tensors together are large
    and the stores of a line are contiguous."""
    caches, neighbours = (
        isa.caches,
        traversal is Traversal.ROWS or (traversal is Traversal.LINES and not nest.reduced),
    )
    if nest.reads_dst or not (caches.non_temporal and neighbours):
        return False
    descs = {operand.slot: operand.desc for operand in nest.operands if operand.contents is None}
    nbytes = sum(desc.data_type.nbytes(desc.nelems()) for desc in descs.values())
    return nbytes >= caches.streamed_rows


def _in_lines(nest: Nest, loops: Loops, over: Sequence[Loop]) -> bool:
    """Whether all rows of dst start at cache lines if the first one does. Non-temporal stores of
    partial lines cost more than they save."""
    if loops.traversal is not Traversal.ROWS:
        return True
    begin, dst = len(nest.inputs), nest.outputs[0]
    numbers = [begin + n for n, own in enumerate(nest.outputs) if own.slot == dst.slot]
    steps = [loop.strides[number] for loop in over for number in numbers]
    steps += [loops.starts[number] - loops.starts[begin] for number in numbers]
    return all(step * dst.desc.data_type.size % LINE == 0 for step in steps)


def _loops(axes: Sequence[Axis], offsets: Sequence[Affine], first: int) -> list[Loop]:
    """The loops over ``axes``, sorted by their stride in operand ``first``, largest first."""
    loops = (
        Loop(axis.extent, tuple(offset.stride(axis) for offset in offsets))
        for axis in axes
        if axis.extent != 1
    )
    return sorted(loops, key=lambda loop: -abs(loop.strides[first]))


def _merged(loops: Sequence[Loop]) -> list[Loop]:
    """The loops, with neighbours merged that are contiguous in all operands."""
    done: list[Loop] = []
    for loop in loops:
        if done and done[-1].strides == loop.times(loop.extent):
            done[-1] = Loop(done[-1].extent * loop.extent, loop.strides)
        else:
            done.append(loop)
    return done


def _traversal(nest: Nest, lane: Loop, reduced: Sequence[Loop]) -> Traversal:
    lines = _contiguous(nest, nest.parallel, lane) and not nest.in_rows
    if not reduced or (lines and lane.strides[0] == 1):
        return Traversal.LINES if lines else Traversal.EACH
    if _contiguous(nest, nest.reduced, reduced[-1]):
        return Traversal.ROWS
    return Traversal.LINES if lines else Traversal.EACH


def _contiguous(nest: Nest, axes: Sequence[Axis], loop: Loop) -> bool:
    """Whether all operands that depend on ``axes`` are contiguous along a loop over some of them,
    or uniform if they may be."""
    for operand, stride in zip(nest.operands, loop.strides, strict=True):
        if (
            stride != 1
            and moves(operand, axes)
            and (stride or not may_be_uniform(nest, operand, axes))
        ):
            return False
    return True


def moves(operand: Operand, axes: Sequence[Axis]) -> bool:
    """Whether the index of an operand contains one of the axes."""
    return bool(_own_axes(operand) & set(axes))


def may_be_uniform(nest: Nest, operand: Operand, axes: Sequence[Axis]) -> bool:
    """Whether an operand may be uniform along one of the axes while another one moves it."""
    return operand in nest.inputs and not _own_axes(operand) >= set(axes)


def _own_axes(operand: Operand) -> set[Axis]:
    return {axis for form in operand.index for axis in form.strides}
