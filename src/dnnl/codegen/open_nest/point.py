"""A point of a nest with open sizes, as the body of a kernel sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.conversion.convert import Conversion
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Values, i64
from dnnl.codegen.ir.horizontal import reduce_lanes
from dnnl.codegen.ir.vector import Mask
from dnnl.codegen.memory.access import Bound, Operand
from dnnl.codegen.memory.address import Affine
from dnnl.codegen.memory.place import Place
from dnnl.codegen.nest.fold_loop import ACCUMULATORS, Folding, FoldLoop, Merge, Step
from dnnl.codegen.nest.point import Body, Point
from dnnl.codegen.open_nest.place import Lanes, UniformPlace, advanced


@dataclass(frozen=True, eq=False)
class OpenLoop:
    """A loop whose extent and strides are run-time values."""

    extent: ir.Value
    strides: tuple[ir.Value, ...]


@dataclass(frozen=True, eq=False)
class OpenSite:
    """Where a nest with open sizes is emitted. Vectors run along the lane loop or, if ``inside``,
    along the innermost loop of the reduction. ``reduced`` are the loops of the reduction and
    ``folded`` their iterations.

    The operands ``moving`` are contiguous along a vector, except those whose flag in ``uniform`` is
    set; ``along`` are the strides of all. ``streamed`` has outputs and a flag: their whole vectors
    are stored non-temporally if it is set. ``row_buffer`` holds a vector for each iteration of a
    reduction with one loop. ``mask`` is the tail mask of the innermost loop.
    """

    e: Emitter
    lanes: Lanes
    count: int
    pointers: Mapping[Operand, ir.Value]
    core: ir.Type
    reduced: tuple[OpenLoop, ...]
    folded: ir.Value
    moving: frozenset[Operand]
    uniform: Mapping[Operand, ir.Value]
    inside: bool
    along: tuple[ir.Value, ...]
    streamed: tuple[tuple[Operand, ...], ir.Value] | None = None
    row_buffer: ir.Value | None = None
    mask: Mask = None


class OpenPoint(UniformPlace, Point):
    """One vector of iterations, or a single iteration, of a nest with open sizes.

    ``places`` are the offsets of the operands. With ``left``, only so many lanes exist. In a fold,
    ``index`` is the iteration of the innermost loop.
    """

    def __init__(
        self,
        site: OpenSite,
        places: Sequence[ir.Value],
        left: ir.Value | None = None,
        index: ir.Value | None = None,
    ) -> None:
        accesses, env, exists = site.lanes.at(places, site.count, site.moving, left)
        Place.__init__(
            self,
            site.e,
            site.pointers,
            accesses,
            env,
            site.lanes.lane,
            site.count,
            masked=left is not None,
            exists=exists,
            core=site.core,
        )
        self.uniform = site.uniform
        self._on, self._places, self._left, self._index = site, places, left, index
        self._loaded, self._absent = {}, None
        self._mask: Mask = None

    def fold(
        self,
        init: Sequence[float],
        step: Step,
        merge: Merge,
        absent: float | None = None,
        element: ir.Type | None = None,
    ) -> Values:
        """Run ``step(point, *values) -> values`` over the reduced axes, starting from ``init``. If
        the lanes themselves are reduced, every lane of the result has the answer."""
        kind = self.kind if element is None else vector.vector_type(element, self.kind.count)
        neutral = tuple(vector.splat_constant(kind, value) for value in init)
        result = self._over(self._on.reduced, self._places, Folding(step, merge, neutral), neutral)
        return reduce_lanes(self.e, result, merge, scalar=True) if self._on.inside else result

    def each(self, body: Body) -> None:
        """Run ``body`` over the reduced axes."""

        def step(point: Point) -> Values:
            body(point)
            return ()

        fold = Folding(step, lambda _e, _values, _others: (), ())
        self._over(self._on.reduced, self._places, fold, ())

    def conditions(self, bounds: Sequence[Bound]) -> Mask:
        """The lanes for which all bounds hold; None if all are known to."""
        return self._mask if self._mask is not None and bounds else super().conditions(bounds)

    def _store(self, operand: Operand, value: ir.Value, convert: Conversion) -> None:
        streamed = self._on.streamed
        if streamed is None or operand not in streamed[0] or self.masked:
            super()._store(operand, value, convert)
            return
        raw = convert(self.e, value)

        def write(streamed: tuple[Operand, ...]) -> Values:
            self.streamed = streamed
            super(OpenPoint, self)._store(operand, raw, lambda _, stored: stored)
            self.streamed = ()
            return ()

        self.e.branch(streamed[1], lambda: write((operand,)), lambda: write(()))

    def row_buffer(self) -> ir.Value | None:
        """A buffer with one vector for each iteration of the reduced axes, for
        `Point.buffer_store`. None if it might not stay in the first-level cache."""
        return self._on.row_buffer

    def _place_in(self, row_buffer: ir.Value) -> ir.Value:
        unit = self.kind.element if self._on.inside else self.kind
        return self.e.b.gep(row_buffer, [self._index], source_etype=unit)

    @property
    def folded(self) -> ir.Value:
        """The number of iterations of a fold, in the core type, which is a float."""
        return self._number(self._on.folded)

    @property
    def divisor(self) -> ir.Value:
        """The divisor of a mean: `folded`, but at least 1."""
        return self._number(self.e.larger(self._on.folded, i64(1)))

    def _number(self, scalar: ir.Value) -> ir.Value:
        """An integer as a vector of the core type."""
        number = self.e.b.sitofp(scalar, self.kind.element)
        return vector.splat(self.e, number, self.kind.count)

    def _bounded(self, form: Affine) -> ir.Value:
        """The value of a form in the first lane."""
        return self._start(form)

    def _over(
        self, loops: Sequence[OpenLoop], places: Sequence[ir.Value], fold: Folding, carried: Values
    ) -> Values:
        if not loops:
            return fold.step(self, *carried)
        loop, *rest = loops
        if not rest:
            return self._along(loop, places, fold, carried)

        def body(index: ir.Value, *values: ir.Value) -> Values:
            return self._over(rest, advanced(self.e, places, index, loop.strides), fold, values)

        def nested() -> Values:
            around = FoldLoop(fold, 1, name="reduced")
            return around.run(self.e, i64(0), loop.extent, body, carried)

        if len(rest) > 1 or not (self._on.inside and carried):
            return nested()
        limit = i64(ACCUMULATORS * self._on.count)
        short = self.e.b.icmp_signed("<=", rest[0].extent, limit)
        return self.e.branch(
            short, lambda: self._stacked(loop, rest[0], places, fold, carried), nested
        )

    def _stacked(
        self,
        outer: OpenLoop,
        loop: OpenLoop,
        places: Sequence[ir.Value],
        fold: Folding,
        carried: Values,
    ) -> Values:
        """The two innermost loops of a reduction over short rows, interchanged: the first vector of
        each row, then the second of each."""
        b, size = self.e.b, self._on.count
        whole = b.and_(loop.extent, i64(-size))
        left = b.sub(loop.extent, whole)

        def column(begin: ir.Value, values: Values, left: ir.Value | None) -> Values:
            top = advanced(self.e, places, begin, loop.strides)

            def one(index: ir.Value, *own: ir.Value) -> Values:
                return self._iteration(
                    advanced(self.e, top, index, outer.strides), begin, left, fold, own
                )

            return self._unrolled(outer.extent, 1, one, fold, values)

        results = self.e.loop(
            i64(0),
            whole,
            lambda begin, *values: column(begin, values, None),
            carried,
            step=size,
            unroll=False,
            name="column",
        )
        some = b.icmp_signed(">", left, i64(0))
        return self.e.branch(some, lambda: column(whole, results, left), lambda: results)

    def _along(
        self, loop: OpenLoop, places: Sequence[ir.Value], fold: Folding, carried: Values
    ) -> Values:
        """The innermost loop of a reduction, with a masked tail."""
        b, size = self.e.b, self._on.count if self._on.inside else 1
        whole = b.and_(loop.extent, i64(-size))

        def one(index: ir.Value, *values: ir.Value) -> Values:
            at = advanced(self.e, places, index, loop.strides)
            return self._iteration(at, index, None, fold, values)

        results = self._unrolled(whole, size, one, fold, carried)
        if size == 1:
            return results
        left = b.sub(loop.extent, whole)

        def rest() -> Values:
            at = advanced(self.e, places, whole, loop.strides)
            return self._iteration(at, whole, left, fold, results)

        return self.e.branch(b.icmp_signed(">", left, i64(0)), rest, lambda: results)

    def _iteration(
        self,
        places: Sequence[ir.Value],
        index: ir.Value,
        left: ir.Value | None,
        fold: Folding,
        carried: Values,
    ) -> Values:
        """One step of a fold; a masked tail if ``left`` is given."""
        if left is None:
            return fold.step(self._at(places, index), *carried)
        point = self._at(places, index, left)
        point._mask = self._on.mask
        results = fold.step(point, *carried)
        pairs = zip(results, carried, strict=True)
        return tuple(self.e.b.select(self._on.mask, new, old) for new, old in pairs)

    def _unrolled(
        self, end: ir.Value, size: int, one: Step, fold: Folding, carried: Values
    ) -> Values:
        """Run ``one(index, *values)`` for every ``size``-th index, unrolled with several
        accumulators."""
        registers = max(1, self._on.count // self._on.lanes.lane.extent)
        accumulators = (
            min(ACCUMULATORS, max(1, self.e.isa.registers // 2 // registers)) if carried else 2
        )
        loop = FoldLoop(fold, accumulators, step=size, name="folded")
        return loop.run(self.e, i64(0), end, one, carried)

    def _at(
        self, places: Sequence[ir.Value], index: ir.Value, left: ir.Value | None = None
    ) -> OpenPoint:
        return OpenPoint(self._on, places, self._left if left is None else left, index)
