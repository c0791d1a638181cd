"""Emits the loops of a nest: work items, and the body for each combination of ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from llvmlite import ir

from dnnl.codegen.ir.builder import I1, I64, Values, i64
from dnnl.codegen.memory.access import Bound, Env, Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.loop_order import Loop
from dnnl.codegen.nest.loop_splitting import Range, cut
from dnnl.codegen.nest.point import Body, Point
from dnnl.codegen.nest.predicates import Site
from dnnl.codegen.nest.shared_square_writer import SharedSquareWriter
from dnnl.codegen.nest.shared_squares import SharedSquares
from dnnl.codegen.nest.square_writer import SquareWriter
from dnnl.codegen.nest.work_items import Items
from dnnl.types.size import is_known, surely_divides, surely_equal

_Cuts = tuple[tuple[Axis, tuple[Range, ...]], ...]


class Writer:
    """Emits the loops around ``body``.

    ``copied`` is an operand that the body stores to dst unchanged, if it does nothing else.
    ``any_length`` is that of a nest.
    """

    def __init__(
        self, site: Site, body: Body, copied: Operand | None, *, any_length: bool = False
    ) -> None:
        plan = site.plan
        self.e, self._site, self._loops, self._body = site.e, site, plan.loops, body
        self._squares: SquareWriter | SharedSquareWriter | None = None
        if isinstance(plan.squares, SharedSquares):
            self._squares = SharedSquareWriter(site, plan.squares, body)
        elif plan.squares is not None:
            self._squares = SquareWriter(site, plan.squares, body, copied)
        self._bounds = plan.bounds
        taps = prod(axis.extent for axis in plan.space.inner)
        axes = [loop.axis for loop in plan.loops]
        bounds, lane = plan.bounds, plan.vectors.lane
        self._variants = cut(axes, bounds, plan.columns, taps, lane, any_length=any_length)

    def item(self, item: ir.Value, items: Items) -> None:
        """Emit one work item: decode its number into the outer loops, run the inner ones."""
        if surely_equal(items.chunk, 1):
            self._item(item, items)
            return
        *outer, loop = self._loops[: items.whole]
        count = self.e.number(loop.count)
        whole = self.e.number(loop.count * prod(loop.count for loop in outer))
        first = self.e.mul(item, items.chunk)
        last = self.e.smaller(self.e.add(first, self.e.number(items.chunk)), whole)

        def row(number: ir.Value, *place: ir.Value) -> Values:
            """The iterations of one row of the innermost loop that are in the chunk."""
            steps = zip(outer, place, strict=True)
            env = {loop.axis: self.e.mul(at, loop.step) for loop, at in steps}
            before = self.e.b.mul(number, count)
            begin = self.e.larger(self.e.b.sub(first, before), i64(0))
            end = self.e.smaller(self.e.b.sub(last, before), count)
            self._walk(env, list(self._loops[items.whole - 1 :]), (begin, end))
            return self._next(outer, place)

        if not outer:
            self._walk({}, list(self._loops), (first, last))
            return
        number = self.e.b.udiv(first, count)
        rows = self.e.b.udiv(self.e.add(last, self.e.add(count, i64(-1))), count)
        place = tuple(at for _, at in self._decoded(number, outer))[::-1]
        self.e.loop(number, rows, row, place, unroll=False, name="row")

    def _decoded(self, number: ir.Value, loops: Sequence[Loop]) -> Iterator[tuple[Loop, ir.Value]]:
        """The iteration of each loop in iteration ``number`` of all, innermost first."""
        for loop in reversed(loops):
            count = self.e.number(loop.count)
            yield loop, self.e.b.urem(number, count)
            number = self.e.b.udiv(number, count)

    def _next(self, loops: Sequence[Loop], place: Values) -> Values:
        """The iteration behind ``place``, without the divisions of its number."""
        b, following, carry = self.e.b, [], ir.Constant(I1, 1)
        for loop, at in zip(reversed(loops), reversed(place), strict=True):
            more = self.e.add(at, b.zext(carry, I64))
            over = b.icmp_signed("==", more, self.e.number(loop.count))
            following.append(b.select(over, i64(0), more))
            carry = over
        return tuple(reversed(following))

    def _item(self, item: ir.Value, items: Items) -> None:
        """Emit the iterations with one number."""
        b, loops = self.e.b, self._loops
        env: Env = {}
        rest = item
        chunk: tuple[ir.Value, ir.Value] | None = None
        if items.step:
            loop = loops[items.whole]
            chunks = self.e.number(-(-loop.count // items.step))
            first = self.e.mul(b.urem(rest, chunks), items.step)
            rest = b.udiv(rest, chunks)
            last = b.add(first, self.e.number(items.step))
            chunk = first, self.e.smaller(last, self.e.number(loop.count))
        for loop, place in self._decoded(rest, loops[: items.whole]):
            env[loop.axis] = self.e.mul(place, loop.step)
        self._walk(env, list(loops[items.whole :]), chunk)

    def _walk(
        self,
        env: Env,
        loops: list[Loop],
        chunk: tuple[ir.Value, ir.Value] | None = None,
        cuts: _Cuts | None = None,
        known: dict[Bound, bool] | None = None,
    ) -> None:
        """Emit the ``loops``. Ranges whose ends only the execution knows are chosen outside of
        those that do not matter."""
        cuts = tuple(self._variants.ranges.items()) if cuts is None else cuts
        known = known or {}
        if not loops:
            self._choose(env, cuts, known, self._point)
            return
        settled = env.keys() - {loop.axis for loop in loops}
        here = tuple(cut for cut in cuts if cut[0] in settled and not _are_known(cut[1]))
        if here:
            rest = tuple(cut for cut in cuts if cut not in here)
            self._choose(
                env, here, known, lambda env, known: self._walk(env, loops, chunk, rest, known)
            )
            return
        loop = loops[0]
        begin, end = chunk if chunk else (i64(0), self._trips(env, loop))
        for part in self._parts(loop, loops[1:], cuts):
            rest = tuple(cut for cut in cuts if part is None or cut[0] is not loop.axis)
            self._loop(env, loops, (begin, end), part, rest, known)

    def _parts(
        self, loop: Loop, inner: Sequence[Loop], cuts: _Cuts
    ) -> tuple[Range, ...] | tuple[None]:
        """The ranges of the axis of a loop that have loops of their own: those whose ends only the
        execution knows, if no other loop walks the axis. LLVM splits loops at constants alone."""
        ranges = next((own for axis, own in cuts if axis is loop.axis), ())
        alone = loop.step == 1 and all(other.axis is not loop.axis for other in inner)
        return ranges if ranges and alone and not _are_known(ranges) else (None,)

    def _loop(
        self,
        env: Env,
        loops: list[Loop],
        ends: tuple[ir.Value, ir.Value],
        part: Range | None,
        cuts: _Cuts,
        known: dict[Bound, bool],
    ) -> None:
        """Emit the first loop, in ``part`` of it."""
        loop, (begin, end) = loops[0], ends
        start = env[loop.axis] if loop.within else i64(0)
        if part is not None:
            if not surely_equal(part.begin, 0):
                begin = self.e.larger(begin, self._behind(start, part.begin))
            if not surely_equal(part.end, loop.axis.extent):
                end = self.e.smaller(end, self._behind(start, part.end))
            known = {**known, **part.known}

        def body(index: ir.Value) -> None:
            here = self.e.add(start, self.e.mul(index, loop.step))
            self._walk({**env, loop.axis: here}, loops[1:], None, cuts, known)

        self.e.loop(begin, end, body, name=loop.axis.name)

    def _behind(self, start: ir.Value, place: int) -> ir.Value:
        """How far a place of an axis is behind ``start``."""
        number = self.e.number(place)
        return number if isinstance(start, ir.Constant) else self.e.b.sub(number, start)

    def _trips(self, env: Env, loop: Loop) -> ir.Value:
        """The trip count of a loop, which may be smaller in the last block of its axis."""
        if not loop.within or surely_divides(loop.within, loop.axis.extent):
            return self.e.number(loop.count)
        left = self.e.b.sub(self.e.number(loop.axis.extent), env[loop.axis])
        return self.e.smaller(left, i64(loop.within))

    def _choose(
        self,
        env: Env,
        cuts: _Cuts,
        known: dict[Bound, bool],
        then: Callable[[Env, dict[Bound, bool]], None],
    ) -> None:
        """Emit ``then`` for each combination of ranges."""
        if not cuts:
            then(env, known)
            return
        axis, ranges = cuts[0]
        self._ranges(env, axis, ranges, cuts[1:], known, then)

    def _ranges(
        self,
        env: Env,
        axis: Axis,
        ranges: tuple[Range, ...],
        cuts: _Cuts,
        known: dict[Bound, bool],
        then: Callable[[Env, dict[Bound, bool]], None],
    ) -> None:
        first, *others = ranges

        def here() -> Values:
            only = surely_equal(first.end - first.begin, 1)
            inside = {**env, axis: self.e.number(first.begin)} if only else env
            self._choose(inside, cuts, {**known, **first.known}, then)
            return ()

        def behind() -> Values:
            self._ranges(env, axis, tuple(others), cuts, known, then)
            return ()

        if others:
            end = self.e.number(first.end)
            self.e.branch(self.e.b.icmp_signed("<", env[axis], end), here, behind)
        else:
            here()

    def _point(self, env: Env, known: dict[Bound, bool]) -> None:
        """Test bounds that skip a point entirely, then emit it."""
        tested = self._variants.tested
        gates = [b for b in tested if b in self._site.plan.space.exists and b.form.within(env)]
        if not gates:
            self._settled(env, known, tested)
            return

        def exists() -> Values:
            others = [bound for bound in tested if bound not in gates]
            self._settled(env, {**known, **dict.fromkeys(gates, True)}, others)
            return ()

        self.e.branch(self._inside(env, gates), exists, lambda: ())

    def _settled(self, env: Env, known: dict[Bound, bool], tested: Sequence[Bound]) -> None:
        """Emit a point, with an unmasked variant for where all of ``tested`` hold."""
        settled = {**known, **dict.fromkeys(tested, True)}
        masked = any(not settled.get(bound) for bound in self._bounds)

        def run(masked: bool, known: dict[Bound, bool]) -> Values:
            if self._squares is None:
                self._body(Point(self._site, env, masked, {}, known))
            else:
                self._squares.write(env, masked, known)
            return ()

        if tested:
            inside = self._inside(env, tested)
            self.e.branch(inside, lambda: run(masked, settled), lambda: run(True, known))
        else:
            run(masked, known)

    def _inside(self, env: Env, bounds: Sequence[Bound]) -> ir.Value:
        """Whether all bounds hold for all values of the axes that are not in ``env``."""
        b = self.e.b
        result: ir.Value = ir.Constant(I1, 1)
        for bound in bounds:
            base = bound.form.along(env).emit(self.e, env)
            rest = Affine({a: s for a, s in bound.form.strides.items() if a not in env})
            if bound.above:
                top = self.e.add(base, self.e.number(rest.high))
                result = b.and_(result, b.icmp_signed("<", top, self.e.number(bound.limit)))
            if bound.below_zero:
                bottom = self.e.add(base, self.e.number(rest.low))
                result = b.and_(result, b.icmp_signed(">=", bottom, i64(0)))
        return result


def _are_known(ranges: Sequence[Range]) -> bool:
    return all(is_known(part.begin) and is_known(part.end) for part in ranges)
