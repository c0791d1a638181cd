"""The code of a nest whose sizes and strides only the execution knows.

A nest that a kernel has made of descriptors with RUNTIME_DIM is written as one canonical walk:
lines along a lane loop, counted loops around them, and those of a reduction inside. Which axes
these loops are, how long they are and how far they step is read from a block of words, which
`open_plan` fills in for each execution: from the same nest, made of what is known then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from dnnl.codegen import vector
from dnnl.codegen.address import Axis
from dnnl.codegen.builder import I64, Module, Value, Values, i64
from dnnl.codegen.nest import Nest
from dnnl.codegen.open_place import Lanes, moved
from dnnl.codegen.open_plan import HEAD, Form, Way, may_stay, moves
from dnnl.codegen.open_point import OpenLoop, OpenPoint, OpenSite
from dnnl.codegen.phase import PhaseFunction
from dnnl.codegen.point import ROOM
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
        ways = [(Way.EACH, self._each_line(self._points, length))]
        if self._lanes > 1:
            ways.insert(0, (Way.LINES, self._each_line(self._by_vectors, length)))
            if self._reduced:
                ways.insert(0, (Way.ROWS, self._each_line(self._by_rows, length)))
            else:
                ways.insert(1, (Way.COLUMNS, partial(self._by_columns, length)))

        def choose(ways: Sequence[tuple[Way, Callable[[Values, Value], None]]]) -> Values:
            (way, run), *others = ways

            def here() -> Values:
                run(places, count)
                return ()

            if not others:
                return here()
            chosen = self.e.b.icmp_signed("==", self._way, i64(way))
            return self.e.branch(chosen, here, lambda: choose(others))

        choose(ways)

    def _each_line(
        self, run: Callable[[Values, Value], None], length: Value
    ) -> Callable[[Values, Value], None]:
        """What runs ``run`` for each of some lines of that ``length``."""

        def lines(places: Values, count: Value) -> None:
            def line(_: Value, *at: Value) -> Values:
                run(at, length)
                return tuple(map(self.e.b.add, at, self._lines.strides))

            self.e.loop(i64(0), count, line, places, unroll=False, name="line")

        return lines

    def _by_vectors(self, places: Values, length: Value) -> None:
        """A line, vector by vector."""

        def vectors(site: OpenSite, begin: Value, end: Value, left: Value | None) -> None:
            def vector(index: Value) -> None:
                self._body(site, moved(self.e, places, index, site.along), left)

            self.e.loop(begin, end, vector, step=site.count, unroll=False, name="lane")

        self._parts(places, length, vectors)

    def _by_columns(self, length: Value, places: Values, count: Value) -> None:
        """Lines that are short: a vector of each of them, then the next one of each."""

        def columns(site: OpenSite, begin: Value, end: Value, left: Value | None) -> None:
            def column(index: Value) -> None:
                def line(_: Value, *at: Value) -> Values:
                    self._nest.body(OpenPoint(site, at, left))
                    return tuple(map(self.e.b.add, at, self._lines.strides))

                top = moved(self.e, places, index, site.along)
                self.e.loop(i64(0), count, line, top, unroll=False, name="line")

            self.e.loop(begin, end, column, step=site.count, unroll=False, name="column")

        self._parts(None, length, columns)

    def _parts(
        self,
        places: Values | None,
        length: Value,
        run: Callable[[OpenSite, Value, Value, Value | None], None],
    ) -> None:
        """Run ``run(site, begin, end, left)`` for the parts of lines of that ``length`` which are
        walked by vectors of several registers, by those of one, and for what these leave; lines
        that begin at ``places`` may be stored past the caches."""
        b, begin = self.e.b, i64(0)
        for count in dict.fromkeys((self._lanes * self._registers, self._lanes)):
            end = b.and_(length, i64(-count))
            run(self._site(count, self._nest.parallel, self._lane, places), begin, end, None)
            begin = end
        if self._takes_masks:
            site = self._site(self._lanes, self._nest.parallel, self._lane, None)
            run(site, begin, length, b.sub(length, begin))
            return
        size = self._lanes // 2
        while size:
            # The rest in vectors of half as many lanes each.
            end = b.and_(length, i64(-size))
            run(self._site(size, self._nest.parallel, self._lane, None), begin, end, None)
            begin, size = end, size // 2

    @property
    def _registers(self) -> int:
        """How many registers a vector along the lane loop fills: more than one where no vector is
        long in use, so that neither waits for the other, and rows that lie apart are read in longer
        pieces."""
        if not self._nest.reduced:
            return 2
        folded = not any(moves(output, self._nest.reduced) for output in self._nest.outputs)
        return 4 if folded else 1

    def _body(self, site: OpenSite, at: Sequence[Value], left: Value | None) -> Values:
        """The body at one vector; where it can put by what it computes if that has room."""

        def with_room(room: Value | None) -> Values:
            self._nest.body(OpenPoint(replace(site, room=room), at, left))
            return ()

        if not self._nest.keeps or len(self._reduced) > 1 or site.count < self._lanes:
            return with_room(None)
        kind = vector.vector_type(self._nest.core, site.count)
        most = ROOM * 8 // vector.bits(kind)
        with self.e.b.goto_entry_block():
            room = self.e.b.alloca(kind, most)
        limit = i64(most * (site.count if site.inside else 1))
        fits = self.e.b.icmp_signed("<=", self._reduced[-1].extent, limit)
        return self.e.branch(fits, lambda: with_room(room), lambda: with_room(None))

    @property
    def _takes_masks(self) -> bool:
        """Whether what whole vectors leave of a line is done under a mask.

        Few processors have masks for any type, and of some they are slow, but a reduction is a long
        body to write for each size of vectors.
        """
        isa = self.e.isa
        return isa.masked_bytes or (isa.masked and bool(self._reduced))

    @property
    def _may_stream(self) -> bool:
        """Whether a plan may ever want stores past the caches."""
        caches = self.e.isa.caches
        return caches.steered and caches.streams_few_rows and not self._nest.reads_dst

    def _by_rows(self, places: Values, length: Value) -> None:
        """Points of a line, whose vectors lie along the innermost loop of the reduction."""
        b, along = self.e.b, self._reduced[-1]
        rest = b.and_(along.extent, i64(self._lanes - 1))
        alike = self._site(self._lanes, self._nest.reduced, along, None, inside=True)
        mask = OpenPoint(alike, places, rest).existing  # the same for all rows

        def row(_: Value, *at: Value) -> Values:
            site = self._site(self._lanes, self._nest.reduced, along, at, inside=True)
            self._body(replace(site, mask=mask), at, None)
            return tuple(map(self.e.b.add, at, self._lane.strides))

        self.e.loop(i64(0), length, row, places, unroll=False, name="row")

    def _points(self, places: Values, length: Value) -> None:
        """A line point by point."""
        site = OpenSite(
            self.e, self._vectors, 1, self._pointers, self._nest.core, self._reduced,
            frozenset(self._nest.operands), {}, inside=False, along=self._lane.strides,
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
        stays = frozenset(operand for operand in moving if may_stay(nest, operand, axes))
        pairs = list(zip(nest.operands, along.strides, strict=True))
        still = {op: b.icmp_signed("==", stride, i64(0)) for op, stride in pairs if op in stays}
        strides = tuple(
            stride if operand in stays else i64(int(operand in moving)) for operand, stride in pairs
        )
        dst = nest.outputs[0]
        streamed = None
        if places is not None and dst in moving and self._may_stream:
            size = dst.desc.data_type.size
            address = b.ptrtoint(self._pointers[dst], I64)
            address = b.add(address, b.mul(places[len(nest.inputs)], i64(size)))
            rest = b.and_(address, i64(count * size - 1))
            streamed = b.and_(self.streams, b.icmp_signed("==", rest, i64(0)))
        reduced = (
            (*self._reduced[:-1], replace(along, strides=strides)) if inside else self._reduced
        )
        return OpenSite(
            self.e, self._vectors, count, self._pointers, nest.core, reduced, moving, still,
            inside, strides, None if streamed is None else (dst, streamed),
        )  # fmt: skip
