"""How the output pixels of a convolution are cut into register tiles.

Tiles lie along rows of the output. Where a row is short, a tile takes several rows, a *band*, or
tiles of as many pixels go from one row of a band to the next::

    OW = 56, tile 14:   |...14...|...14...|...14...|...14...|   a band is one row
    OW =  7, tile 14:   |..7..|  over  |..7..|                  a band is two rows
    OW =  7, tile  6:   |..6...|1 over 5..|2 over 4..|3 over    a band is all rows

A pixel near the border has taps that fall outside the image. Which ones is known when the kernel
is written, so tiles that differ in it get code of their own, in which those taps do not occur.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

from dnnl.codegen.brgemm import SUMS_UNDER_WAY, TileShape

Span = tuple[int, int]

_MOST_CODES = 160
"""Products of tiles and taps that are written out where tiles go from one row to the next."""


@dataclass(frozen=True)
class Spatial:
    """One spatial dimension: sizes of input, output and kernel, and how they are related.

    ``dilation`` is the distance between taps, 1 for a dense kernel.
    """

    src: int
    dst: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    def taps(self, out: int) -> Span:
        """The taps of output ``out`` that lie inside the image, as a half-open range."""
        first = out * self.stride - self.padding
        low = max(0, -(first // self.dilation))
        high = min(self.kernel, -((first - self.src) // self.dilation))
        return (low, high) if low < high else (0, 0)

    @property
    def last(self) -> int:
        """The element that the last tap of the last output meets, inside the image or not."""
        return (self.dst - 1) * self.stride + (self.kernel - 1) * self.dilation - self.padding

    @property
    def padded(self) -> bool:
        """Whether some output misses some tap."""
        return self.padding > 0 or self.last >= self.src


@dataclass(frozen=True)
class TileRun:
    """``count`` neighbouring tiles of ``width`` pixels whose pixels miss the same taps.

    ``first`` is the number of the first of them in its band, ``begin`` its first pixel; ``taps``
    has the range of taps along w for each pixel of a tile. In a band of several rows ``begin`` is
    0, and so many pixels of the band are ``before`` the only tile.
    """

    first: int
    count: int
    begin: int
    width: int
    taps: tuple[Span, ...]
    before: int = 0

    def pixels(self, row: int) -> list[tuple[int, int]]:
        """The pixels of a tile as (row of the band, column from ``begin`` on), where rows have so
        many."""
        if self.begin or self.count > 1:
            return [(0, column) for column in range(self.width)]
        return [divmod(self.before + number, row) for number in range(self.width)]


@dataclass(frozen=True)
class BandRun:
    """``count`` neighbouring bands of ``rows`` output rows that miss the same taps.

    ``taps`` has the range of taps along h for each row of a band, or is None where it is only
    known at run time: bands of one row take it from the row's number.
    """

    first: int
    count: int
    rows: int
    taps: tuple[Span, ...] | None


def tile_runs(w: Spatial, rows: int, height: int = 1) -> tuple[TileRun, ...]:
    """Cut a band of ``height`` rows of output into tiles of at most ``rows`` pixels, as even as
    possible."""
    count = -(-height * w.dst // rows)
    base, extra = divmod(height * w.dst, count)
    widths = [base + 1] * extra + [base] * (count - extra)
    begins = [sum(widths[:number]) for number in range(count)]

    def taps(number: int) -> tuple[Span, ...]:
        return tuple(w.taps((begins[number] + i) % w.dst) for i in range(widths[number]))

    if height > 1:
        return tuple(
            TileRun(number, 1, 0, widths[number], taps(number), before=begins[number])
            for number in range(count)
        )
    runs = []
    for pattern, group in groupby(range(count), key=taps):
        numbers = list(group)
        first = numbers[0]
        runs.append(TileRun(first, len(numbers), begins[first], widths[first], pattern))
    return tuple(runs)


def band_runs(h: Spatial, rows: int) -> tuple[BandRun, ...]:
    """Cut the output into bands of ``rows`` rows."""
    if rows == 1:
        return (BandRun(0, h.dst, 1, None if h.padded else ((0, h.kernel),)),)

    def taps(band: int) -> tuple[Span, ...]:
        return tuple(h.taps(out) for out in range(band * rows, min(h.dst, (band + 1) * rows)))

    runs = []
    for pattern, group in groupby(range(-(-h.dst // rows)), key=taps):
        numbers = list(group)
        runs.append(BandRun(numbers[0], len(numbers), len(pattern), pattern))
    return tuple(runs)


def rows_per_band(space: Sequence[Spatial], tile: TileShape, sums: int) -> int:
    """How many output rows a band has: as many as a tile holds, or where one row would be cut into
    tiles with too few sums to keep multiply-adds busy, as many as leave the fewest tiles. A pixel
    has so many ``sums`` of which each multiply-add waits for the one before, 0 where none does. All
    taps of a tile that goes from one row to the next are written out."""
    _, h, w = space
    whole = max(1, min(h.dst, tile.rows // w.dst))
    least = w.dst // -(-w.dst // tile.rows) * sums
    codes = _MOST_CODES // max(1, prod(own.kernel for own in space))
    if not sums or whole > 1 or w.dst <= tile.rows or least >= SUMS_UNDER_WAY:
        return whole

    def tiles(height: int) -> int:
        bands, rest = divmod(h.dst, height)
        parts = (height * w.dst, bands), (rest * w.dst, 1)
        return sum(-(-pixels // tile.rows) * count for pixels, count in parts)

    heights = range(1, max(1, min(h.dst, codes * tile.rows // w.dst)) + 1)
    return min(heights, key=lambda height: (tiles(height), -height))


def static_taps(band: BandRun, tile: TileRun, kernel_w: int) -> bool:
    """Whether some pixel of the tile misses a tap that others have, so that taps are unrolled."""
    full_w = all(span == (0, kernel_w) for span in tile.taps)
    same_h = band.taps is None or len(set(band.taps)) == 1
    return not (full_w and same_h)
