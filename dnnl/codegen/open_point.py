"""A point of a nest whose sizes only the execution knows, as the body of a kernel sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen import vector
from dnnl.codegen.access import Bound, Operand
from dnnl.codegen.address import Affine
from dnnl.codegen.builder import Emitter, Values, i64
from dnnl.codegen.convert import Conversion
from dnnl.codegen.open_place import Lanes, StillPlace, moved
from dnnl.codegen.place import Place
from dnnl.codegen.point import WAYS, Body, Merge, Point, Step
from dnnl.codegen.vector import Mask


@dataclass(frozen=True, eq=False)
class OpenLoop:
    """A loop whose extent, and whose stride in each operand, are known when the code runs."""

    extent: ir.Value
    strides: tuple[ir.Value, ...]


@dataclass(frozen=True, eq=False)
class OpenSite:
    """Where the code of such a nest is written, and how its vectors lie: along the lane loop, or
    ``inside``, along the innermost loop of the reduction. The loops of that are ``reduced``, and
    ``folded`` is how many iterations they stand for.

    Along a vector the operands ``moving`` go from element to element, but for those whose flag
    ``still`` is set then; ``along`` are the strides of all. Whole vectors of an output go past the
    caches where the flag beside it is set, as ``streamed``. If there is a ``room``, it holds a
    vector of each iteration of the only loop of a reduction. ``mask`` is that of what whole vectors
    leave of the innermost one.
    """

    e: Emitter
    lanes: Lanes
    count: int
    pointers: Mapping[Operand, ir.Value]
    core: ir.Type
    reduced: tuple[OpenLoop, ...]
    folded: ir.Value
    moving: frozenset[Operand]
    still: Mapping[Operand, ir.Value]
    inside: bool
    along: tuple[ir.Value, ...]
    streamed: tuple[Operand, ir.Value] | None = None
    room: ir.Value | None = None
    mask: Mask = None


@dataclass(frozen=True, eq=False)
class _Fold:
    step: Step
    merge: Merge
    neutral: Values


class OpenPoint(StillPlace, Point):
    """One vector of the iterations, or a single one, of a walk over sizes that only the execution
    knows: it can load and store, and fold over the reduced axes.

    ``places`` are the offsets of the operands here. If ``left`` is given, only so many lanes exist.
    In a fold ``index`` is the iteration of its innermost loop.
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
            self, site.e, site.pointers, accesses, env, site.lanes.lane, site.count,
            masked=left is not None, exists=exists, core=site.core,
        )  # fmt: skip
        self.still = site.still
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
        """Run ``step(point, *values) -> values`` over the reduced axes, starting from ``init``;
        every lane of the result holds the answer where the lanes themselves are reduced."""
        kind = self.kind if element is None else vector.vector_type(element, self.kind.count)
        neutral = tuple(vector.splat_constant(kind, value) for value in init)
        result = self._over(self._on.reduced, self._places, _Fold(step, merge, neutral), neutral)
        distance = self._lanes // 2 if self._on.inside else 0
        while distance:
            turn = [(lane + distance) % self._lanes for lane in range(self._lanes)]
            turned = tuple(vector.shuffle(self.e, value, value, turn) for value in result)
            result = merge(self.e, result, turned)
            distance //= 2
        return result

    def each(self, body: Body) -> None:
        """Run ``body`` over the reduced axes."""

        def step(point: Point) -> Values:
            body(point)
            return ()

        fold = _Fold(step, lambda _e, _values, _others: (), ())
        self._over(self._on.reduced, self._places, fold, ())

    def conditions(self, bounds: Sequence[Bound]) -> Mask:
        """The lanes for which all bounds hold; None if that is known to be all."""
        return self._mask if self._mask is not None and bounds else super().conditions(bounds)

    def _store(self, operand: Operand, value: ir.Value, convert: Conversion) -> None:
        streamed = self._on.streamed
        if streamed is None or operand is not streamed[0] or self.masked:
            super()._store(operand, value, convert)
            return
        raw = convert(self.e, value)

        def write(streamed: tuple[Operand, ...]) -> Values:
            self.streamed = streamed
            super(OpenPoint, self)._store(operand, raw, lambda _, stored: stored)
            self.streamed = ()
            return ()

        self.e.branch(streamed[1], lambda: write((operand,)), lambda: write(()))

    def room(self) -> ir.Value | None:
        """Memory for a vector of every iteration of the reduced axes, see `Point.keep`; None where
        that may be more than stays in a first-level cache beside the operands."""
        return self._on.room

    def _place_in(self, room: ir.Value) -> ir.Value:
        unit = self.kind.element if self._on.inside else self.kind
        return self.e.b.gep(room, [self._index], source_etype=unit)

    @property
    def folded(self) -> ir.Value:
        """How many iterations a fold has, as values of the core type, which is a float."""
        count = self.e.b.sitofp(self._on.folded, self.kind.element)
        return vector.splat(self.e, count, self.kind.count)

    def _bounded(self, form: Affine) -> ir.Value:
        """The value of a form in the first lane."""
        return self._start(form)

    def _over(
        self, loops: Sequence[OpenLoop], places: Sequence[ir.Value], fold: _Fold, carried: Values
    ) -> Values:
        if not loops:
            return fold.step(self, *carried)
        loop, *rest = loops
        if not rest:
            return self._along(loop, places, fold, carried)

        def body(index: ir.Value, *values: ir.Value) -> Values:
            return self._over(rest, moved(self.e, places, index, loop.strides), fold, values)

        return self.e.loop(i64(0), loop.extent, body, carried, unroll=False, name="reduced")

    def _along(
        self, loop: OpenLoop, places: Sequence[ir.Value], fold: _Fold, carried: Values
    ) -> Values:
        """The innermost loop of a reduction: several iterations at a time, with results of their
        own, so that none waits for the one before."""
        e, b = self.e, self.e.b
        size = self._on.count if self._on.inside else 1
        registers = max(1, self._on.count // self._on.lanes.lane.extent)
        ways = min(WAYS, max(1, e.isa.registers // 2 // registers)) if carried else 2
        count = len(carried)

        def one(index: ir.Value, *values: ir.Value) -> Values:
            return fold.step(self._at(moved(e, places, index, loop.strides), index), *values)

        def several(index: ir.Value, *values: ir.Value) -> Values:
            following: Values = ()
            for way in range(ways):
                own = values[way * count : (way + 1) * count]
                following += one(e.add(index, i64(way * size)), *own)
            return following

        even = b.and_(loop.extent, i64(-size * ways))

        def together() -> Values:
            results = e.loop(
                i64(0), even, several, carried + fold.neutral * (ways - 1),
                step=size * ways, unroll=False, name="ways",
            )  # fmt: skip
            return self._merged(results, count, fold)

        results = e.branch(b.icmp_signed(">", even, i64(0)), together, lambda: carried)
        whole = b.and_(loop.extent, i64(-size))
        results = e.loop(even, whole, one, results, step=size, unroll=False, name="rest")
        return self._tail(loop, places, fold, whole, results) if size > 1 else results

    def _merged(self, results: Values, count: int, fold: _Fold) -> Values:
        """One result, of ``count`` values, out of several."""
        while len(results) > count:
            half = len(results) // count // 2 * count
            pairs = [
                (results[k : k + count], results[k + half : k + half + count])
                for k in range(0, half, count)
            ]
            results = tuple(value for pair in pairs for value in fold.merge(self.e, *pair))
        return results

    def _tail(
        self,
        loop: OpenLoop,
        places: Sequence[ir.Value],
        fold: _Fold,
        whole: ir.Value,
        carried: Values,
    ) -> Values:
        """What whole vectors leave of the innermost loop, under a mask."""
        b = self.e.b
        left = b.sub(loop.extent, whole)

        def run() -> Values:
            point = self._at(moved(self.e, places, whole, loop.strides), whole, left)
            point._mask = self._on.mask
            results = fold.step(point, *carried)
            return tuple(
                b.select(self._on.mask, new, old) for new, old in zip(results, carried, strict=True)
            )

        return self.e.branch(b.icmp_signed(">", left, i64(0)), run, lambda: carried)

    def _at(
        self, places: Sequence[ir.Value], index: ir.Value, left: ir.Value | None = None
    ) -> OpenPoint:
        return OpenPoint(self._on, places, self._left if left is None else left, index)
