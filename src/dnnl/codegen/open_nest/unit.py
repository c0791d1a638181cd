"""Emits a unit of work of an open nest: some lines, in the traversal that the plan selects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import I64, Emitter, Value, Values, i64
from dnnl.codegen.isa.caches import NEVER
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Axis
from dnnl.codegen.nest.nest import Nest
from dnnl.codegen.nest.point import ROW_BUFFER_BYTES
from dnnl.codegen.nest.schedule import widths
from dnnl.codegen.open_nest.place import Lanes, advanced
from dnnl.codegen.open_nest.plan import Traversal, may_be_uniform, moves
from dnnl.codegen.open_nest.point import OpenLoop, OpenPoint, OpenSite

_WIDE = 512  # bits


class OpenUnit:
    """Emits every traversal. Lists of values have one for each operand, inputs first.

    A line runs along ``lane``; ``lines`` runs over the lines. ``reduced`` are the loops inside and
    ``folded`` their iterations. ``nontemporal`` says whether stores are non-temporal.
    """

    def __init__(
        self,
        e: Emitter,
        nest: Nest,
        pointers: Mapping[Operand, Value],
        lines: OpenLoop,
        lane: OpenLoop,
        reduced: tuple[OpenLoop, ...],
        folded: Value,
        traversal: Value,
        nontemporal: Value,
    ) -> None:
        self.e, self._nest, self._pointers = e, nest, pointers
        self._lines, self._lane, self._reduced = lines, lane, reduced
        self._folded, self._traversal, self._nontemporal = folded, traversal, nontemporal
        self._lanes, _ = widths(e.isa, nest.core)
        self._vectors = Lanes(e, nest.operands, self._lanes)

    def write(self, places: Values, count: Value, length: Value) -> None:
        """Emit ``count`` lines of ``length`` points each."""
        traversals: list[tuple[Traversal, Callable[[Values, Value], None]]] = []
        if self._lanes > 1:
            if self._reduced:
                traversals.append((Traversal.ROWS, self._each_line(self._by_rows, length)))
            else:
                traversals.append((Traversal.COLUMNS, partial(self._by_columns, length)))
            if not self._nest.in_rows:
                traversals.append((Traversal.LINES, self._each_line(self._by_vectors, length)))
        traversals.append((Traversal.EACH, self._each_line(self._points, length)))

        def choose(
            traversals: Sequence[tuple[Traversal, Callable[[Values, Value], None]]],
        ) -> Values:
            (traversal, run), *others = traversals

            def here() -> Values:
                run(places, count)
                return ()

            if not others:
                return here()
            chosen = self.e.b.icmp_signed("==", self._traversal, i64(traversal))
            return self.e.branch(chosen, here, lambda: choose(others))

        choose(traversals)

    def _each_line(
        self, run: Callable[[Values, Value], None], length: Value
    ) -> Callable[[Values, Value], None]:
        """A function that runs ``run`` for each line."""

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
                self._body(site, advanced(self.e, places, index, site.along), left)

            self.e.loop(begin, end, vector, step=site.count, unroll=False, name="lane")

        self._parts(places, length, vectors)

    def _by_columns(self, length: Value, places: Values, count: Value) -> None:
        """Short lines: the first vector of every line, then the second of every line."""

        def columns(site: OpenSite, begin: Value, end: Value, left: Value | None) -> None:
            def column(index: Value) -> None:
                def line(_: Value, *at: Value) -> Values:
                    self._nest.body(OpenPoint(site, at, left))
                    return tuple(map(self.e.b.add, at, self._lines.strides))

                top = advanced(self.e, places, index, site.along)
                self.e.loop(i64(0), count, line, top, unroll=False, name="line")

            self.e.loop(begin, end, column, step=site.count, unroll=False, name="column")

        self._parts(None, length, columns)

    def _parts(
        self,
        places: Values | None,
        length: Value,
        run: Callable[[OpenSite, Value, Value, Value | None], None],
    ) -> None:
        """Run ``run(site, begin, end, left)`` for the part of a line of ``length`` that vectors of
        several registers cover, then single registers, then the tail. If the lines' offsets
        ``places`` are given, stores may be non-temporal."""
        b, begin = self.e.b, i64(0)
        for count in [self._lanes << n for n in reversed(range(self._registers.bit_length()))]:
            end = b.and_(length, i64(-count))
            run(self._site(count, self._nest.parallel, self._lane, places), begin, end, None)
            begin = end
        if self._takes_masks:
            site = self._site(self._lanes, self._nest.parallel, self._lane, None)
            run(site, begin, length, b.sub(length, begin))
            return
        size = self._lanes // 2
        while size:
            # The tail in vectors of half as many lanes each.
            end = b.and_(length, i64(-size))
            run(self._site(size, self._nest.parallel, self._lane, None), begin, end, None)
            begin, size = end, size // 2

    @property
    def _registers(self) -> int:
        """The registers that a vector along the lane loop spans. Several overlap dependency chains
        where bodies are short, and read distant rows in longer runs."""
        most = self.e.isa.most_registers(self._lanes)
        if not self._nest.reduced:
            return min(2, most)
        folded = not any(moves(output, self._nest.reduced) for output in self._nest.outputs)
        return min(4, most) if folded else 1

    def _body(self, site: OpenSite, at: Sequence[Value], left: Value | None) -> Values:
        """The body at one vector, with a row buffer if it uses one and the reduction fits."""

        def run_body(buffer: Value | None) -> Values:
            self._nest.body(OpenPoint(replace(site, row_buffer=buffer), at, left))
            return ()

        narrow = site.count < self._lanes and not site.inside
        buffered = self._nest.uses_row_buffer and not self.e.isa.many_items
        if not buffered or len(self._reduced) > 1 or narrow:
            return run_body(None)
        kind = vector.vector_type(self._nest.core, site.count)
        most = ROW_BUFFER_BYTES * 8 // vector.bits(kind)
        with self.e.b.goto_entry_block():
            buffer = self.e.b.alloca(kind, most)
        limit = i64(most * (site.count if site.inside else 1))
        fits = self.e.b.icmp_signed("<=", self._reduced[-1].extent, limit)
        return self.e.branch(fits, lambda: run_body(buffer), lambda: run_body(None))

    @property
    def _takes_masks(self) -> bool:
        """Whether tails are masked.

        Few processors have fast masks for all types. But a reduction is a long body to emit for
        each size of vectors.
        """
        isa = self.e.isa
        return isa.masked_bytes or (isa.masked and bool(self._reduced))

    @property
    def _may_be_nontemporal(self) -> bool:
        """Whether a plan may ask for non-temporal stores."""
        caches = self.e.isa.caches
        return caches.non_temporal and caches.streamed_rows < NEVER and not self._nest.reads_dst

    def _by_rows(self, places: Values, length: Value) -> None:
        """The points of a line, with vectors along the innermost loop of the reduction. Targets
        with 512-bit vectors use half of one for rows that fill no more."""

        def rows(lanes: int) -> Values:
            self._rows_of(lanes, places, length)
            return ()

        half = self._lanes // 2
        if self.e.isa.vector_bits < _WIDE:
            rows(self._lanes)
            return
        short = self.e.b.icmp_signed("<=", self._reduced[-1].extent, i64(half))
        self.e.branch(short, lambda: rows(half), lambda: rows(self._lanes))

    def _rows_of(self, lanes: int, places: Values, length: Value) -> None:
        b, along = self.e.b, self._reduced[-1]
        rest = b.and_(along.extent, i64(lanes - 1))
        alike = self._site(lanes, self._nest.reduced, along, None, inside=True)
        mask = OpenPoint(alike, places, rest).existing  # the same for all rows

        def row(_: Value, *at: Value) -> Values:
            site = self._site(lanes, self._nest.reduced, along, at, inside=True)
            self._body(replace(site, mask=mask), at, None)
            return tuple(map(self.e.b.add, at, self._lane.strides))

        self.e.loop(i64(0), length, row, places, unroll=False, name="row")

    def _points(self, places: Values, length: Value) -> None:
        """A line point by point."""
        site = OpenSite(
            self.e,
            self._vectors,
            1,
            self._pointers,
            self._nest.core,
            self._reduced,
            self._folded,
            frozenset(self._nest.operands),
            {},
            inside=False,
            along=self._lane.strides,
        )

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
        """Vectors of ``count`` lanes along a loop over some of ``axes``. With ``places``, the
        offsets of a line, stores may be non-temporal."""
        nest, b = self._nest, self.e.b
        moving = frozenset(operand for operand in nest.operands if moves(operand, axes))
        may_be = frozenset(operand for operand in moving if may_be_uniform(nest, operand, axes))
        pairs = list(zip(nest.operands, along.strides, strict=True))
        uniform = {op: b.icmp_signed("==", stride, i64(0)) for op, stride in pairs if op in may_be}
        strides = tuple(
            stride if operand in may_be else i64(int(operand in moving))
            for operand, stride in pairs
        )
        streamed = None
        if places is not None and nest.outputs[0] in moving and self._may_be_nontemporal:
            written = zip(nest.outputs, places[len(nest.inputs) :], strict=True)
            rows = [(op, place) for op, place in written if op.slot == nest.outputs[0].slot]
            size = nest.outputs[0].desc.data_type.size
            addresses = [self._address(operand, place) for operand, place in rows]
            rest = b.and_(reduce(b.or_, addresses), i64(count * size - 1))
            aligned = b.icmp_signed("==", rest, i64(0))
            streamed = tuple(op for op, _ in rows), b.and_(self._nontemporal, aligned)
        reduced = (
            (*self._reduced[:-1], replace(along, strides=strides)) if inside else self._reduced
        )
        return OpenSite(
            self.e,
            self._vectors,
            count,
            self._pointers,
            nest.core,
            reduced,
            self._folded,
            moving,
            uniform,
            inside,
            strides,
            streamed,
        )

    def _address(self, operand: Operand, place: Value) -> Value:
        b = self.e.b
        first = b.ptrtoint(self._pointers[operand], I64)
        return b.add(first, b.mul(place, i64(operand.desc.data_type.size)))
