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
from dnnl.kernels.product.unit.tiles import UnitTile


@dataclass(frozen=True, eq=False)
class KBlocks:
    """Either one block for each iteration of the axes ``cut``, or blocks of ``steps`` iterations of
    the outermost loop of ``line``; with 0 steps one block has all of K. There are ``count``."""

    cut: tuple[Axis, ...]
    line: list[Level]
    steps: int
    count: int

    @staticmethod
    def of(problem: Product, walk: Walk, sums: Sums, unit: UnitTile | None) -> KBlocks:
        """The blocks that ``problem`` asks for."""
        axes = (*problem.around, *problem.inside)
        line = sums.merged([walk.level(axis) for axis in axes])
        whole = KBlocks(problem.cut, line, 0, prod(axis.extent for axis in problem.cut))
        wanted = problem.blocking.steps
        assert not (wanted and problem.cut), "sums are cut along axes, or in steps"
        if not wanted:
            return whole
        steps, count = max(1, wanted // whole.k_groups_per_step), line[0].count or 0
        k_groups = (
            1 if problem.packing is None else problem.packing.least_k_groups(problem.multiply)
        )
        multiple = lcm(k_groups, whole.k_groups_per_step) // whole.k_groups_per_step
        if unit is not None and len(line) == 1:
            multiple, count = lcm(multiple, unit.line.block), unit.line.blocked
        steps = max(1, steps // multiple) * multiple
        return KBlocks((), line, steps, -(-count // steps)) if steps < count else whole

    @property
    def k_groups_per_step(self) -> int:
        """The number of K groups in one step of the outermost level of the line."""
        return prod(level.count or 1 for level in self.line[1:])

    @property
    def k_groups(self) -> int:
        """The number of K groups in a block of the line; 0 means all."""
        return self.steps * self.k_groups_per_step

    def env(self, e: Emitter, block: Value) -> Env:
        """The values of the axes ``cut`` in a block."""
        return decode(e, block, self.cut) if self.cut else {}

    def is_first(self, e: Emitter, block: Value) -> Value:
        """Whether nothing has been summed before."""
        return e.b.icmp_signed("==", block, i64(0))

    def is_last(self, e: Emitter, block: Value) -> Value:
        """Whether the sums are complete behind it."""
        return e.b.icmp_signed("==", block, i64(self.count - 1))

    def levels(self, e: Emitter, block: Value, levels: Sequence[Level]) -> list[Level]:
        """The part of ``levels`` that a block of the line computes."""
        outer, *rest = levels
        begin = e.mul(block, self.steps)
        end = e.smaller(e.add(begin, i64(self.steps)), outer.end)
        return [replace(outer, begin=begin, end=end), *rest]
