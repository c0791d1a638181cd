"""Emits nests with open sizes: extents and strides are known at execution only.

A nest of descriptors with RUNTIME_DIM is emitted as one canonical loop nest: lines along a lane
loop, outer loops around them, and the loops of a reduction inside. The axes, extents and strides of
these loops are launch parameters. `open_nest.plan` computes them for each execution, from the same
nest with known sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from dnnl.codegen.ir.builder import I64, Emitter, Module, Value, Values, i64
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.nest.work_items import SHARES
from dnnl.codegen.open_nest.place import advanced
from dnnl.codegen.open_nest.plan import HEAD, UNITS, Form
from dnnl.codegen.open_nest.point import OpenLoop
from dnnl.codegen.open_nest.unit import OpenUnit
from dnnl.runtime.image import Phase


@dataclass(frozen=True, eq=False)
class OpenWork:
    """A nest to emit. Its launch parameters begin at number ``start`` of the argument ``slot``.
    ``parts``: its reduction may be split, see `Form`."""

    nest: Nest
    slot: int
    start: int
    parts: bool = False

    @property
    def form(self) -> Form:
        """The numbers of operands and loops."""
        return Form.of(self.nest, parts=self.parts)

    @property
    def end(self) -> int:
        """The parameter after the last one of this nest."""
        return self.start + self.form.size


def emit_open(module: Module, symbol: str, works: Sequence[OpenWork], items: int = SHARES) -> Phase:
    """Emit the phase ``symbol``, which runs ``works`` one after the other."""
    operands = (operand for work in works for operand in work.nest.operands)
    slots = (operand.slot for operand in operands if operand.contents is None)
    phase = PhaseFunction(module, symbol, (*slots, *(work.slot for work in works)))
    for work in works:
        _emit_work(phase, work, items)
    return phase.end(items)


def _emit_work(phase: PhaseFunction, work: OpenWork, items: int) -> None:
    """Emit the units of work of a call's items. Calls may be many and units few, so parameters are
    only loaded if there are units."""
    e, b = phase.e, phase.e.b
    block = Block(e, phase.arguments[work.slot], work.start)
    first, last = phase.share(block.parameter(UNITS), items)

    def some() -> Values:
        _Walk(phase, work, block).units(first, last)
        return ()

    e.branch(b.icmp_signed("<", first, last), some, lambda: ())


@dataclass(frozen=True, eq=False)
class Block:
    """The launch parameters of a nest: 64-bit integers."""

    e: Emitter
    pointer: Value
    start: int

    def parameter(self, number: int) -> Value:
        """Load a parameter by its number."""
        place = self.e.element(self.pointer, i64(self.start + number), I64)
        return self.e.b.load(place, typ=I64)


class _Walk:
    """Emits the loops over units. Lists of values have one for each operand, inputs first."""

    def __init__(self, phase: PhaseFunction, work: OpenWork, block: Block) -> None:
        self.e, self._nest, self._form = phase.e, work.nest, work.form
        self._parameter = block.parameter
        count = self._form.operands
        self._traversal, _, nontemporal, self._folded, *ends = map(self._parameter, range(HEAD))
        self._bases, lines, lane = (
            tuple(self._parameter(HEAD + part * count + n) for n in range(count))
            for part in range(3)
        )
        self._lines, self._lines_piece = OpenLoop(ends[0], lines), ends[1]
        self._lane, self._piece = OpenLoop(ends[2], lane), ends[3]
        outer = self._form.outer
        loops = [self._loop(self._form.loop(n)) for n in range(outer + self._form.reduced)]
        self._outer, self._reduced = loops[:outer], tuple(loops[outer:])
        self._pointers = phase.pointers(work.nest.operands)
        self._nontemporal = self.e.b.icmp_signed("!=", nontemporal, i64(0))

    def _loop(self, first: int) -> OpenLoop:
        extent, *strides = (self._parameter(first + n) for n in range(1 + self._form.operands))
        return OpenLoop(extent, tuple(strides))

    def units(self, first: Value, last: Value) -> None:
        """The units ``first`` to ``last``."""
        levels = len(self._outer)

        def unit(_: Value, *carried: Value) -> Values:
            counters, places = carried[:levels], carried[levels:]
            count = self._left(self._lines, counters[-2], self._lines_piece)
            length = self._left(self._lane, counters[-1], self._piece)
            self._unit(counters[0]).write(places, count, length)
            return self._advance(levels - 1, counters, places)

        self.e.loop(first, last, unit, self._located(first), unroll=False, name="unit")
        if self.e.isa.caches.non_temporal:
            self.e.branch(self._nontemporal, self._fence, lambda: ())

    def _fence(self) -> Values:
        self.e.fence()
        return ()

    def _unit(self, part: Value) -> OpenUnit:
        """The emitter of a unit, for the part with that number."""
        reduced, folded = self._reduced, self._folded
        if self._form.parts:
            reduced = tuple(self._cut(number, part) for number in range(len(reduced)))
            folded = reduce(self.e.b.mul, (loop.extent for loop in reduced), i64(1))
        return OpenUnit(
            self.e,
            self._nest,
            self._pointers,
            self._lines,
            self._lane,
            reduced,
            folded,
            self._traversal,
            self._nontemporal,
        )

    def _cut(self, number: int, part: Value) -> OpenLoop:
        """The piece of a reduced loop that a part has."""
        b, loop = self.e.b, self._reduced[number]
        most, step = (self._parameter(self._form.cut(number) + n) for n in range(2))
        left = b.sub(loop.extent, b.mul(part, step))
        return OpenLoop(self.e.smaller(left, most), loop.strides)

    def _left(self, loop: OpenLoop, counter: Value, piece: Value) -> Value:
        """The iterations of a piece of a loop."""
        done = self.e.b.mul(counter, piece)
        return self.e.smaller(self.e.b.sub(loop.extent, done), piece)

    def _located(self, unit: Value) -> Values:
        """The counters of the outer loops and the offsets of the operands for a unit number."""
        b, rest = self.e.b, unit
        counters: list[Value] = []
        places: Sequence[Value] = self._bases
        for loop in reversed(self._outer):
            counter = b.urem(rest, loop.extent)
            rest = b.udiv(rest, loop.extent)
            places = advanced(self.e, places, counter, loop.strides)
            counters.insert(0, counter)
        return (*counters, *places)

    def _advance(self, level: int, counters: Values, places: Values) -> Values:
        """The counters and offsets of the next unit: increment the loop at ``level``, with a carry
        into the loop around it."""
        if level < 0:
            return (*counters, *places)
        b, loop = self.e.b, self._outer[level]
        following = b.add(counters[level], i64(1))

        def further() -> Values:
            now = (*counters[:level], following, *counters[level + 1 :])
            return (*now, *map(b.add, places, loop.strides))

        def around() -> Values:
            back = b.sub(i64(0), counters[level])
            now = (*counters[:level], i64(0), *counters[level + 1 :])
            return self._advance(level - 1, now, advanced(self.e, places, back, loop.strides))

        return self.e.branch(b.icmp_signed("<", following, loop.extent), further, around)
