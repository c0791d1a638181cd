"""The code of a nest whose sizes and strides only the execution knows.

A nest that a kernel has made of descriptors with RUNTIME_DIM is written as one canonical walk:
lines along a lane loop, counted loops around them, and those of a reduction inside. Which axes
these loops are, how long they are and how far they step is read from a block of words, which
`open_plan` fills in for each execution: from the same nest, made of what is known then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from dnnl.codegen.access import Operand
from dnnl.codegen.address import Axis
from dnnl.codegen.builder import I64, Module, Value, Values, i64
from dnnl.codegen.nest import Nest
from dnnl.codegen.open_place import Lanes, moved
from dnnl.codegen.open_plan import HEAD, Form, Way
from dnnl.codegen.open_point import OpenLoop, OpenPoint, OpenSite
from dnnl.codegen.phase import PhaseFunction
from dnnl.codegen.schedule import widths
from dnnl.codegen.sharing import SHARES
from dnnl.runtime.image import Phase


def emit_open(module: Module, symbol: str, nest: Nest, slot: int, start: int = 0) -> Phase:
    """Write the phase ``symbol``, whose block is the argument ``slot`` from the word ``start``
    on."""
    slots = (slot, *(operand.slot for operand in nest.operands if operand.contents is None))
    phase = PhaseFunction(module, symbol, slots)
    walk = _Walk(phase, nest, slot, start)
    phase.each_range(walk.units)
    return phase.end(SHARES)


class _Walk:
    """Writes the loops. Lists of values have one for each operand, inputs first."""

    def __init__(self, phase: PhaseFunction, nest: Nest, slot: int, start: int) -> None:
        self.e, self._nest = phase.e, nest
        self._block, self._start = phase.arguments[slot], start
        form = Form.of(nest)
        self._count = form.operands
        self._way, self._units, extent, self._piece = (self._word(n) for n in range(HEAD))
        words = HEAD + 2 * form.operands
        self._bases = [self._word(HEAD + n) for n in range(form.operands)]
        strides = tuple(self._word(HEAD + form.operands + n) for n in range(form.operands))
        self._lane = OpenLoop(extent, strides)
        loops = [
            self._loop(words + n * (1 + form.operands)) for n in range(form.outer + form.reduced)
        ]
        self._outer, self._reduced = loops[: form.outer], tuple(loops[form.outer :])
        self._pointers = phase.pointers(nest.operands)
        lanes, _ = widths(phase.e.isa, nest.core)
        self._lanes = lanes
        self._vectors = Lanes(phase.e, nest.operands, lanes)

    def _word(self, number: int) -> Value:
        place = self.e.element(self._block, i64(self._start + number), I64)
        return self.e.b.load(place, typ=I64)

    def _loop(self, first: int) -> OpenLoop:
        extent, *strides = (self._word(first + n) for n in range(1 + self._count))
        return OpenLoop(extent, tuple(strides))

    def units(self, begin: Value, end: Value) -> None:
        """The units of work that belong to the items ``begin`` to ``end``."""
        e, b = self.e, self.e.b
        first, last = (b.udiv(b.mul(self._units, item), i64(SHARES)) for item in (begin, end))
        levels = len(self._outer)

        def unit(_: Value, *carried: Value) -> Values:
            counters, places = carried[:levels], carried[levels:]
            done = b.mul(counters[-1], self._piece)
            self._line(places, e.smaller(b.sub(self._lane.extent, done), self._piece))
            return self._advance(levels - 1, counters, places)

        def run() -> Values:
            e.loop(first, last, unit, self._located(first), unroll=False, name="unit")
            return ()

        e.branch(b.icmp_signed("<", first, last), run, lambda: ())

    def _located(self, unit: Value) -> Values:
        """The counters of the outer loops and the places of a unit, by its number."""
        b, rest = self.e.b, unit
        counters: list[Value] = []
        places: Sequence[Value] = self._bases
        for loop in reversed(self._outer):
            counter = b.urem(rest, loop.extent)
            rest = b.udiv(rest, loop.extent)
            places = moved(self.e, places, counter, loop.strides)
            counters.insert(0, counter)
        return (*counters, *places)

    def _advance(self, level: int, counters: Values, places: Values) -> Values:
        """The counters and places of the next unit: one step of the loop at ``level``, and where
        that is at its end back to its begin and one step of the loop around it."""
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
            return self._advance(level - 1, now, moved(self.e, places, back, loop.strides))

        return self.e.branch(b.icmp_signed("<", following, loop.extent), further, around)

    def _line(self, places: Values, length: Value) -> None:
        """One piece of the lane loop."""
        ways: list[tuple[Way, Callable[[Values, Value], None]]] = []
        if self._lanes > 1:
            ways.append((Way.LINES, self._by_vectors))
            if self._reduced:
                ways.append((Way.ROWS, self._by_rows))

        def choose(ways: Sequence[tuple[Way, Callable[[Values, Value], None]]]) -> Values:
            if not ways:
                self._one_by_one(places, length)
                return ()
            (way, run), *others = ways

            def here() -> Values:
                run(places, length)
                return ()

            here_now = self.e.b.icmp_signed("==", self._way, i64(way))
            return self.e.branch(here_now, here, lambda: choose(others))

        choose(ways)

    def _by_vectors(self, places: Values, length: Value) -> None:
        e, b = self.e, self.e.b
        site = self._site(self._lanes, self._nest.parallel, self._lane)
        whole = b.and_(length, i64(-self._lanes))

        def vectors(index: Value, left: Value | None = None) -> None:
            at = moved(e, places, index, self._lane.strides)
            self._nest.body(OpenPoint(site, at, left))

        e.loop(i64(0), whole, vectors, step=self._lanes, unroll=False, name="lane")
        if not e.isa.masked:
            self._one_by_one(places, length, whole)
            return

        def tail() -> Values:
            vectors(whole, b.sub(length, whole))
            return ()

        e.branch(b.icmp_signed("<", whole, length), tail, lambda: ())

    def _by_rows(self, places: Values, length: Value) -> None:
        site = self._site(self._lanes, self._nest.reduced, self._reduced[-1], inside=True)
        self._points(site, places, i64(0), length)

    def _one_by_one(self, places: Values, length: Value, begin: Value | None = None) -> None:
        site = OpenSite(
            self.e, self._vectors, 1, self._pointers, self._nest.core, self._reduced,
            frozenset(self._nest.operands), {}, inside=False,
        )  # fmt: skip
        self._points(site, places, i64(0) if begin is None else begin, length)

    def _points(self, site: OpenSite, places: Values, begin: Value, end: Value) -> None:
        def point(index: Value) -> None:
            at = moved(self.e, places, index, self._lane.strides)
            self._nest.body(OpenPoint(site, at))

        self.e.loop(begin, end, point, unroll=False, name="point")

    def _site(
        self, count: int, axes: Sequence[Axis], along: OpenLoop, *, inside: bool = False
    ) -> OpenSite:
        """Vectors of ``count`` lanes along one of the loops, which is made of some of ``axes``."""
        nest, b = self._nest, self.e.b
        moving = frozenset(operand for operand in nest.operands if _moves(operand, axes))
        steps = zip(nest.operands, along.strides, strict=True)
        still = {
            operand: b.icmp_signed("==", stride, i64(0))
            for operand, stride in steps
            if operand in moving and operand in nest.inputs
        }
        return OpenSite(
            self.e, self._vectors, count, self._pointers, nest.core, self._reduced, moving, still,
            inside,
        )  # fmt: skip


def _moves(operand: Operand, axes: Sequence[Axis]) -> bool:
    """Whether the index of an operand has one of the axes."""
    strides = chain.from_iterable(form.strides for form in operand.index)
    return not set(strides).isdisjoint(axes)
