"""Ranges of the axes of a product that are known at execution only.

Rows in such a range are computed in tiles of the full height, then of the powers of two below it::

    29 rows, tiles of 12   |....12....|....12....|..4..|1|
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dnnl.codegen.ir.builder import Emitter, Value, i64
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import Axis
from dnnl.kernels.product.base.pixel_tiles import TileRun
from dnnl.kernels.product.pack.on_the_fly import Span
from dnnl.types.size import is_known, larger

FIRST: Value = i64(0)
Ends = Callable[[Emitter, Env, Mapping[Operand, Value]], Span]


@dataclass(frozen=True, eq=False)
class RunTimeRange:
    """The part of ``axis`` that a work item goes over, half-open and inside of the axis.

    ``ends`` computes it from the outer axes, and from ``operands`` at their addresses. An
    environment holds it as the values of ``first`` and ``past``.
    """

    axis: Axis
    operands: tuple[Operand, ...]
    ends: Ends
    first: Axis = field(default_factory=lambda: Axis(1, "first"))
    past: Axis = field(default_factory=lambda: Axis(1, "past"))

    def env(self, e: Emitter, env: Env, pointers: Mapping[Operand, Value]) -> Env:
        """The range at ``env``."""
        first, past = self.ends(e, env, pointers)
        return {self.first: first, self.past: past}

    def span(self, env: Env) -> Span:
        """The range that ``env`` holds."""
        return env[self.first], env[self.past]

    def count(self, e: Emitter, env: Env) -> Value:
        """The number of iterations; it may be negative."""
        first, past = self.span(env)
        return e.b.sub(past, first)

    def in_parts(self, e: Emitter, env: Env, size: int, part: Callable[[Env], None]) -> None:
        """Call ``part`` with the environment of each ``size`` iterations of the range; not if there
        are none."""
        first, past = self.span(env)

        def one(begin: Value) -> None:
            part({**env, self.first: begin, self.past: e.smaller(past, e.add(begin, i64(size)))})

        e.loop(first, past, one, step=size, unroll=False, name="part")

    def tiles(
        self, e: Emitter, env: Env, runs: Sequence[TileRun]
    ) -> Iterator[tuple[TileRun, Value, Value, Value]]:
        """The tiles of a range of rows (`tiles_between`)."""
        yield from tiles_between(e, *self.span(env), runs)


def tiles_between(
    e: Emitter, row: Value, past: Value, runs: Sequence[TileRun], number: Value = FIRST
) -> Iterator[tuple[TileRun, Value, Value, Value]]:
    """The tiles of the rows from ``row`` up to ``past``: each run of `run_time_tiles` with the
    numbers of its first tile and of the one behind its last, and the row at which tile 0 would
    begin. The first tile has the ``number``."""
    for run in runs:
        count, width = e.b.udiv(e.b.sub(past, row), i64(run.width)), run.width
        last = e.add(number, count)
        yield run, number, last, e.b.sub(row, e.mul(number, width))
        row, number = e.add(row, e.mul(count, width)), last


def run_time_tiles(rows: int, most: int, *, every: bool = False) -> tuple[TileRun, ...]:
    """Tiles for any number of rows up to ``rows``: as many as possible of ``most`` rows, and at
    most one each of the powers of two below, or of ``every`` height below."""
    highest = max(1, min(rows, most)) if is_known(rows) else most
    lower = [1 << power for power in reversed(range((highest - 1).bit_length()))]
    heights = [highest, *(reversed(range(1, highest)) if every else lower)]
    full = larger(1, rows // highest)
    firsts = [0, *(full + number for number in range(len(heights) - 1))]
    counts = [full, *(1 for _ in heights[1:])]
    return tuple(
        TileRun(first, count, 0, height, ((0, 1),) * height)
        for first, count, height in zip(firsts, counts, heights, strict=True)
    )
