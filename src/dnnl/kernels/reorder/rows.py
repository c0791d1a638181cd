"""The rows of a box: its two innermost loops, traversed by vectors, by squares or by elements.

Places of operands, and strides, are lists with one value for each operand, dst and src first. The
*lane* loop is the inner loop of a row; the other one goes from line to line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dnnl.codegen.ir.builder import Emitter, Type, Value, Values, i64
from dnnl.codegen.ir.vector import transpose, vector_type
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import ZERO
from dnnl.codegen.nest.schedule import widths
from dnnl.codegen.open_nest.place import Lanes, UniformPlace, advanced
from dnnl.kernels.reorder.boxes import BoxTraversal
from dnnl.kernels.reorder.reorder import Copy


def square_of(isa: Isa, core: Type) -> int:
    """The size of a square: 16 columns of elements below 32 bits would exceed the registers."""
    lanes, unit = widths(isa, core)
    return lanes if unit <= 4 else unit


class Vectors:
    """Creates vectors of the operands at run-time places."""

    def __init__(
        self, e: Emitter, core: Type, copy: Copy, pointers: Mapping[Operand, Value]
    ) -> None:
        self.e, self.core, self.copy, self._pointers = e, core, copy, pointers
        self.operands = copy.operands
        self.lanes, self.unit = widths(e.isa, core)
        self.square = square_of(e.isa, core)
        paired = {op for op in self.operands[:2] if op.desc.data_type.bits == 4}
        self._lanes = Lanes(e, self.operands, self.lanes, paired)
        self._varying = {op for op in self.operands if any(form != ZERO for form in op.index)}

    def at(
        self,
        places: Sequence[Value],
        lanes: int,
        still: Mapping[Operand, Value] | None = None,
        loaded: Mapping[Operand, Value] | None = None,
        left: Value | None = None,
    ) -> _Place:
        """A vector along the lane axis that begins at ``places``. Operands are invariant where
        ``still`` is true. If ``left`` is given, only as many elements exist."""
        varying = self._varying if lanes > 1 else self.operands
        accesses, env, exists = self._lanes.at(places, lanes, varying, left)
        place = _Place(
            self.e,
            self._pointers,
            accesses,
            env,
            self._lanes.lane,
            lanes,
            masked=left is not None,
            exists=exists,
            core=self.core,
        )
        place.uniform, place.loaded = still or {}, loaded or {}
        return place


class _Place(UniformPlace):
    """A place at which some operands are loaded already."""

    loaded: Mapping[Operand, Value]

    def load(self, operand: Operand) -> Value:
        """The operand's elements in the core type."""
        return self.loaded[operand] if operand in self.loaded else super().load(operand)


class Row:
    """Writes the two loops of a row: the outer one and the lane loop."""

    def __init__(
        self,
        vectors: Vectors,
        traversal: Value,
        extents: tuple[Value, Value],
        strides: tuple[list[Value], list[Value]],
    ) -> None:
        e = vectors.e
        self.vectors, self.e = vectors, e
        self.across, self.along = strides
        self.width, self.length = extents
        self.lines = e.b.icmp_signed("==", traversal, i64(BoxTraversal.LINES))
        self.squares = e.b.icmp_signed("==", traversal, i64(BoxTraversal.SQUARES))
        self.uniform = {
            operand: e.b.icmp_signed("==", stride, i64(0))
            for operand, stride in zip(vectors.operands[2:], self.across[2:], strict=True)
            if any(index != ZERO for index in operand.index)
        }

    def copy(self, places: Values) -> Values:
        """Compute a row."""
        vectors = self.vectors

        def write(at: Values, lanes: int, left: Value | None = None) -> None:
            vectors.copy.run(vectors.at(at, lanes, self.uniform if lanes > 1 else None, left=left))

        if vectors.square > 1:
            self._when(self.squares, lambda: self._all_squares(places))
        self._by_columns(places, write)
        self._by_elements(places, write)
        return ()

    def clear(self, places: Values) -> Values:
        """Write zeros into a row of dst."""
        vectors = self.vectors

        def write(at: Values, lanes: int, left: Value | None = None) -> None:
            place = vectors.at(at, lanes, left=left)
            place.store(vectors.copy.dst, place.constant(0.0))

        self._by_columns(places, write)
        self._by_elements(places, write)
        return ()

    def _by_columns(self, places: Values, write: Callable[..., None]) -> None:
        """Run ``write(place, lanes)`` for vectors, if the row is traversed so: first those at the
        begin of all lines."""
        e, lanes = self.e, self.vectors.lanes
        whole = self._whole(self.width, lanes)

        def column(lane: Value, left: Value | None = None) -> None:
            top = self._advanced(places, lane)

            def line(number: Value) -> None:
                write(advanced(e, top, number, self.along), lanes, left)

            e.loop(i64(0), self.length, line, name="line")

        def columns() -> None:
            e.loop(i64(0), whole, column, step=lanes, unroll=False, name="lane")
            if e.isa.masked:
                left = e.b.sub(self.width, whole)
                self._when(e.b.icmp_signed(">", left, i64(0)), lambda: column(whole, left))

        if lanes > 1:
            self._when(self.lines, columns)

    def _by_elements(self, places: Values, write: Callable[..., None]) -> None:
        """Run ``write(place, 1)`` for the remainder of vectors and squares."""
        e, b, vectors = self.e, self.e.b, self.vectors
        every = b.not_(b.or_(self.lines, self.squares))

        def in_vectors(number: Value) -> Value:
            """The elements of a line that are in vectors."""
            within = b.icmp_signed("<", number, self._whole(self.length, vectors.square))
            width = self._whole(self.width, vectors.square)
            of_squares = b.select(b.and_(self.squares, within), width, i64(0))
            return b.select(self.lines, self._whole(self.width, vectors.lanes), of_squares)

        def line(number: Value) -> None:
            at = advanced(e, places, number, self.along)
            begin = i64(0) if e.isa.masked or vectors.lanes == 1 else in_vectors(number)

            def each(lane: Value) -> None:
                write(self._advanced(at, lane), 1)

            e.loop(begin, self.width, each, unroll=False, name="each")

        # With masks there is no remainder.
        count = b.select(every, self.length, i64(0)) if e.isa.masked else self.length
        e.loop(i64(0), count, line, unroll=False, name="line")

    def _all_squares(self, places: Values) -> None:
        e, b, step = self.e, self.e.b, self.vectors.square
        width, length = self.width, self.length
        if not e.isa.masked:
            width, length = (self._whole(extent, step) for extent in (width, length))

        def lines(line: Value) -> None:
            start = advanced(e, places, line, self.along)

            def lanes(lane: Value) -> None:
                at = self._advanced(start, lane)
                left = b.sub(self.width, lane), b.sub(self.length, line)
                whole = (b.icmp_signed(">=", n, i64(step)) for n in left)
                if e.isa.masked:
                    e.branch(
                        b.and_(*whole), lambda: self._square(at), lambda: self._part(at, *left)
                    )
                else:
                    self._square(at)

            e.loop(i64(0), width, lanes, step=step, unroll=False, name="lane")

        e.loop(i64(0), length, lines, step=step, unroll=False, name="line")

    def _square(self, at: Values) -> Values:
        """Load lines of src, which go along the row's outer loop, and transpose them."""
        e, vectors, src = self.e, self.vectors, self.vectors.copy.src

        def load(row: int, piece: int) -> Value:
            start = advanced(e, self._advanced(at, i64(row)), i64(piece * vectors.unit), self.along)
            return vectors.at(start, vectors.unit).load(src)

        columns = transpose(e, vectors.square, vectors.square // vectors.unit, load)
        for number, value in enumerate(columns):
            line = advanced(e, at, i64(number), self.along)
            vectors.copy.run(vectors.at(line, vectors.square, self.uniform, {src: value}))
        return ()

    def _part(self, at: Values, width: Value, length: Value) -> Values:
        """Transpose the upper left part of a square, at most ``width`` lanes of ``length`` lines:
        loops over the existing lines, with the square on the stack."""
        e, vectors, src = self.e, self.vectors, self.vectors.copy.src
        size, unit = vectors.square, vectors.unit
        kind, part = vector_type(vectors.core, size), vector_type(vectors.core, unit)
        with e.b.goto_entry_block():
            square = e.b.alloca(kind, size)

        def load(lane: Value) -> None:
            row = vectors.at(self._advanced(at, lane), size, left=length)
            e.b.store(row.load(src), e.element(square, lane, kind))

        def store(number: Value) -> None:
            loaded = {src: e.b.load(e.element(square, number, kind), typ=kind)}
            line = advanced(e, at, number, self.along)
            vectors.copy.run(vectors.at(line, size, self.uniform, loaded, width))

        e.loop(i64(0), e.smaller(width, i64(size)), load, unroll=False, name="row")

        def loaded_piece(row: int, piece: int) -> Value:
            number = row * (size // unit) + piece
            return e.b.load(e.element(square, i64(number), part), typ=part)

        for number, value in enumerate(transpose(e, size, size // unit, loaded_piece)):
            e.b.store(value, e.element(square, i64(number), kind))
        e.loop(i64(0), e.smaller(length, i64(size)), store, unroll=False, name="column")
        return ()

    def _advanced(self, places: Values, steps: Value) -> Values:
        """The places ``steps`` further along the lane loop."""
        return advanced(self.e, places, steps, self.across)

    def _whole(self, extent: Value, step: int) -> Value:
        """The part of a loop that whole vectors fill."""
        return self.e.b.and_(extent, i64(-step))

    def _when(self, condition: Value, run: Callable[[], None]) -> None:
        def then() -> Values:
            run()
            return ()

        self.e.branch(condition, then, lambda: ())
