"""Tiles of rows of which only an execution knows how long they are, where pixels at both ends have
taps outside of the image.

All tiles have the same number of pixels. The last one ends with its row, and so may begin inside of
the one before: what both compute is stored twice. So the taps that pixels miss are known for the
first tile, for those inside, and for the last one::

    |..first..|..inner..|..inner..|
                              |..last...|
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dnnl.codegen.ir.builder import Emitter, Value, i64
from dnnl.kernels.product.base.pixel_tiles import Span, Spatial, TileRun
from dnnl.types.size import bounds

_MOST_OVERHANGS = 2


@dataclass(frozen=True)
class EdgeTiles:
    """The tiles of rows along ``w``, each of so many ``pixels``."""

    w: Spatial
    pixels: int

    @property
    def overhang(self) -> int:
        """How far the taps of the last output reach behind the image."""
        return self.w.last - self.w.src + 1

    @property
    def overhangs(self) -> range:
        """What `overhang` may be; it is limited to what more than all taps would be."""
        low, high = (int(max(0, min(bound, self.w.kernel * 8))) for bound in bounds(self.overhang))
        return range(low, high + 1)

    @property
    def serves(self) -> bool:
        """Whether it is known which taps are missing: where a row is at least two tiles long, and
        only the last output misses taps at the end."""
        w = self.w
        if len(self.overhangs) > _MOST_OVERHANGS or self.overhangs[-1] > w.stride:
            return False
        return w.padding <= self.pixels * w.stride and w.dst >= 2 * self.pixels

    @property
    def runs(self) -> tuple[TileRun, ...]:
        """The first tile, those inside, and the last one for each of the `overhangs`."""
        w, whole = self.w, (0, self.w.kernel)
        first = tuple(
            (self._missing(w.padding - out * w.stride), w.kernel) for out in range(self.pixels)
        )
        inner = (whole,) * self.pixels
        return (
            TileRun(0, 1, 0, self.pixels, first),
            TileRun(1, 1, self.pixels, self.pixels, inner),
            *(
                TileRun(2, 1, 2 * self.pixels, self.pixels, self._last(overhang))
                for overhang in self.overhangs
            ),
        )

    def _missing(self, distance: int) -> int:
        return max(0, -(-distance // self.w.dilation))

    def _last(self, overhang: int) -> tuple[Span, ...]:
        outs = reversed(range(self.pixels))
        return tuple(
            (0, self.w.kernel - self._missing(overhang - out * self.w.stride)) for out in outs
        )

    def between(
        self, e: Emitter, low: Value, high: Value
    ) -> Iterator[tuple[TileRun, Value, Value, Value]]:
        """The tiles with numbers from ``low`` up to ``high``: each run with the numbers of its
        first tile and of the one behind its last, and the place at which tile 0 would begin."""
        count = -(-self.w.dst // self.pixels)
        last, past = e.number(count - 1), e.number(count)
        spans = [(i64(0), i64(1)), (i64(1), last), *((last, past) for _ in self.overhangs)]
        behind = e.number(self.w.dst - count * self.pixels)
        for number, (run, (first, end)) in enumerate(zip(self.runs, spans, strict=True)):
            begin, stop = (e.smaller(e.larger(bound, first), end) for bound in (low, high))
            if number > 1 and len(self.overhangs) > 1:
                own, found = self.overhangs[number - 2], e.larger(e.number(self.overhang), i64(0))
                stop = e.b.select(e.b.icmp_signed("==", found, i64(own)), stop, begin)
            yield run, begin, stop, behind if number > 1 else i64(0)
