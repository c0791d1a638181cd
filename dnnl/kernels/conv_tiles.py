"""How the output pixels of a convolution are cut into register tiles.

Tiles lie along rows of the output. Where a row is short, a tile takes several rows, a *band*::

    OW = 56, tile 14:   |...14...|...14...|...14...|...14...|   a band is one row
    OW =  7, tile 14:   |..7..|  over  |..7..|                  a band is two rows

A pixel near the border has taps that fall outside the image. Which ones is known when the kernel
is written, so tiles that differ in it get code of their own, in which those taps do not occur.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

Span = tuple[int, int]


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

    ``first`` is the number of the first of them in its row, ``begin`` its first pixel; ``taps``
    has the range of taps along w for each pixel of a tile.
    """

    first: int
    count: int
    begin: int
    width: int
    taps: tuple[Span, ...]


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


def tile_runs(w: Spatial, rows: int) -> tuple[TileRun, ...]:
    """Cut one row of output into tiles of at most ``rows`` pixels, as even as possible."""
    count = -(-w.dst // rows)
    base, extra = divmod(w.dst, count)
    widths = [base + 1] * extra + [base] * (count - extra)
    begins = [sum(widths[:number]) for number in range(count)]

    def taps(number: int) -> tuple[Span, ...]:
        return tuple(w.taps(begins[number] + i) for i in range(widths[number]))

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


def rows_per_band(h: Spatial, w: Spatial, rows: int) -> int:
    """How many output rows one tile of ``rows`` pixels can hold."""
    return max(1, min(h.dst, rows // w.dst))


def static_taps(band: BandRun, tile: TileRun, kernel_w: int) -> bool:
    """Whether some pixel of the tile misses a tap that others have, so that taps are unrolled."""
    full_w = all(span == (0, kernel_w) for span in tile.taps)
    same_h = band.taps is None or len(set(band.taps)) == 1
    return not (full_w and same_h)


def pixels(band: BandRun, tile: TileRun) -> Iterator[tuple[int, int]]:
    """The pixels of a tile as (row of the band, column of the tile)."""
    for row in range(band.rows):
        for column in range(tile.width):
            yield row, column
