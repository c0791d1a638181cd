"""The code of a nest whose sizes and strides only the execution knows.

A nest that a kernel has made of descriptors with RUNTIME_DIM is written as one canonical walk:
lines along a lane loop, counted loops around them, and those of a reduction inside. Which axes
these loops are, how long they are and how far they step is read from a block of words, which
`open_plan` fills in for each execution: from the same nest, made of what is known then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dnnl.codegen.address import Axis
from dnnl.codegen.builder import I64, Module, Value, Values, i64
from dnnl.codegen.nest import Nest
from dnnl.codegen.open_place import Lanes, moved
from dnnl.codegen.open_plan import HEAD, Form, Way, may_stay, moves
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
    phase.e.branch(walk.streams, lambda: _fence(phase), lambda: ())
    return phase.end(SHARES)


def _fence(phase: PhaseFunction) -> Values:
    """Stores past the caches are not ordered by the locks of the runtime."""
    phase.e.b.fence("seq_cst")
    return ()


class _Walk:
    """Writes the loops. Lists of values have one for each operand, inputs first."""

    def __init__(self, phase: PhaseFunction, nest: Nest, slot: int, start: int) -> None:
        self.e, self._nest = phase.e, nest
        self._block, self._start = phase.arguments[slot], start
        form = Form.of(nest)
        count = self._count = form.operands
        self._way, self._units, streams, *ends = (self._word(n) for n in range(HEAD))
        self._bases, lines, lane = (
            tuple(self._word(HEAD + part * count + n) for n in range(count)) for part in range(3)
        )
        self._lines, self._lines_piece = OpenLoop(ends[0], lines), ends[1]
        self._lane, self._piece = OpenLoop(ends[2], lane), ends[3]
        loops = [
            self._loop(HEAD + 3 * count + n * (1 + count)) for n in range(form.outer + form.reduced)
        ]
        self._outer, self._reduced = loops[: form.outer], tuple(loops[form.outer :])
        self._pointers = phase.pointers(nest.operands)
        self._lanes, _ = widths(phase.e.isa, nest.core)
        self._vectors = Lanes(phase.e, nest.operands, self._lanes)
        self.streams = self.e.b.icmp_signed("!=", streams, i64(0))

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
            count = self._left(self._lines, counters[-2], self._lines_piece)
            self._unit(places, count, self._left(self._lane, counters[-1], self._piece))
            return self._advance(levels - 1, counters, places)

        def run() -> Values:
            e.loop(first, last, unit, self._located(first), unroll=False, name="unit")
            return ()

        e.branch(b.icmp_signed("<", first, last), run, lambda: ())

    def _left(self, loop: OpenLoop, counter: Value, piece: Value) -> Value:
        """How many iterations a piece of a loop has."""
        done = self.e.b.mul(counter, piece)
        return self.e.smaller(self.e.b.sub(loop.extent, done), piece)

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

    def _unit(self, places: Values, count: Value, length: Value) -> None:
        """``count`` lines, of which ``length`` points each are done."""
        ways = [(Way.EACH, self._points)]
        if self._lanes > 1:
            ways.insert(0, (Way.LINES, self._by_vectors))
            if self._reduced:
                ways.insert(0, (Way.ROWS, self._by_rows))

        def lines(run: Callable[[Values, Value], None]) -> Values:
            def line(_: Value, *at: Value) -> Values:
                run(at, length)
                return tuple(map(self.e.b.add, at, self._lines.strides))

            self.e.loop(i64(0), count, line, places, unroll=False, name="line")
            return ()

        def choose(ways: Sequence[tuple[Way, Callable[[Values, Value], None]]]) -> Values:
            (way, run), *others = ways
            if not others:
                return lines(run)
            here = self.e.b.icmp_signed("==", self._way, i64(way))
            return self.e.branch(here, lambda: lines(run), lambda: choose(others))

        choose(ways)

    def _by_vectors(self, places: Values, length: Value) -> None:
        """A line by vectors of several registers, by those of one, and what these leave."""
        e, b, begin = self.e, self.e.b, i64(0)
        counts = [self._lanes * self._registers, self._lanes]
        for count in dict.fromkeys(counts):
            whole = b.and_(length, i64(-count))
            site = self._site(count, self._nest.parallel, self._lane, places)
            self._vectors_of(site, places, begin, whole)
            begin = whole
        if self._takes_masks:
            site = self._site(self._lanes, self._nest.parallel, self._lane, None)
            left = b.sub(length, begin)
            e.branch(
                b.icmp_signed(">", left, i64(0)),
                lambda: self._vector(site, places, begin, left),
                lambda: (),
            )
            return
        size = self._lanes // 2
        while size:
            # The rest in vectors of half as many lanes each, none of which needs a mask.
            start, end = (b.and_(length, i64(-step)) for step in (2 * size, size))
            site = self._site(size, self._nest.parallel, self._lane, None)
            self._vectors_of(site, places, start, end)
            size //= 2

    @property
    def _registers(self) -> int:
        """How many registers a vector along the lane loop fills: more than one where no vector is
        long in use, so that neither waits for the other, and rows that lie apart are read in longer
        pieces."""
        if not self._nest.reduced:
            return 2
        folded = not any(moves(output, self._nest.reduced) for output in self._nest.outputs)
        return 4 if folded else 1

    @property
    def _takes_masks(self) -> bool:
        """Whether loads and stores of all operands take masks."""
        isa = self.e.isa
        wide = all(operand.desc.data_type.bits >= 32 for operand in self._nest.operands)
        return isa.masked_bytes or (isa.masked and wide)

    def _vectors_of(self, site: OpenSite, places: Values, begin: Value, end: Value) -> None:
        def vector(index: Value) -> None:
            self._vector(site, places, index)

        self.e.loop(begin, end, vector, step=site.count, unroll=False, name="lane")

    def _vector(
        self, site: OpenSite, places: Values, index: Value, left: Value | None = None
    ) -> Values:
        """The body on one vector, some lanes from the beginning of a line."""
        at = moved(self.e, places, index, self._lane.strides)
        self._nest.body(OpenPoint(site, at, left))
        return ()

    def _by_rows(self, places: Values, length: Value) -> None:
        def row(_: Value, *at: Value) -> Values:
            along = self._reduced[-1]
            site = self._site(self._lanes, self._nest.reduced, along, at, inside=True)
            self._nest.body(OpenPoint(site, at))
            return tuple(map(self.e.b.add, at, self._lane.strides))

        self.e.loop(i64(0), length, row, places, unroll=False, name="row")

    def _points(self, places: Values, length: Value) -> None:
        """A line point by point."""
        site = OpenSite(
            self.e, self._vectors, 1, self._pointers, self._nest.core, self._reduced,
            frozenset(self._nest.operands), {}, inside=False,
        )  # fmt: skip

        def point(_: Value, *at: Value) -> Values:
            self._nest.body(OpenPoint(site, at))
            return tuple(map(self.e.b.add, at, self._lane.strides))

        self.e.loop(i64(0), length, point, places, unroll=False, name="point")

    def _site(
        self,
        count: int,
        axes: Sequence[Axis],
        along: OpenLoop,
        places: Values | None,
        *,
        inside: bool = False,
    ) -> OpenSite:
        """Vectors of ``count`` lanes along one of the loops, which is made of some of ``axes``. If
        ``places`` are given, where a line begins, they may be stored past the caches."""
        nest, b = self._nest, self.e.b
        moving = frozenset(operand for operand in nest.operands if moves(operand, axes))
        still = {
            operand: b.icmp_signed("==", stride, i64(0))
            for operand, stride in zip(nest.operands, along.strides, strict=True)
            if operand in moving and may_stay(nest, operand, axes)
        }
        dst = nest.outputs[0]
        streamed = None
        if places is not None and dst in moving and self.e.isa.caches.steered:
            size = dst.desc.data_type.size
            address = b.ptrtoint(self._pointers[dst], I64)
            address = b.add(address, b.mul(places[len(nest.inputs)], i64(size)))
            rest = b.and_(address, i64(count * size - 1))
            streamed = b.and_(self.streams, b.icmp_signed("==", rest, i64(0)))
        return OpenSite(
            self.e, self._vectors, count, self._pointers, nest.core, self._reduced, moving, still,
            inside, None if streamed is None else (dst, streamed),
        )  # fmt: skip
