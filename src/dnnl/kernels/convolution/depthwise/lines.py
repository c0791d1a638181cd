"""Which pixels of src the outputs of one dimension read, and by which taps.

A convolution reads pixel ``output * stride + tap * dilation - padding``, a transposed one
``(output + padding - tap * dilation) / stride`` if that is an integer. Of outputs that are a
multiple of the stride apart, both read pixels that are apart by a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import gcd

from dnnl.codegen.ir.builder import I64, Emitter, Value, Values, i64
from dnnl.kernels.product.base.pixel_tiles import Span, Spatial
from dnnl.types.size import bounds, larger, smaller

Meets = dict[int, list[tuple[int, int]]]
"""The outputs of a tile that each pixel contributes to, with the taps that read it there."""


def everywhere(_pixel: int) -> bool:
    """What is inside of src for tiles that miss no pixel."""
    return True


@dataclass(frozen=True)
class Taps:
    """The taps of an output that are inside of src: the numbers from ``low`` to ``high``, exclusive
    (i64). Number n is tap ``first_tap + n * tap_step`` and reads pixel ``first + n * step``."""

    low: Value
    high: Value
    first: Value
    step: int
    first_tap: Value
    tap_step: int


@dataclass(frozen=True)
class Line:
    """One dimension of a convolution, or of a transposed one."""

    space: Spatial
    transposed: bool

    @property
    def start(self) -> int:
        """The pixel from which `reached` counts."""
        return 0 if self.transposed else -self.space.padding

    def reached(self, output: int, tap: int) -> int | None:
        """The pixel that a tap of an output reads, counted from `start`; None if there is none."""
        own = self.space
        if not self.transposed:
            return output * own.stride + tap * own.dilation
        pixel, between = divmod(output + own.padding - tap * own.dilation, own.stride)
        return None if between else pixel

    def meets(self, outputs: int, inside: Callable[[int], bool]) -> Meets:
        """The pixels ``inside`` that a tile of so many ``outputs`` reads."""
        found: Meets = {}
        for output, tap in product(range(outputs), range(self.space.kernel)):
            pixel = self.reached(output, tap)
            if pixel is not None and inside(pixel):
                found.setdefault(pixel, []).append((output, tap))
        return found

    def found(self, e: Emitter, begin: Value, outputs: int) -> dict[int, Value]:
        """Of the pixels that so many ``outputs`` from ``begin`` on read, whether those are inside
        that may be outside: the padding before the first output, and behind the last one."""
        own = self.space
        last = (outputs - 1) * own.stride + (own.kernel - 1) * own.dilation
        behind = bounds(own.last - own.src + 1)[1]
        first, found = e.add(e.mul(begin, own.stride), i64(-own.padding)), {}
        for pixel in self.meets(outputs, everywhere):
            if pixel < own.padding or pixel + behind > last:
                place = e.add(first, i64(pixel))
                found[pixel] = e.b.icmp_unsigned("<", place, e.number(own.src))
        return found

    def inside(self, number: int, outputs: int) -> Callable[[int], bool]:
        """Whether a pixel of tile ``number`` is in src, as `meets` asks."""
        before = self.advance(number * outputs) + self.start
        return lambda pixel: 0 <= before + pixel < self.space.src

    def advance(self, outputs: int) -> int:
        """The distance of the pixels that outputs read which are ``outputs`` apart, a multiple of
        the stride of a transposed convolution."""
        return outputs // self.space.stride if self.transposed else outputs * self.space.stride

    def inner(self, outputs: int) -> Span:
        """The full tiles of so many ``outputs`` whose taps are all inside, as a half-open range."""
        pairs = product(range(outputs), range(self.space.kernel))
        found = [pixel for pair in pairs if (pixel := self.reached(*pair)) is not None]
        least, most, step = min(found, default=0), max(found, default=0), self.advance(outputs)
        count = -(-self.space.dst // outputs)
        first = smaller(max(0, -((least + self.start) // step)), count)
        last = (self.space.src - 1 - self.start - most) // step + 1
        return first, larger(first, smaller(last, self.space.dst // outputs))

    def inside_or(
        self,
        e: Emitter,
        number: Value,
        outputs: int,
        inner: Callable[[], Values],
        outer: Callable[[], Values],
    ) -> Values:
        """What ``inner`` gives for a tile that misses no pixel, ``outer`` for any other one, of
        numbers that only an execution knows."""
        first, last = map(e.number, self.inner(outputs))
        behind = e.b.icmp_signed(">=", number, first)
        before = e.b.icmp_signed("<", number, last)
        return e.branch(e.b.and_(behind, before), inner, outer)

    def taps(self, e: Emitter, output: Value) -> Taps:
        """The taps of an output."""
        return self._gathered(e, output) if self.transposed else self._window(e, output)

    def _window(self, e: Emitter, output: Value) -> Taps:
        own, zero = self.space, i64(0)
        first = e.add(e.mul(output, own.stride), i64(-own.padding))
        if not own.padded:
            return Taps(zero, i64(own.kernel), first, own.dilation, zero, 1)
        before = e.larger(e.b.neg(first), zero)
        low, _ = e.divmod(e.add(before, i64(own.dilation - 1)), own.dilation)
        behind = e.larger(e.b.sub(e.number(own.src), first), zero)
        high, _ = e.divmod(e.add(behind, i64(own.dilation - 1)), own.dilation)
        return Taps(low, e.smaller(high, i64(own.kernel)), first, own.dilation, zero, 1)

    def _gathered(self, e: Emitter, output: Value) -> Taps:
        """They are a constant number apart; a table says which is the first."""
        common = gcd(self.space.stride, self.space.dilation)
        rows = [self._inside(number) for number in range(self.space.dst)]
        found = []
        for column in zip(*rows, strict=True):
            if len(set(column)) == 1:
                found.append(i64(column[0]))
                continue
            place = e.element(e.module.table(I64, column), output, I64)
            found.append(e.b.load(place, typ=I64, align=8))
        count, first, tap = found
        step, apart = self.space.dilation // common, self.space.stride // common
        return Taps(i64(0), count, first, -step, tap, apart)

    def _inside(self, output: int) -> tuple[int, int, int]:
        """How many taps of an output are inside; the pixel that the first one reads, and its
        number."""
        reached = ((self.reached(output, tap), tap) for tap in range(self.space.kernel))
        inside = [
            (pixel, tap) for pixel, tap in reached if pixel is not None and pixel in self._src
        ]
        return (len(inside), *(inside[0] if inside else (0, 0)))

    @property
    def _src(self) -> range:
        return range(self.space.src)
