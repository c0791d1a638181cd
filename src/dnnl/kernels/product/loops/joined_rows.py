"""Rows of pixels that are one line: its tiles, and which taps they need.

Src has zeros where a tap is outside of the image, so that a tile may multiply all. It leaves out
the taps that none of its pixels has. For that, no tile has pixels of rows near the border and of
rows inside, unless rows are short::

    | rows that miss taps above |     inner rows     | rows that miss taps below |
    |....10....|....10....|..8..|..12..|..12..|..10..|....10....|....10....|..8..|

There is code for some heights of tiles only. The last tile of a segment ends with it, and so may
begin inside of the one before: what both compute is stored twice. Where results are added to what
dst has, low tiles follow instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dnnl.codegen.ir.builder import Emitter, Value, i64
from dnnl.codegen.memory.access import Env
from dnnl.codegen.memory.address import Axis
from dnnl.kernels.product.base.pixel_tiles import Spatial, TileRun
from dnnl.kernels.product.loops.run_time import tiles_between
from dnnl.types.size import larger, smaller

SEGMENTS = 3

_SHORT = 8
"""Rows from which on fewer taps outweigh more tiles."""

_HEIGHTS = 10
"""The most heights of tiles."""


@dataclass(frozen=True, eq=False)
class JoinedRows:
    """The rows of images of this ``height`` and ``width``. With ``once`` no result is stored twice.

    An environment holds a part of a segment as the values of ``first`` and ``past``.
    """

    height: Spatial
    width: Spatial
    once: bool
    first: Axis = field(default_factory=lambda: Axis(1, "first"))
    past: Axis = field(default_factory=lambda: Axis(1, "past"))

    def env(self, e: Emitter, number: Value, low: Value, high: Value) -> Env:
        """The pixels from ``low`` up to ``high`` that belong to segment ``number``."""
        h, row, select = self.height, self.width.dst, e.b.select
        reach = (h.kernel - 1) * h.dilation - h.padding
        top = smaller(-(-h.padding // h.stride), h.dst)
        bottom = larger(top, smaller((h.src - 1 - reach) // h.stride + 1, h.dst))
        end = e.number(h.dst * row)
        short = e.b.icmp_signed("<", e.number(row), i64(_SHORT))
        low_cut = select(short, i64(0), e.number(top * row))
        high_cut = select(short, end, e.number(bottom * row))
        is_first, is_last = (e.b.icmp_signed("==", number, i64(n)) for n in (0, SEGMENTS - 1))
        first = select(is_first, i64(0), select(is_last, high_cut, low_cut))
        past = select(is_first, low_cut, select(is_last, end, high_cut))
        first = e.larger(first, low)
        return {self.first: first, self.past: e.larger(first, e.smaller(past, high))}

    def runs(self, most: int) -> tuple[TileRun, ...]:
        """Tiles of up to ``most`` pixels: multiples of a step, and the powers of two below."""
        step = _step(most)
        heights = [*range(most // step * step, step - 1, -step)]
        heights += [1 << power for power in reversed(range(step.bit_length() - 1))]
        return tuple(
            TileRun(number, 1, 0, height, ((0, 1),) * height)
            for number, height in enumerate(heights)
        )

    def tiles(
        self, e: Emitter, env: Env, runs: Sequence[TileRun]
    ) -> Iterator[tuple[TileRun, Value, Value, Value]]:
        """The tiles of a part: each run with the numbers of its first tile and of the one behind
        its last, and the pixel at which tile 0 would begin."""
        b, most = e.b, runs[0].width
        step = most - runs[1].width if len(runs) > 1 else 1
        row = env[self.first]
        pixels = b.sub(env[self.past], row)
        steps, rest = e.divmod(pixels, step)
        if not self.once:  # one step more, unless all pixels are less than a step
            more = b.and_(b.icmp_signed(">", rest, i64(0)), b.icmp_signed(">", steps, i64(0)))
            steps, rest = b.select(more, e.add(steps, i64(1)), steps), b.select(more, i64(0), rest)
        count = e.larger(_quotient(e, e.mul(steps, step), most), i64(1))
        if not self.once:  # a single tile would begin in front of the part
            count = b.select(more, e.larger(count, i64(2)), count)
        height = b.udiv(steps, count)
        higher = b.sub(steps, b.mul(height, count))
        number = i64(0)
        for run in runs:
            if run.width % step:
                break
            own = run.width // step
            some = b.select(_equal(e, height, own), b.sub(count, higher), i64(0))
            some = b.select(_equal(e, height, own - 1), higher, some)
            last = e.add(number, some)
            yield run, number, last, b.sub(row, e.mul(number, run.width))
            row, number = e.add(row, e.mul(some, run.width)), last
        low = [run for run in runs if run.width < step]
        yield from tiles_between(e, row, e.add(row, rest), low, number)

    def inside(self, e: Emitter, env: Env, begin: Value, width: int) -> Value:
        """The begin of a tile of so many pixels, not later than where the last one begins."""
        return begin if self.once else e.smaller(begin, e.b.sub(env[self.past], i64(width)))


def _step(most: int) -> int:
    """The step of the heights of tiles: a power of two."""
    step = 1
    while most > _HEIGHTS * step:
        step *= 2
    return step


def _quotient(e: Emitter, value: Value, divisor: int) -> Value:
    """A quotient, rounded up."""
    return e.b.udiv(e.add(value, i64(divisor - 1)), i64(divisor))


def _equal(e: Emitter, value: Value, number: int) -> Value:
    return e.b.icmp_signed("==", value, i64(number))
