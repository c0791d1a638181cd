"""Predicates of a fold: which iterations are inside the windows of its sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llvmlite import ir

from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, i64
from dnnl.codegen.ir.work_group import WorkGroup
from dnnl.codegen.memory.access import Bound, Env, Half, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.memory.deferred_store import DeferredStores
from dnnl.codegen.memory.place import Place
from dnnl.codegen.nest.fold_loop import is_fixed
from dnnl.codegen.nest.loop_splitting import MOST_WRITTEN
from dnnl.codegen.nest.schedule import Schedule
from dnnl.types.size import is_known, larger


@dataclass(frozen=True, eq=False)
class Site:
    """Where a nest is emitted: the emitter, the schedule and the addresses of the operands.

    Whole vectors of the outputs ``streamed`` are stored non-temporally. ``group`` is the work-group
    whose items are the lanes of vectors, or share squares.
    """

    e: Emitter
    plan: Schedule
    pointers: Mapping[Operand, ir.Value]
    core: ir.Type
    reads_dst: bool
    streamed: tuple[Operand, ...] = ()
    group: WorkGroup | None = None

    def with_lines(self, env: Env) -> Env:
        """``env`` with both axes of each joined line whose position is known."""
        for line in reversed(self.plan.space.lines):
            if all(axis in env or axis.single for axis in line.form.strides):
                place = line.form.emit(self.e, env)
                outer, inner = self.e.divmod(place, line.inner.extent)
                env = {**env, line.outer: outer, line.inner: inner}
        return env


@dataclass(frozen=True, eq=False)
class Span:
    """A range of iterations, in which some bounds are known to hold."""

    begin: ir.Value
    end: ir.Value
    known: Mapping[Bound, bool]

    @property
    def fixed(self) -> bool:
        """Whether its ends are constants."""
        return is_fixed(self.begin, self.end)


class PredicatedPlace(Place):
    """A place in a nest whose folds skip the iterations outside a window."""

    def __init__(
        self,
        site: Site,
        env: Env,
        masked: bool,
        known: dict[Bound, bool],
        along: Axis | None,
        deferred: DeferredStores | None,
    ) -> None:
        space, vectors = site.plan.space, site.plan.vectors
        lane, lanes = (vectors.lane, vectors.lanes) if along is None else (along, along.extent)
        member = None
        if vectors.grouped and lane is not None:
            assert site.group is not None
            env, member = {**env, lane: site.group.member}, lane
        if lane in env:
            # A lane of its own: the place along the vector is known at run time only.
            lane, lanes = None, 1
        super().__init__(
            site.e,
            site.pointers,
            space.accesses,
            env,
            lane,
            lanes,
            masked=masked,
            domain=space.domain,
            exists=space.exists,
            streamed=site.streamed,
            core=site.core,
            known=known,
            deferred=deferred,
            member=member,
        )
        self._site = site

    @property
    def valid(self) -> vector.Mask:
        """The lanes whose iteration is part of the fold."""
        return self.conditions(self._site.plan.fold_bounds)

    @property
    def stored(self) -> vector.Mask:
        """The lanes whose results are stored: all but those past the end of an axis."""
        space = self._site.plan.space
        own = (*space.exists, *space.domain)
        return self.conditions(tuple(bound for bound in own if bound.needed))

    @property
    def _open(self) -> list[Axis]:
        """The reduced axes without a value, outermost first."""
        return [axis for axis in self._site.plan.space.inner if axis not in self._env]

    @property
    def _unknown(self) -> list[Bound]:
        """The bounds of the fold whose outcome is not known yet."""
        return [bound for bound in self._site.plan.fold_bounds if bound not in self._known]

    def _bounded(self, form: Affine) -> ir.Value:
        """The value of a form in the first lane; outside a fold, in its first iteration."""
        ahead = [axis for axis in self._site.plan.space.inner if axis not in self._env]
        return super()._bounded(form.without(*ahead))

    def _span(self, axis: Axis, extent: int) -> Span:
        """The range of a fold's first ``extent`` iterations along ``axis`` that are in the window,
        if that is the same range for all lanes; else all."""
        begin, end = i64(0), self.e.number(extent)
        if not self.masked:
            return Span(begin, end, {})
        later = {other for other in self._site.plan.space.inner if other not in self._env}
        apart = (later - {axis}) | {self._lane}
        found = [
            bound
            for bound in self._unknown
            if bound.form.stride(axis) and apart.isdisjoint(bound.form.strides)
        ]
        for bound in found:
            step, rest = bound.form.stride(axis), bound.form.without(axis)
            zero, limit = rest, rest + -bound.limit
            below = bound.below_zero and Half.of(bound, upper=False) not in self._known
            above = bound.above and Half.of(bound, upper=True) not in self._known
            if step > 0:
                # The first iterations with a form of at least zero, and of at least the limit.
                first, behind = (
                    self._quotient(form * -1 + (step - 1), step) for form in (zero, limit)
                )
                starts, ends = below, above
            else:
                # The first iterations with a form below the limit, and below zero.
                first, behind = (self._quotient(form + -step, -step) for form in (limit, zero))
                starts, ends = above, below
            begin = self.e.larger(begin, first) if starts else begin
            end = self.e.smaller(end, behind) if ends else end
        return Span(begin, end, dict.fromkeys(found, True))

    def _quotient(self, form: Affine, divisor: int) -> ir.Value:
        """The value of a form divided by a constant, rounded down."""
        if divisor == 1:
            return self._start(form)
        whole = larger(0, -(form.low // divisor))
        quotient, _ = self.e.divmod(self._start(form + whole * divisor), divisor)
        return self.e.add(quotient, self.e.number(-whole))

    def _differs(self, axis: Axis, extent: int) -> bool:
        """Whether the iterations along ``axis`` have constant masks that differ between lanes. The
        loop is then unrolled."""
        if not self.masked or not is_known(extent) or extent > MOST_WRITTEN:
            return False
        fixed = {own for own, value in self._env.items() if isinstance(value, ir.Constant)}
        fixed |= {axis} if self._lane is None else {axis, self._lane}
        moving = [bound.form for bound in self._unknown if bound.form.stride(axis)]
        return bool(moving) and all(form.within(fixed) for form in moving)
