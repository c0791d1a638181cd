"""K blocks: the parts of its sums that a work item computes one after the other, for all of its
tiles, so that the operands of a part stay in a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm, prod

from dnnl.codegen.ir.builder import Emitter, Value, i64
from dnnl.codegen.memory.access import Env
from dnnl.codegen.memory.address import Axis, decode
from dnnl.codegen.product.brgemm import Level
from dnnl.kernels.product.base.sums import Sums
from dnnl.kernels.product.loops.form import Product, Walk
from dnnl.kernels.product.loops.run_time import RunTimeRange
from dnnl.kernels.product.pack.on_the_fly import PanelBuffer, Span
from dnnl.kernels.product.unit.tiles import UnitTile
from dnnl.types.size import surely_equal


@dataclass(frozen=True, eq=False)
class KBlocks:
    """For each iteration of the axes ``cut``, blocks of ``steps`` iterations of the outermost loop
    of ``line``; with 0 steps one block has all of it. There are ``count``, or up to as many if the
    loop has a ``range``. Work items along the axis ``shared`` take them in turn, ``per_line`` for
    each iteration of ``cut``."""

    cut: tuple[Axis, ...]
    line: list[Level]
    steps: int
    count: int
    range: RunTimeRange | None = None
    shared: Axis | None = None
    per_line: int = 1

    @staticmethod
    def of(problem: Product, walk: Walk, sums: Sums, unit: UnitTile | None) -> KBlocks:
        """The blocks that ``problem`` asks for."""
        axes = (*problem.around, *problem.inside)
        line = sums.merged([walk.level(axis) for axis in axes])
        own = next((found for axis in axes if (found := problem.range_of(axis))), None)
        whole = KBlocks(problem.cut, line, 0, prod(axis.extent for axis in problem.cut), own)
        wanted = problem.blocking.steps
        if not wanted:
            return whole
        if problem.shared is not None:
            assert not problem.copies, "the next block belongs to another item"
            assert problem.packing is None, "the next block belongs to another item"
            per_line = -(-_steps_of(line, axes) // wanted)
            given = problem.cut, line, wanted, whole.count * per_line
            return KBlocks(*given, shared=problem.shared, per_line=per_line)
        assert not problem.cut, "sums are cut along axes, or in steps, unless items share blocks"
        steps, count = max(1, wanted // whole.k_groups_per_step), _steps_of(line, axes)
        k_groups = (
            1 if problem.packing is None else problem.packing.least_k_groups(problem.multiply)
        )
        multiple = lcm(k_groups, whole.k_groups_per_step) // whole.k_groups_per_step
        if unit is not None and len(line) == 1:
            multiple, count = lcm(multiple, unit.line.block), unit.line.blocked
        steps = max(1, steps // multiple) * multiple
        return KBlocks((), line, steps, -(-count // steps), own) if steps < count else whole

    @property
    def single(self) -> bool:
        """Whether one block has all of K."""
        return surely_equal(self.count, 1)

    @property
    def k_groups_per_step(self) -> int:
        """The number of K groups in one step of the outermost level of the line."""
        return prod(level.count or 1 for level in self.line[1:])

    @property
    def k_groups(self) -> int:
        """The number of K groups in a block of the line; 0 means all."""
        return self.steps * self.k_groups_per_step

    def env(self, e: Emitter, env: Env, block: Value) -> Env:
        """The values of the axes ``cut`` in a block."""
        return decode(e, self._place(e, env, block)[0], self.cut) if self.cut else {}

    def _place(self, e: Emitter, env: Env, block: Value) -> Span:
        """The iteration of the axes ``cut`` that a block of a work item belongs to, and its number
        in that."""
        if self.shared is None:
            return block, block
        block = e.add(env[self.shared], e.mul(block, e.number(self.shared.extent)))
        if not self.cut:
            return block, block
        per_line = e.number(self.per_line)
        return e.b.udiv(block, per_line), e.b.urem(block, per_line)

    def is_first(self, e: Emitter, block: Value) -> Value:
        """Whether nothing has been summed before."""
        return e.b.icmp_signed("==", block, i64(0))

    def is_last(self, e: Emitter, env: Env, block: Value) -> Value:
        """Whether the sums are complete behind it."""
        return e.b.icmp_signed("==", block, e.add(self.number(e, env), i64(-1)))

    def number(self, e: Emitter, env: Env) -> Value:
        """The number of blocks: at least one, as an empty sum has an epilogue too."""
        if self.shared is not None:
            items = e.number(self.shared.extent)
            rest = e.b.sub(e.add(e.number(self.count), items), env[self.shared])
            return e.b.udiv(e.add(rest, i64(-1)), items)
        if self.range is None or not self.steps:
            return e.number(self.count)
        whole = e.add(self.range.count(e, env), i64(self.steps - 1))
        return e.larger(i64(1), e.b.sdiv(whole, i64(self.steps)))

    def levels(self, e: Emitter, env: Env, block: Value, levels: Sequence[Level]) -> list[Level]:
        """The part of ``levels`` that a block of the line computes."""
        outer, *rest = levels
        begin, end = self._part(e, env, block, outer.end)
        return [replace(outer, begin=begin, end=end), *rest]

    def _part(self, e: Emitter, env: Env, block: Value, end: Value) -> Span:
        """The iterations of the outermost loop in a block."""
        begin = e.mul(self._place(e, env, block)[1], self.steps)
        if self.range is not None:
            first, end = self.range.span(env)
            begin = e.add(first, begin)
        return begin, e.smaller(e.add(begin, i64(self.steps)), end) if self.steps else end

    def packed(self, e: Emitter, env: Env, block: Value, buffer: PanelBuffer) -> Span:
        """The K groups that are packed for a block of the line."""
        packing, dot = buffer.packing, buffer.dot
        whole = e.number(packing.k_groups(dot))
        if self.range is not None:
            assert packing.least_k_groups(dot) == 1, "a range may begin within a square"
            return self._part(e, env, block, whole)
        begin, last = e.mul(block, self.k_groups), self.is_last(e, env, block)
        following = whole if self.single else e.add(begin, i64(self.k_groups))
        return begin, whole if self.single else e.b.select(last, whole, following)


def _steps_of(line: Sequence[Level], axes: Sequence[Axis]) -> int:
    """The steps of the outermost level of a line. Those of several axes, as of segments of sums,
    are numbers: a kernel serves one K."""
    if line[0].count is not None:
        return line[0].count
    if len(axes) == 1:
        return axes[0].extent
    steps = [int(axis.extent) for axis in axes]
    return prod(steps) if len(line) == 1 else steps[0]
