"""A point of a loop nest as the body of a kernel sees it: a place that can fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial, reduce
from math import prod

from llvmlite import ir

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.ir import plan_numbers, vector
from dnnl.codegen.ir.builder import I32, Values, i64
from dnnl.codegen.ir.horizontal import reduce_lanes
from dnnl.codegen.memory.access import Bound, Env, Number, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.memory.deferred_store import DeferredStores
from dnnl.codegen.nest.fold_loop import ACCUMULATORS, Folding, FoldLoop, Merge, Step, added
from dnnl.codegen.nest.predicates import PredicatedPlace, Site, Span
from dnnl.types.size import is_known, smaller, surely_at_most, surely_below, surely_equal, typical

Body = Callable[["Point"], None]
# Limit of a row buffer in bytes: half of the smallest first-level caches.
ROW_BUFFER_BYTES = 16384


class Point(PredicatedPlace):
    """One vector of the iteration space, as the body of a nest sees it.

    ``e`` emits instructions. A point loads and stores operands and folds over the reduced axes.
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
        absent: float | None = None,
        deferred: DeferredStores | None = None,
    ) -> None:
        super().__init__(site, env, masked, known, along, deferred)
        self._loaded, self._absent = loaded, absent

    def load(self, operand: Operand) -> ir.Value:
        """The operand's elements in the core type; unspecified outside bounds. In iterations that a
        fold skips, the fold's ``absent`` value."""
        value = super().load(operand)
        if self._absent is None:
            return value
        fold_bounds = self._site.plan.fold_bounds
        if (
            self._absent == 0
            and operand not in self._loaded
            and self.zero_outside(operand, fold_bounds)
        ):
            return value
        return self._where_it_counts(value, self.constant(self._absent))

    def or_absent(self, compute: Callable[[Point], ir.Value]) -> ir.Value:
        """The value of ``compute(point)``; in iterations that a fold skips, the fold's ``absent``
        value."""
        if self._absent is None:
            return compute(self)
        bare = copy(self)
        bare._absent = None
        return self._where_it_counts(compute(bare), self.constant(self._absent))

    def load_stored(self, operand: Operand) -> ir.Value:
        """The operand's elements in their stored type."""
        loaded = self._loaded.get(operand)
        return super().load_stored(operand) if loaded is None else loaded

    def load_run(self, operand: Operand, count: int) -> ir.Value:
        """``count`` consecutive elements in their stored type from that of the first lane on. All
        exist, and the first is at a multiple of their size."""
        element = storage(operand.data_type, self.kind.element).element
        place = self._base(self._site.plan.accesses[operand])
        where = self.e.element(self.address(operand), place, element)
        align = count * operand.desc.data_type.size
        return self.e.b.load(where, typ=vector.vector_type(element, count), align=align)

    def is_uniform(self, operand: Operand) -> bool:
        """Whether all lanes read the same element. Operands of a square have been transposed into
        vectors, so they do not, whatever their layout."""
        return operand not in self._loaded and super().is_uniform(operand)

    def _where_it_counts(self, value: ir.Value, other: ir.Value) -> ir.Value:
        """``value`` in the lanes whose iteration is part of the fold, else ``other``."""
        mask = self.valid
        return value if mask is None else self.e.b.select(mask, value, other)

    def form_of(self, number: Number) -> Affine:
        """The form of a number over the axes of the schedule."""
        return self._site.plan.space.numbers[number]

    def number(self, number: Number) -> ir.Value:
        """The value of a `Number` of the nest, in the core type."""
        kind = self.kind
        start, step = self.start_and_step(self.form_of(number))
        first = self.e.b.trunc(start, I32)
        steps = ir.Constant(
            vector.vector_type(I32, kind.count), [step * lane for lane in range(kind.count)]
        )
        every = self.e.b.add(vector.splat(self.e, first, kind.count), steps)
        return every if kind.element == I32 else self.e.b.sitofp(every, kind)

    def fold(
        self,
        init: Sequence[float],
        step: Step,
        merge: Merge,
        absent: float | None = None,
        element: ir.Type | None = None,
    ) -> Values:
        """Run ``step(point, *values) -> values`` over the reduced axes, starting from ``init``.

        Values are vectors of the core type, or of ``element``. Iterations outside a source's window
        are skipped. With ``absent``, every operand loads that value there; a step that uses only
        loads must then leave the values unchanged. Without it, a select after each step keeps the
        old values. ``merge(e, values, others)`` combines two partial results; if the lanes
        themselves are reduced, every lane of the result has the answer.
        """
        kind = self.kind if element is None else vector.vector_type(element, self.kind.count)
        carried = tuple(vector.splat_constant(kind, value) for value in init)
        fold = Folding(step, merge, carried)
        result = self._first()._with({}, absent=absent)._loops(self._open, fold, carried)
        if not self._site.plan.vectors.reduced:
            return result
        group = self._site.group
        return reduce_lanes(self.e, result, merge) if group is None else group.reduce(result, merge)

    def scan(self, init: Sequence[float], step: Step, element: ir.Type | None = None) -> Values:
        """Run ``step(point, *values) -> values`` over the reduced axes in order; it may store.

        Values are vectors as those of :meth:`fold`. Where the lanes themselves are reduced, a step
        has as many neighbouring iterations as lanes: it gives the values behind the last of them.
        """
        kind = self.kind if element is None else vector.vector_type(element, self.kind.count)
        carried = tuple(vector.splat_constant(kind, value) for value in init)
        fold = Folding(step, lambda _e, values, _others: values, carried, ordered=True)
        return self._first()._loops(self._open, fold, carried)

    @property
    def along_lanes(self) -> bool:
        """Whether the lanes of a vector are reduced."""
        return self._site.plan.vectors.reduced

    def row_buffer(self) -> ir.Value | None:
        """A buffer with one vector for each iteration of the reduced axes, for `buffer_store`. None
        if it would exceed `ROW_BUFFER_BYTES`, or where each of many work items would need one."""
        size = vector.bits(self.kind) // 8
        if self._iterations * size > ROW_BUFFER_BYTES or self.e.isa.many_items:
            return None
        with self.e.b.goto_entry_block():
            count = self._iterations if is_known(self._iterations) else ROW_BUFFER_BYTES // size
            return self.e.b.alloca(self.kind, count)

    def buffer_store(self, row_buffer: ir.Value, value: ir.Value) -> None:
        """Save the value of this iteration for a later pass over the reduced axes."""
        self.e.b.store(value, self._place_in(row_buffer))

    def buffer_load(self, row_buffer: ir.Value) -> ir.Value:
        """The value that an earlier pass saved in this iteration; unspecified if it skipped it."""
        return self.e.b.load(self._place_in(row_buffer), typ=self.kind)

    def _place_in(self, row_buffer: ir.Value) -> ir.Value:
        index: ir.Value = i64(0)
        for axis in self._site.plan.space.inner:
            index = self.e.add(self.e.mul(index, axis.extent), self._env[axis])
        return self.e.b.gep(row_buffer, [index], source_etype=self.kind)

    @property
    def _iterations(self) -> int:
        return prod(axis.extent for axis in self._site.plan.space.inner)

    def each(self, body: Body) -> None:
        """Run ``body`` over the reduced axes."""

        def step(point: Point) -> Values:
            body(point)
            return ()

        fold = Folding(step, lambda _e, _values, _others: (), ())
        self._first()._loops(self._open, fold, ())

    def outermost(self, body: Body, count: int | None = None) -> None:
        """Run ``body`` for each iteration of the outermost reduced axis, or the first ``count``, in
        order. Folds inside the body cover the other reduced axes.

        The outermost axis is the one with the longest stride.
        """
        axis = self._open[0]

        def step(index: ir.Value) -> None:
            body(self._with({axis: index}))

        end = axis.extent if count is None else count
        self.e.loop(i64(0), self.e.number(end), step, name=axis.name)

    def at(self, indices: Mapping[Axis, ir.Value]) -> Point:
        """The point where the ``indirect`` axes have these values: i64 scalars or vectors with one
        for each lane. They must be in range."""
        env: Env = {}
        for axis, value in indices.items():
            rest, pieces = value, self._site.plan.space.indirect[axis].strides
            for piece, step in sorted(pieces.items(), key=lambda pair: -pair[1]):
                size = plan_numbers.like(self.e, rest, step)
                env[piece] = rest if step == 1 else self.e.b.udiv(rest, size)
                rest = rest if step == 1 else self.e.b.urem(rest, size)
        return self._with(env)

    def _first(self) -> Point:
        """The point at which a fold starts; masked if its only vector is a tail."""
        loop = self._site.plan.vectors.loop
        only = loop is not None and loop.single
        return self._with({}, masked=True) if self._site.plan.tails and only else self

    def _loops(self, axes: list[Axis], fold: Folding, carried: Values) -> Values:
        plan = self._site.plan
        if not axes:
            return self._step(fold.step, carried)
        axis = axes[0]
        tails = plan.tails if axis is plan.vectors.loop else ()
        if not tails:
            return self._loop(axes, axis.extent, fold, carried)
        whole = reduce(smaller, (bound.limit // plan.vectors.lanes for bound in tails))
        carried = self._loop(axes, whole, fold, carried)
        if surely_equal(whole, axis.extent):
            return carried
        carried = self._tail(axes, whole, fold, carried)
        if not carried:
            self._padding(axes, whole + 1, fold)
        return carried

    def _tail(self, axes: list[Axis], whole: int, fold: Folding, carried: Values) -> Values:
        """The vector behind the whole ones; where only the execution knows, there may be none."""
        tail = self._with({axes[0]: self.e.number(whole)}, masked=True)
        if surely_below(whole, axes[0].extent):
            return tail._loops(axes[1:], fold, carried)
        here = self.e.number(whole), self.e.number(axes[0].extent)
        return self.e.branch(
            self.e.b.icmp_signed("<", *here),
            lambda: tail._loops(axes[1:], fold, carried),
            lambda: carried,
        )

    def _padding(self, axes: list[Axis], begin: int, fold: Folding) -> None:
        """Store padding: the vectors past the end of the vector axis."""
        axis, *rest = axes

        def body(index: ir.Value) -> None:
            self._with({axis: index}, masked=True)._loops(rest, fold, ())

        if not surely_at_most(axis.extent, begin):
            ends = self.e.number(begin), self.e.number(axis.extent)
            self.e.loop(*ends, body, name=axis.name)

    def _loop(self, axes: list[Axis], extent: int, fold: Folding, carried: Values) -> Values:
        """The first ``extent`` iterations of the outermost of ``axes``.

        If it is also the innermost one and long, it is unrolled with several accumulators.
        """
        axis, *rest = axes
        if not (carried or rest) and axis is self._site.plan.vectors.loop:
            self._unrolled_vectors(axis, extent, fold)
            return ()
        span = self._span(axis, extent) if carried else Span(i64(0), self.e.number(extent), {})
        inside = self._with({}, known=span.known)
        accumulators = self._accumulators
        short = typical(extent) < 2 * (ACCUMULATORS if span.known else accumulators)
        if rest or short or fold.ordered:
            accumulators = 1

        def one(index: ir.Value, *values: ir.Value) -> Values:
            return inside._with({axis: index})._loops(rest, fold, values)

        terms = prod(other.typical for other in rest)
        most = extent if is_known(extent) else None
        unrolled = bool(carried) and span.fixed and inside._differs(axis, extent)
        loop = FoldLoop(
            fold, accumulators, most=most, terms=terms, unrolled=unrolled, name=axis.name
        )
        return loop.run(self.e, span.begin, span.end, one, carried)

    def _unrolled_vectors(self, axis: Axis, extent: int, fold: Folding) -> None:
        """The first ``extent`` iterations along the vector axis, without accumulators. Unrolled
        by the number of vectors that are best converted at once; remainders by smaller powers of
        two."""
        plan = self._site.plan

        def some(count: int, index: ir.Value) -> None:
            deferred = DeferredStores(count, plan.grouped)
            for number in range(count):
                place = {axis: self.e.add(index, i64(number))}
                self._with(place, deferred=deferred)._step(fold.step, ())
            deferred.flush()

        begin, count = 0, plan.conversion_group
        while count:
            end = extent - (extent - begin) % count
            several = partial(some, count)
            ends = self.e.number(begin), self.e.number(end)
            self.e.loop(*ends, several, step=count, name=axis.name)
            begin, count = end, count // 2

    def _with(
        self,
        env: Env,
        masked: bool | None = None,
        known: Mapping[Bound, bool] | None = None,
        absent: float | None = None,
        deferred: DeferredStores | None = None,
    ) -> Point:
        """This point with more axes fixed, more bounds known, another ``absent`` value or
        ``deferred`` stores."""
        return Point(
            self._site,
            {**self._env, **env},
            self.masked if masked is None else masked,
            self._loaded,
            {**self._known, **known} if known else self._known,
            along=self._lane,
            absent=self._absent if absent is None else absent,
            deferred=self._deferred if deferred is None else deferred,
        )

    def _step(self, step: Step, carried: Values) -> Values:
        mask = self.valid if carried else None
        if vector.is_empty(mask):
            return carried
        results = step(self, *carried)
        if mask is None or self._absent is not None:
            return results
        return tuple(
            self.e.b.select(mask, new, old) for new, old in zip(results, carried, strict=True)
        )

    @property
    def _accumulators(self) -> int:
        """The number of accumulators: fewer if a value spans several registers."""
        filled: int = self.kind.count * vector.bits(self.kind) // self.e.isa.vector_bits
        return max(1, ACCUMULATORS // max(1, filled))

    @property
    def folded(self) -> ir.Value:
        """The number of iterations of a fold here, in the core type, which is a float."""
        plan, tails = self._site.plan, self._site.plan.tails
        unknown = [bound for bound in self._unknown if bound not in tails]
        if self.masked and unknown:
            apart = not plan.vectors.reduced and all(
                sum(axis in bound.form.strides for axis in self._open) == 1 for bound in unknown
            )
            if apart:
                return reduce(self.e.b.fmul, map(self._count, self._open))
            return self.fold((0.0,), _one_more, added)[0]
        number = prod(axis.extent for axis in self._open)
        if plan.vectors.reduced:
            assert plan.vectors.loop is not None
            whole = plan.vectors.loop.extent * plan.vectors.lanes
            folded = reduce(smaller, [whole, *(bound.limit for bound in tails)])
            number = number // plan.vectors.loop.extent * folded
        return self.real(number)

    def real(self, number: int) -> ir.Value:
        """A number of the plan in the core type, which is a float, in every lane."""
        if is_known(number):
            return self.constant(float(number))
        value = self.e.b.sitofp(self.e.number(number), self.kind.element)
        return vector.splat(self.e, value, self.kind.count)

    @property
    def divisor(self) -> ir.Value:
        """The divisor of a mean: `folded`, but at least 1."""
        return vector.maximum(self.e, self.folded, self.constant(1.0))

    def _count(self, axis: Axis) -> ir.Value:
        """The number of iterations of one reduced axis that are part of the fold. No bound may
        involve two reduced axes."""
        others = [bound for bound in self._unknown if axis not in bound.form.strides]
        here = self._with({}, known=dict.fromkeys(others, True))
        span = here._span(axis, axis.extent)
        if not span.known.keys() >= set(here._unknown):
            zero = self.constant(0.0)
            return here._loops([axis], Folding(_one_more, added, (zero,)), (zero,))[0]
        if span.fixed:
            return self.constant(float(max(0, span.end.constant - span.begin.constant)))
        count = self.e.larger(self.e.b.sub(span.end, span.begin), i64(0))
        number = self.e.b.sitofp(count, self.kind.element)
        return vector.splat(self.e, number, self.kind.count)


def _one_more(p: Point, number: ir.Value) -> Values:
    return (p.e.b.fadd(number, p.constant(1.0)),)
