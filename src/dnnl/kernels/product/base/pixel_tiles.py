"""How the output pixels of a convolution are cut into register tiles.

Tiles lie along rows of the output. Where a row is short, a tile takes several rows, a *band*, or
tiles of as many pixels go from one row of a band to the next::

    OW = 56, tile 14:   |...14...|...14...|...14...|...14...|   a band is one row
    OW =  7, tile 14:   |..7..|  over  |..7..|                  a band is two rows
    OW =  7, tile  6:   |..6...|1 over 5..|2 over 4..|3 over    a band is all rows

A pixel near the border has taps that fall outside the image. Which ones is known when the kernel
is written, so tiles that differ in it get code of their own, in which those taps do not occur.
Where that would be too much code, all of these tiles share one, whose taps follow from the
numbers of their pixels at run time.

Only tiles near the border are looked at one by one, so that planning a large image takes no longer
than a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import prod
from typing import TypeVar

from dnnl.codegen.product.brgemm import ACCUMULATOR_CHAINS, TileShape

Span = tuple[int, int]
Key = TypeVar("Key")

_MOST_CODES = 160
"""Products of tiles and taps that are written out where tiles go from one row to the next."""

_MOST_BORDERS = 128
"""Products of tiles or bands near the border and taps that are written out."""

_MOST_NEAR = 128
"""Tiles or bands near the border that are looked at one by one."""


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

    @property
    def inner(self) -> Span:
        """The outputs whose taps all lie inside the image, as a half-open range."""
        reach = (self.kernel - 1) * self.dilation - self.padding
        low = min(max(0, -(-self.padding // self.stride)), self.dst)
        high = (self.src - 1 - reach) // self.stride + 1
        return low, min(max(high, low), self.dst)


@dataclass(frozen=True)
class TileRun:
    """``count`` neighbouring tiles of ``width`` pixels whose pixels miss the same taps.

    ``first`` is the number of the first of them in its band, ``begin`` its first pixel; ``taps``
    has the range of taps along w for each pixel of a tile, or is None where it is only known at run
    time and differs from tile to tile. In a band of several rows ``begin`` is 0, and so many pixels
    of the band are ``before`` the only tile.
    """

    first: int
    count: int
    begin: int
    width: int
    taps: tuple[Span, ...] | None
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
    known at run time, from the row's number.
    """

    first: int
    count: int
    rows: int
    taps: tuple[Span, ...] | None


def runs_by_key(
    count: int, starts: Iterable[int], key: Callable[[int], Key]
) -> Iterator[tuple[Span, Key]]:
    """Neighbours among so many that have the same key, and that key. Those between two ``starts``
    are known to have the key of the first."""
    begins = sorted({start for start in (0, *starts) if start < count})
    for own, group in groupby(pairwise([*begins, count]), lambda pair: key(pair[0])):
        members = list(group)
        yield (members[0][0], members[-1][1]), own


def _known(
    count: int,
    inner: Span,
    others: Sequence[int],
    taps: Callable[[int], tuple[Span, ...]],
    columns: int,
) -> list[tuple[Span, int, tuple[Span, ...] | None]]:
    """Neighbours among so many tiles or bands that have as many pixels or rows and miss the same
    ``taps``: which they are, the number of pixels or rows, and the taps. Those of ``inner`` miss
    none; sizes change where they say, or at the ``others``. Where the code for those outside of
    ``inner`` would be too long, each with so many ``columns`` of taps, they share one, and their
    taps are None."""
    first, last = inner
    starts = [first, last, *others]
    if first + count - last <= _MOST_NEAR:
        near = [*range(first), *range(last, count)]
        runs = list(runs_by_key(count, [*starts, *near], taps))
        written = sum(not first <= begin < last for (begin, _), _ in runs)
        if written * columns <= _MOST_BORDERS:
            return [(span, len(seen), seen) for span, seen in runs]

    def unknown(number: int) -> tuple[int, tuple[Span, ...] | None]:
        seen = taps(number)
        return len(seen), seen if first <= number < last else None

    return [(span, *own) for span, own in runs_by_key(count, starts, unknown)]


def tile_runs(w: Spatial, rows: int, height: int = 1) -> tuple[TileRun, ...]:
    """Cut a band of ``height`` rows of output into tiles of at most ``rows`` pixels, as even as
    possible."""
    count = -(-height * w.dst // rows)
    base, extra = divmod(height * w.dst, count)

    def begin(number: int) -> int:
        return number * base + min(number, extra)

    def taps(number: int) -> tuple[Span, ...]:
        return tuple(w.taps(out % w.dst) for out in range(begin(number), begin(number + 1)))

    if height > 1:
        known = ((number, taps(number)) for number in range(count))
        return tuple(
            TileRun(number, 1, 0, len(seen), seen, before=begin(number)) for number, seen in known
        )

    def tile_of(pixel: int) -> int:
        wide = extra * (base + 1)
        return pixel // (base + 1) if pixel < wide else extra + (pixel - wide) // base

    low, high = w.inner
    first = tile_of(low - 1) + 1 if low else 0
    last = max(first, tile_of(high) if high < w.dst else count)
    return tuple(
        TileRun(start, stop - start, begin(start), width, seen)
        for (start, stop), width, seen in _known(count, (first, last), [extra], taps, w.kernel)
    )


def band_runs(h: Spatial, rows: int, columns: int = 1) -> tuple[BandRun, ...]:
    """Cut the output into bands of ``rows`` rows, whose windows have so many ``columns``."""
    if rows == 1:
        return (BandRun(0, h.dst, 1, None if h.padded else ((0, h.kernel),)),)

    def taps(band: int) -> tuple[Span, ...]:
        return tuple(h.taps(out) for out in range(band * rows, min(h.dst, (band + 1) * rows)))

    count, low, high = -(-h.dst // rows), *h.inner
    inner = -(-low // rows), max(-(-low // rows), high // rows)
    return tuple(
        BandRun(start, stop - start, height, seen)
        for (start, stop), height, seen in _known(
            count, inner, [h.dst // rows], taps, h.kernel * columns
        )
    )


def rows_per_band(space: Sequence[Spatial], tile: TileShape, sums: int) -> int:
    """How many output rows a band has: as many as a tile holds, or where one row would be cut into
    tiles with too few sums to keep multiply-adds busy, as many as leave the fewest tiles. A pixel
    has so many ``sums`` of which each multiply-add waits for the one before, 0 where none does. All
    taps of a tile that goes from one row to the next are written out. Pixels miss taps along h or
    along w that only the execution knows, not both."""
    height, (_, h, w) = _most_even(space, tile, sums), space
    known = all(run.taps is not None for run in band_runs(h, height, w.kernel))
    return height if known or not w.padded else 1


def _most_even(space: Sequence[Spatial], tile: TileShape, sums: int) -> int:
    _, h, w = space
    whole = max(1, min(h.dst, tile.rows // w.dst))
    least = w.dst // -(-w.dst // tile.rows) * sums
    codes = _MOST_CODES // max(1, prod(own.kernel for own in space))
    if not sums or whole > 1 or w.dst <= tile.rows or least >= ACCUMULATOR_CHAINS:
        return whole

    def tiles(height: int) -> int:
        bands, rest = divmod(h.dst, height)
        parts = (height * w.dst, bands), (rest * w.dst, 1)
        return sum(-(-pixels // tile.rows) * count for pixels, count in parts)

    heights = range(1, max(1, min(h.dst, codes * tile.rows // w.dst)) + 1)
    return min(heights, key=lambda height: (tiles(height), -height))


def static_taps(band: BandRun, tile: TileRun, kernel_w: int) -> bool:
    """Whether some pixel of the tile misses a tap that others have, and which ones is known, so
    that taps are unrolled."""
    if tile.taps is None:
        return False
    full_w = all(span == (0, kernel_w) for span in tile.taps)
    same_h = band.taps is None or len(set(band.taps)) == 1
    return not (full_w and same_h)
