"""The generator for memory-bound work: loops over layouts around a body written on vectors.

A kernel names its axes, its operands with the element that each iteration touches, and a body. The
body gets a :class:`Point`: one vector of the iteration space. It loads and stores operands, and it
may fold over the reduced axes::

    def body(point):
        (largest,) = point.fold((-inf,), lambda p, m: (maximum(p.e, p.load(src), m),), merge)
        point.store(dst, largest)

Layouts, blocks, tails, padding, transposition and work sharing are this module's business. The
body is written out several times where the shape has tails: for vectors that lie inside every
bound, and for those at the end of each axis, whose masks are then constants. Padding of the
destination is written with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

from llvmlite import ir

from dnnl.codegen import nibbles, vector
from dnnl.codegen.access import Access, Bound, Env, Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.builder import F32, I1, I64, Emitter, Module, Values, i64
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.phase import PhaseFunction
from dnnl.codegen.point import Body, Point, Site
from dnnl.codegen.schedule import Schedule, schedule
from dnnl.codegen.variants import Range, cut
from dnnl.codegen.walk import Items, Loop, share_out
from dnnl.runtime.image import Phase

# Iterations of a loop that are enough to share out over threads.
_ENOUGH = 32


@dataclass(frozen=True, eq=False)
class Nest:
    """What to compute: for every point of ``parallel``, ``body``, which may fold over ``reduced``.

    ``dst`` is the operand whose layout decides the order of the walk. Only points inside the
    bounds ``where`` are computed and stored. ``reads_dst`` says that the body reads dst as well,
    which then had better be in a cache. ``core`` is the type of the body's vectors, and
    ``registers`` how many registers one fills where these hold more than one element and what is
    converted is not transposed. ``moved`` is an operand whose elements the body stores to dst as
    they are, if it does no more.
    """

    parallel: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    operands: tuple[Operand, ...]
    dst: Operand
    body: Body
    where: tuple[Bound, ...] = ()
    reads_dst: bool = False
    core: ir.Type = F32
    registers: int = 1
    moved: Operand | None = None


def emit_nest(module: Module, symbol: str, nest: Nest) -> Phase:
    """Write the phase ``symbol``."""
    plan = _plan(module.isa, nest)
    items = Items(0, 0, 1)
    if not plan.serial:
        items = _share_out(module.isa, plan.loops, plan.work_per_point)
    return _emit(module, symbol, [(nest, plan)], items)


def shares_bytes(isa: Isa, nest: Nest) -> bool:
    """Whether vectors of a 4-bit dst share bytes, so that one work item stores it all, element by
    element."""
    return _plan(isa, nest).serial


def emit_side_by_side(module: Module, symbol: str, nests: Sequence[Nest]) -> Phase | None:
    """Write nests over parts of one destination as one phase in which they take turns, so that
    each stretch of the destination is written in one go; None, and nothing is written, if they do
    not walk alike."""
    plans = [(nest, _plan(module.isa, nest)) for nest in nests]
    if len({_outermost(nest, plan) for nest, plan in plans}) > 1:
        return None
    first = plans[0][1].loops[:1]
    if not first or first[0].count < _ENOUGH:
        return None
    points = sum(prod(loop.count for loop in plan.loops[1:]) for _, plan in plans)
    items = _share_out(module.isa, first, points * plans[0][1].work_per_point)
    return _emit(module, symbol, plans, items)


def _share_out(isa: Isa, loops: Sequence[Loop], work_per_point: int) -> Items:
    """Many items for each thread of a processor; on a device, where thousands are done side by
    side and starting one costs nothing, each point is one."""
    if isa.device is not None:
        whole = next((k for k, loop in enumerate(loops) if loop.within), len(loops))
        return Items(whole, 0, prod(loop.count for loop in loops[:whole]))
    return share_out(loops, work_per_point)


def _outermost(nest: Nest, plan: Schedule) -> tuple[int, int | None] | None:
    """The number of iterations of the first loop, and how far each goes in dst."""
    offset = plan.accesses[nest.dst].offset
    if not plan.loops:
        return None
    loop = plan.loops[0]
    return loop.count, None if offset is None else offset.stride(loop.axis) * loop.step


def _plan(isa: Isa, nest: Nest) -> Schedule:
    parts = isa.caches, nest.parallel, nest.reduced, nest.operands, nest.dst, nest.where
    lanes, _ = widths(isa, nest.core)
    if nest.dst.desc.data_type.bits == 4:
        lanes = max(lanes, 2)  # elements of one byte are stored together
    registers = nest.registers if isa.lanes > 1 else 1
    plan = schedule(lanes * registers, *parts)
    if registers > 1 and plan.tile is not None and nest.moved is None:
        plan = schedule(lanes, *parts)  # a square of longer vectors would not stay in registers
    if nest.dst.desc.data_type.bits == 4:
        plan.streamed = False
        if plan.accesses[nest.dst].byte_offset(plan.lane, plan.lanes) is None:
            plan = schedule(1, *parts)
            plan.serial = True
    plan.streamed = plan.streamed and isa.caches.steered and not nest.reads_dst
    return plan


def _emit(module: Module, symbol: str, plans: list[tuple[Nest, Schedule]], items: Items) -> Phase:
    phase = PhaseFunction.of(module, symbol, (op for nest, _ in plans for op in nest.operands))
    e = phase.e
    writers = [_Writer(e, nest, plan, phase.pointers(nest.operands)) for nest, plan in plans]

    def item(number: ir.Value) -> None:
        for writer in writers:
            writer.item(number, items)

    def run() -> Values:
        phase.each_item(items.count, item)
        return ()

    def stream() -> Values:
        for writer in writers:
            writer.site.streamed = writer.plan.streamed
        run()
        for writer in writers:
            writer.site.streamed = False
        e.b.fence("seq_cst")  # such stores are not ordered by the locks of the runtime
        return ()

    if any(plan.streamed for _, plan in plans):
        aligned = [writer.aligned() for writer in writers if writer.plan.streamed]
        e.branch(reduce(e.b.and_, aligned), stream, run)
    else:
        run()
    return phase.end(items.count)


def widths(isa: Isa, core: ir.Type) -> tuple[int, int]:
    """The lanes of a vector of ``core``, and of a 128-bit unit of its register."""
    if isa.lanes == 1:
        return 1, 1  # scalars, whatever their type
    return isa.vector_bits // vector.bits(core), 128 // vector.bits(core)


class _Writer:
    """Writes the loops of one nest."""

    def __init__(
        self, e: Emitter, nest: Nest, plan: Schedule, pointers: dict[Operand, ir.Value]
    ) -> None:
        self.e, self.nest, self.plan = e, nest, plan
        tails, self.bounds = self._sort_bounds()
        self.site = Site(e, plan, pointers, nest.dst, nest.core, tails)
        self.variants = cut([loop.axis for loop in plan.loops], self.bounds, plan.columns)

    def aligned(self) -> ir.Value:
        """Whether dst begins where a vector may be streamed to."""
        address = self.e.b.ptrtoint(self.site.pointers[self.nest.dst], I64)
        size = self.plan.lanes * self.nest.dst.desc.data_type.size
        return self.e.b.icmp_signed("==", self.e.b.and_(address, i64(size - 1)), i64(0))

    def _sort_bounds(self) -> tuple[list[Bound], list[Bound]]:
        """(bounds of the vector loop of a reduction, which are peeled; all others)."""
        plan = self.plan
        every = [*plan.domain, *plan.exists]
        every += [bound for access in plan.accesses.values() for bound in access.window]
        tails = [bound for bound in every if plan.lane_inside and self._is_tail(bound)]
        return tails, [bound for bound in every if bound not in tails and bound.needed]

    def _is_tail(self, bound: Bound) -> bool:
        """Whether the bound is the end of the vector axis and of nothing else."""
        plan = self.plan
        line = {plan.lane: 1, plan.vector: plan.lanes}
        return bound.form.const == 0 and dict(bound.form.strides) == line

    def item(self, item: ir.Value, items: Items) -> None:
        """One work item: decode its number into the outer loops, walk the inner ones."""
        b, loops = self.e.b, self.plan.loops
        env: Env = {}
        rest = item
        chunk: tuple[ir.Value, ir.Value] | None = None
        if items.step:
            loop = loops[items.whole]
            chunks = -(-loop.count // items.step)
            first = self.e.mul(b.urem(rest, i64(chunks)), items.step)
            rest = b.udiv(rest, i64(chunks))
            last = b.add(first, i64(items.step))
            chunk = first, self.e.smaller(last, i64(loop.count))
        for loop in reversed(loops[: items.whole]):
            env[loop.axis] = self.e.mul(b.urem(rest, i64(loop.count)), loop.step)
            rest = b.udiv(rest, i64(loop.count))
        self._walk(env, list(loops[items.whole :]), chunk)

    def _walk(
        self, env: Env, loops: list[Loop], chunk: tuple[ir.Value, ir.Value] | None = None
    ) -> None:
        if not loops:
            self._choose(env, list(self.variants.ranges.items()), {})
            return
        loop = loops[0]
        begin, end = chunk if chunk else (i64(0), self._trips(env, loop))

        def body(index: ir.Value) -> None:
            start = env[loop.axis] if loop.within else i64(0)
            here = self.e.add(start, self.e.mul(index, loop.step))
            self._walk({**env, loop.axis: here}, loops[1:])

        self.e.loop(begin, end, body, name=loop.axis.name)

    def _trips(self, env: Env, loop: Loop) -> ir.Value:
        """How often a loop runs: inside the last block of its axis perhaps less than elsewhere."""
        if not loop.within or loop.axis.extent % loop.within == 0:
            return i64(loop.count)
        left = self.e.b.sub(i64(loop.axis.extent), env[loop.axis])
        return self.e.smaller(left, i64(loop.within))

    def _choose(
        self, env: Env, cuts: list[tuple[Axis, tuple[Range, ...]]], known: dict[Bound, bool]
    ) -> None:
        """One point, or one square of them, written out for each combination of ranges."""
        if not cuts:
            self._point(env, known)
            return
        axis, ranges = cuts[0]
        self._ranges(env, axis, ranges, cuts[1:], known)

    def _ranges(
        self,
        env: Env,
        axis: Axis,
        ranges: tuple[Range, ...],
        cuts: list[tuple[Axis, tuple[Range, ...]]],
        known: dict[Bound, bool],
    ) -> None:
        first, *others = ranges

        def here() -> Values:
            only = first.end - first.begin == 1
            inside = {**env, axis: i64(first.begin)} if only else env
            self._choose(inside, cuts, {**known, **first.known})
            return ()

        def behind() -> Values:
            self._ranges(env, axis, tuple(others), cuts, known)
            return ()

        if others:
            self.e.branch(self.e.b.icmp_signed("<", env[axis], i64(first.end)), here, behind)
        else:
            here()

    def _point(self, env: Env, known: dict[Bound, bool]) -> None:
        """What must be tested here, is: the way without masks is for where all of it holds."""
        tested = self.variants.tested
        settled = {**known, **dict.fromkeys(tested, True)}
        masked = any(not settled.get(bound) for bound in self.bounds)

        def run(masked: bool, known: dict[Bound, bool]) -> Values:
            self._square(env, masked, known)
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
                top = self.e.add(base, i64(rest.high))
                result = b.and_(result, b.icmp_signed("<", top, i64(bound.limit)))
            if bound.below_zero:
                bottom = self.e.add(base, i64(rest.low))
                result = b.and_(result, b.icmp_signed(">=", bottom, i64(0)))
        return result

    def _square(self, env: Env, masked: bool, known: dict[Bound, bool]) -> None:
        plan, moved = self.plan, self._moved_pairs()
        if plan.tile is None:
            self.nest.body(Point(self.site, env, masked, {}, known))
            return
        squares = {
            operand: self._load_square(env, access, masked, known)
            for operand, access in plan.accesses.items()
            if operand is not self.nest.dst and plan.transposed(access)
        }
        assert plan.pieces is not None
        for k in range(plan.pieces.extent * plan.tile.extent):
            piece, column = divmod(k, plan.tile.extent)
            here = self._both({**env, plan.pieces: i64(piece), plan.tile: i64(column)})
            loaded = {operand: columns[k] for operand, columns in squares.items()}
            point = Point(self.site, here, masked, loaded, known)
            self._prefetch_dst(point)
            if moved is None:
                self.nest.body(point)
            else:
                point.store_pairs(self.nest.dst, loaded[moved])

    def _moved_pairs(self) -> Operand | None:
        """The operand in squares whose elements of 4 bits become those of dst as they are, and may
        stay two to a byte."""
        moved = self.nest.moved
        if moved is None or not self.plan.transposed(self.plan.accesses[moved]):
            return None
        four = all(op.desc.data_type.bits == 4 for op in (moved, self.nest.dst))
        return moved if four else None

    def _both(self, env: Env) -> Env:
        """``env`` with both axes of each line whose place is known."""
        for line in reversed(self.plan.lines):
            if all(axis in env or axis.extent == 1 for axis in line.form.strides):
                place = line.form.emit(self.e, env)
                outer, inner = self.e.divmod(place, line.inner.extent)
                env = {**env, line.outer: outer, line.inner: inner}
        return env

    def _load_square(
        self, env: Env, access: Access, masked: bool, known: dict[Bound, bool]
    ) -> list[ir.Value]:
        """Load a row along the tile axis for every lane, and transpose."""
        plan = self.plan
        assert plan.lane is not None
        assert plan.pieces is not None
        lane, pieces = plan.lane, plan.pieces

        self._prefetch_square(env, access)
        # Two elements of 4 bits stay together until they are in columns.
        paired = access.operand.desc.data_type.bits == 4

        def load(row: int, piece: int) -> ir.Value:
            here = self._both({**env, lane: i64(row), pieces: i64(piece)})
            point = Point(self.site, here, masked, {}, known, along=plan.tile)
            load = point.load_pairs if paired else point.load_stored
            return load(access.operand)

        def every_other(first: int) -> list[ir.Value]:
            return vector.transpose(
                self.e,
                plan.lanes // 2,
                pieces.extent,
                lambda row, piece: load(2 * row + first, piece),
            )

        if self._moved_pairs() is access.operand:
            both = zip(every_other(0), every_other(1), strict=True)
            return [pairs for two in both for pairs in nibbles.exchange(self.e, *two)]
        columns = vector.transpose(self.e, plan.lanes, pieces.extent, load)
        if paired:
            return [codes for column in columns for codes in nibbles.halves(self.e, column)]
        return columns

    def _prefetch_dst(self, point: Point) -> None:
        """Ask for what a later square overwrites."""
        dst = self.plan.accesses[self.nest.dst]
        step = self._ahead(dst) if self.nest.reads_dst else self._next_in_row(dst)
        if step:
            point.prefetch(self.nest.dst, i64(step))

    def _next_in_row(self, dst: Access) -> int:
        """How many elements behind this place the next vector of the same row will be written, if
        that is no less than two lines from the next row's and dst is not in the cache: processors
        do not follow as many rows as squares write. 0 if it need not be fetched."""
        plan = self.plan
        if self.site.streamed or dst.offset is None or plan.tile is None or plan.vector is None:
            return 0
        near = plan.far(dst, plan.tile) < 2 * LINE
        if near or dst.operand.desc.size <= self.e.isa.caches.l2:
            return 0
        return dst.offset.stride(plan.vector)

    def _ahead(self, access: Access) -> int:
        """How many elements behind this place an operand is to be fetched; 0 if it is not."""
        plan, operand = self.plan, access.operand
        if plan.ahead is None or access.offset is None or operand.desc.size <= self.e.isa.caches.l2:
            return 0
        return access.offset.stride(plan.ahead)

    def _prefetch_square(self, env: Env, access: Access) -> None:
        """Ask for the rows of a later square.

        Where that has the next parts of the same rows, a line of a row has those of several
        squares, which take turns: each asks for the lines of some rows.
        """
        plan, operand, step = self.plan, access.operand, self._ahead(access)
        assert access.offset is not None
        assert plan.lane is not None
        assert plan.pieces is not None
        turns, further = 1, i64(step)
        if plan.along is not None and plan.along is plan.ahead and step and not plan.lines:
            length = plan.columns * operand.desc.data_type.bits // 8
            turns = max(1, min(plan.lanes, LINE // length))
            _, turn = self.e.divmod(env[plan.along], turns)
            further = self.e.mul(turn, access.offset.stride(plan.lane))
            further = self.e.add(further, i64(step * turns))
        for row in range(0, plan.lanes if step else 0, turns):
            here = {**env, plan.lane: i64(row), plan.pieces: i64(plan.pieces.extent - 1)}
            point = Point(self.site, self._both(here), False, {}, {}, along=plan.tile)
            point.prefetch(operand, further)
