"""A point of a loop nest, as the body of a kernel sees it: a place that can fold over loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from llvmlite import ir

from dnnl.codegen import vector
from dnnl.codegen.access import Bound, Env, Number, Operand, Place
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.builder import I32, Emitter, Values, i64
from dnnl.codegen.schedule import Schedule

Body = Callable[["Point"], None]
Step = Callable[..., Values]
Merge = Callable[[Emitter, Values, Values], Values]
# Results that a long reduction keeps apart until its end.
_WAYS = 4


def added(e: Emitter, a: Values, b: Values) -> Values:
    """The merger of sums."""
    return tuple(e.b.fadd(x, y) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True, eq=False)
class Site:
    """Where the code of a nest is written: by whom, after which plan, on which tensors.

    Whole vectors of the outputs ``streamed`` are written by non-temporal stores.
    """

    e: Emitter
    plan: Schedule
    pointers: Mapping[Operand, ir.Value]
    core: ir.Type
    reads_dst: bool
    streamed: tuple[Operand, ...] = ()


@dataclass(frozen=True, eq=False)
class _Fold:
    """A reduction: its step, how two results become one, and what each starts from."""

    step: Step
    merge: Merge
    init: Values


@dataclass(frozen=True, eq=False)
class _Span:
    """A part of a fold's loop, in which some bounds are known to hold."""

    begin: ir.Value
    end: ir.Value
    known: dict[Bound, bool]


class Point(Place):
    """One vector of the iteration space, as the body of a nest sees it.

    ``e`` writes instructions. Besides loading and storing, a point can fold over the reduced axes.
    """

    def __init__(
        self,
        site: Site,
        env: Env,
        masked: bool,
        loaded: dict[Operand, ir.Value],
        known: dict[Bound, bool],
        *,
        along: Axis | None = None,
    ) -> None:
        space, vectors = site.plan.space, site.plan.vectors
        lane, lanes = (vectors.lane, vectors.lanes) if along is None else (along, along.extent)
        super().__init__(
            site.e, site.pointers, space.accesses, env, lane, lanes,
            masked=masked, domain=space.domain, exists=space.exists,
            streamed=site.streamed, core=site.core, known=known,
        )  # fmt: skip
        self._site, self._loaded = site, loaded

    def load(self, operand: Operand) -> ir.Value:
        """The operand's elements here in the core type; zero, or any number, outside bounds."""
        loaded = self._loaded.get(operand)
        return super().load(operand) if loaded is None else self.widen(operand, loaded)

    def form_of(self, number: Number) -> Affine:
        """A number as it follows from the axes that are walked."""
        return self._site.plan.space.numbers[number]

    def number(self, number: Number) -> ir.Value:
        """A number that follows from the iteration, in the core type."""
        kind = self.kind
        start, step = self.counted(self.form_of(number))
        first = self.e.b.trunc(start, I32)
        steps = ir.Constant(
            vector.vector_type(I32, kind.count), [step * lane for lane in range(kind.count)]
        )
        every = self.e.b.add(vector.splat(self.e, first, kind.count), steps)
        return every if kind.element == I32 else self.e.b.sitofp(every, kind)

    def _bounded(self, form: Affine) -> ir.Value:
        """The value of a form in the first lane; outside of a fold, in its first iteration."""
        ahead = [axis for axis in self._site.plan.space.inner if axis not in self._env]
        return super()._bounded(form.without(*ahead))

    def fold(self, init: Sequence[float], step: Step, merge: Merge) -> Values:
        """Run ``step(point, *values) -> values`` over the reduced axes, starting from ``init``.

        Iterations outside a source's window are skipped. ``merge(e, values, others)`` combines two
        partial results, for when the lanes of a vector are themselves reduced; every lane of the
        result then holds the answer.
        """
        carried = tuple(self.constant(value) for value in init)
        fold = _Fold(step, merge, carried)
        result = self._first()._loops(self._open, fold, carried)
        if not self._site.plan.vectors.reduced:
            return result
        distance = self._lanes // 2
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
        self._first()._loops(self._open, fold, ())

    def outermost(self, body: Body, count: int | None = None) -> None:
        """Run ``body`` for each iteration of the outermost reduced axis, or the first ``count``,
        in order; what is folded there goes over the other reduced axes.

        The outermost one is that along which steps are longest.
        """
        axis = self._open[0]

        def step(index: ir.Value) -> None:
            body(self._with({axis: index}))

        end = axis.extent if count is None else count
        self.e.loop(i64(0), i64(end), step, name=axis.name)

    @property
    def _open(self) -> list[Axis]:
        """The reduced axes that have no value yet, the outermost first."""
        return [axis for axis in self._site.plan.space.inner if axis not in self._env]

    def _first(self) -> Point:
        """Where a fold starts: with masks if its only vector is a tail."""
        loop = self._site.plan.vectors.loop
        only = loop is not None and loop.extent == 1
        return self._with({}, masked=True) if self._site.plan.tails and only else self

    def _loops(self, axes: list[Axis], fold: _Fold, carried: Values) -> Values:
        plan = self._site.plan
        if not axes:
            return self._step(fold.step, carried)
        axis = axes[0]
        tails = plan.tails if axis is plan.vectors.loop else ()
        if not tails:
            return self._loop(axes, axis.extent, fold, carried)
        whole = min(bound.limit // plan.vectors.lanes for bound in tails)
        carried = self._loop(axes, whole, fold, carried)
        if whole == axis.extent:
            return carried
        tail = self._with({axis: i64(whole)}, masked=True)
        carried = tail._loops(axes[1:], fold, carried)
        if not carried:
            self._padding(axes, whole + 1, fold)
        return carried

    def _padding(self, axes: list[Axis], begin: int, fold: _Fold) -> None:
        """The vectors behind the end of the vector axis: they hold no value that counts, but what
        is stored there is padding."""
        axis, *rest = axes

        def body(index: ir.Value) -> None:
            self._with({axis: index}, masked=True)._loops(rest, fold, ())

        if begin < axis.extent:
            self.e.loop(i64(begin), i64(axis.extent), body, name=axis.name)

    def _loop(self, axes: list[Axis], extent: int, fold: _Fold, carried: Values) -> Values:
        """The first ``extent`` iterations of the outermost of ``axes``.

        If it is the innermost as well and long, several iterations are done at a time with results
        of their own, so that none waits for the one before.
        """
        axis, *rest = axes
        span = self._span(axis) if carried else None
        if span is not None:
            return self._within_span(axes, span, fold, carried)
        ways = self._ways
        if rest or extent < 2 * ways:
            ways = 1
        count = len(carried)

        def body(index: ir.Value, *values: ir.Value) -> Values:
            following: Values = ()
            for way in range(ways):
                point = self._with({axis: self.e.add(index, i64(way))})
                own = values[way * count : (way + 1) * count]
                following += point._loops(rest, fold, own)
            return following

        even = extent - extent % ways
        results = carried + fold.init * (ways - 1)
        results = self.e.loop(i64(0), i64(even), body, results, step=ways, name=axis.name)
        for index in range(even, extent):
            first = (index - even) * count
            point = self._with({axis: i64(index)})
            own = point._loops(rest, fold, results[first : first + count])
            results = (*results[:first], *own, *results[first + count :])
        while len(results) > count:
            half = len(results) // count // 2 * count
            pairs = [
                (results[k : k + count], results[k + half : k + half + count])
                for k in range(0, half, count)
            ]
            results = tuple(value for a, b in pairs for value in fold.merge(self.e, a, b))
        return results

    def _span(self, axis: Axis) -> _Span | None:
        """The iterations of a fold along ``axis`` that count for every lane: of a window that hangs
        over an edge, those inside. None where all count, or where lanes differ."""
        if not self.masked:
            return None
        later = {other for other in self._site.plan.space.inner if other not in self._env}
        apart = (later - {axis}) | {self._lane}
        found = [
            bound
            for bound in self._fold_bounds()
            if bound not in self._known
            and bound.form.stride(axis) == 1
            and apart.isdisjoint(bound.form.strides)
        ]
        begin, end = i64(0), i64(axis.extent)
        for bound in found:
            before = self.e.mul(self._start(bound.form.without(axis)), -1)
            begin = self.e.larger(begin, before) if bound.below_zero else begin
            behind = self.e.add(before, i64(bound.limit))
            end = self.e.smaller(end, behind) if bound.above else end
        return _Span(begin, end, dict.fromkeys(found, True)) if found else None

    def _within_span(self, axes: list[Axis], span: _Span, fold: _Fold, carried: Values) -> Values:
        axis, *rest = axes
        known = {**self._known, **span.known}

        def body(index: ir.Value, *values: ir.Value) -> Values:
            env = {**self._env, axis: index}
            here = Point(self._site, env, self.masked, self._loaded, known, along=self._lane)
            return here._loops(rest, fold, values)

        known_ends = isinstance(span.begin, ir.Constant) and isinstance(span.end, ir.Constant)
        return self.e.loop(span.begin, span.end, body, carried, unroll=known_ends, name=axis.name)

    def _with(self, env: Env, masked: bool | None = None) -> Point:
        masked = self.masked if masked is None else masked
        env = {**self._env, **env}
        return Point(self._site, env, masked, self._loaded, self._known, along=self._lane)

    def _step(self, step: Step, carried: Values) -> Values:
        results = step(self, *carried)
        mask = self.valid if carried else None
        if mask is None:
            return results
        return tuple(
            self.e.b.select(mask, new, old) for new, old in zip(results, carried, strict=True)
        )

    @property
    def _ways(self) -> int:
        """How many results to keep apart: fewer where a value fills several registers."""
        filled: int = self.kind.count * vector.bits(self.kind) // self.e.isa.vector_bits
        return max(1, _WAYS // max(1, filled))

    @property
    def folded(self) -> ir.Value:
        """How many iterations a fold has here, as values of the core type, which is a float."""
        plan, tails = self._site.plan, self._site.plan.tails
        unknown = [b for b in self._fold_bounds() if b not in tails and b not in self._known]
        if self.masked and unknown:

            def count(p: Point, number: ir.Value) -> Values:
                return (p.e.b.fadd(number, p.constant(1.0)),)

            return self.fold((0.0,), count, added)[0]
        number = prod(axis.extent for axis in plan.space.inner)
        if plan.vectors.reduced:
            assert plan.vectors.loop is not None
            whole = plan.vectors.loop.extent * plan.vectors.lanes
            number = number // plan.vectors.loop.extent * min([whole, *(b.limit for b in tails)])
        return self.constant(float(number))

    @property
    def valid(self) -> vector.Mask:
        """The lanes for which this iteration of a fold counts."""
        return self.conditions(self._fold_bounds())

    def _fold_bounds(self) -> list[Bound]:
        """The bounds within which an iteration of a fold counts.

        Ends of dimensions that do not move with the reduction are left out: lanes behind them are
        never stored, or stored as zero.
        """
        space, vectors = self._site.plan.space, self._site.plan.vectors
        ends = [*space.exists, *space.domain, *(end for read in space.reads for end in read.ends)]
        moving = {*space.inner, vectors.lane} if vectors.reduced else {*space.inner}
        moved = [bound for bound in ends if not moving.isdisjoint(bound.form.strides)]
        return [*moved, *(bound for read in space.reads for bound in read.inside)]
