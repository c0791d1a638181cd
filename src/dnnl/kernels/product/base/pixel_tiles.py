"""How the output pixels of a convolution are cut into register tiles.

Tiles go along rows of the output. If rows are short, a tile takes several rows (a *band*), or tiles
wrap around from one row of a band to the next::

    OW = 56, tile 14:   |...14...|...14...|...14...|...14...|   a band is one row
    OW =  7, tile 14:   |..7..|  over  |..7..|                  a band is two rows
    OW =  7, tile  6:   |..6...|1 over 5..|2 over 4..|3 over    a band is all rows

Pixels near the border have taps outside of the image. These are known at code generation: tiles
that differ in them get code of their own without those taps. If that would be too much code, such
tiles share one loop, whose tap ranges are computed at run time.

Only tiles near the border are examined one by one, so that planning time does not depend on the
size of the image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import prod
from typing import TypeVar

from dnnl.codegen.product.brgemm import ACCUMULATOR_CHAINS, TileShape
from dnnl.types.size import is_known, larger, smaller, surely_below, surely_equal

Span = tuple[int, int]
Key = TypeVar("Key")

_MOST_CODES = 160
"""The limit on tiles times taps that are unrolled where tiles wrap around rows."""

_MOST_BORDERS = 128
"""The limit on tiles or bands near the border, times taps, that are unrolled."""

_MOST_NEAR = 128
"""The limit on tiles or bands near the border that are examined one by one."""


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
        """The taps of output ``out`` that are inside the image, as a half-open range."""
        first = out * self.stride - self.padding
        low = max(0, -(first // self.dilation))
        high = min(self.kernel, -((first - self.src) // self.dilation))
        return (low, high) if low < high else (0, 0)

    @property
    def last(self) -> int:
        """The element of src that the last tap of the last output reads, inside the image or
        not."""
        return (self.dst - 1) * self.stride + (self.kernel - 1) * self.dilation - self.padding

    @property
    def is_open(self) -> bool:
        """Whether only an execution knows the sizes."""
        return not (is_known(self.src) and is_known(self.dst))

    @property
    def padded(self) -> bool:
        """Whether some output misses some tap."""
        return self.padding > 0 or not surely_below(self.last, self.src)

    @property
    def inner(self) -> Span:
        """The outputs whose taps are all inside the image, as a half-open range."""
        reach = (self.kernel - 1) * self.dilation - self.padding
        low = smaller(max(0, -(-self.padding // self.stride)), self.dst)
        high = (self.src - 1 - reach) // self.stride + 1
        return low, smaller(larger(high, low), self.dst)


Space = tuple[Spatial, Spatial, Spatial]
"""Depth, height and width; a missing one has size 1."""


@dataclass(frozen=True)
class TileRun:
    """``count`` consecutive tiles of ``width`` pixels whose pixels miss the same taps.

    ``first`` is the number of the first tile in its band, ``begin`` its first pixel. ``taps`` has
    the range of taps along w for each pixel; None means that it differs from tile to tile and is
    computed at run time. In a band of several rows ``begin`` is 0 and ``count`` is 1; ``before`` is
    then the number of pixels of the band in front of the tile.
    """

    first: int
    count: int
    begin: int
    width: int
    taps: tuple[Span, ...] | None
    before: int = 0

    def pixels(self, row: int) -> list[tuple[int, int]]:
        """The pixels of a tile as (row of the band, column relative to ``begin``), for rows of
        ``row`` pixels."""
        if not is_known(row) or self.begin or self.count > 1:
            return [(0, column) for column in range(self.width)]
        return [divmod(self.before + number, row) for number in range(self.width)]


@dataclass(frozen=True)
class BandRun:
    """``count`` consecutive bands of ``rows`` output rows that miss the same taps.

    ``taps`` has the range of taps along h for each row of a band; None means that it is computed at
    run time from the number of the row.
    """

    first: int
    count: int
    rows: int
    taps: tuple[Span, ...] | None


def runs_by_key(
    count: int, starts: Iterable[int], key: Callable[[int], Key]
) -> Iterator[tuple[Span, Key]]:
    """Cut ``range(count)`` into runs with equal keys and yield each with its key. All numbers from
    one of ``starts`` up to the next are known to have the same key."""
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
    """Cut ``count`` tiles or bands into runs of the same size that miss the same ``taps``: the
    span, the size, and the taps of each run.

    Those in the span ``inner`` miss no tap. Sizes change at ``inner``, and at the numbers
    ``others``. If the code for those outside of ``inner``, each with ``columns`` of taps, would be
    too long, they share one run whose taps are None.
    """
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
    """Cut a band of ``height`` output rows into tiles of at most ``rows`` pixels, as evenly as
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
    """Cut the output into bands of ``rows`` rows; a window has ``columns`` taps per row."""
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
    """How many output rows a band has.

    As many as fit in a tile. If a row would be cut into tiles with too few independent sums to hide
    the latency of multiply-adds, the number that gives the fewest tiles. ``sums`` is the number of
    independent sums per pixel, 0 if latency is no concern. Tiles that wrap around rows have all
    taps unrolled. Pixels may miss run-time taps along h or along w, not both.
    """
    *_, lines, line = space
    if not is_known(line.dst) or surely_equal(lines.dst, 1):
        return 1
    height, (*_, h, w) = _most_even(space, tile, sums), space
    known = all(run.taps is not None for run in band_runs(h, height, w.kernel))
    return height if known or not w.padded else 1


def _most_even(space: Sequence[Spatial], tile: TileShape, sums: int) -> int:
    *_, h, w = space
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
    """Whether pixels of the tile miss different taps that are known at code generation: the taps
    are then unrolled."""
    if tile.taps is None:
        return False
    full_w = all(span == (0, kernel_w) for span in tile.taps)
    same_h = band.taps is None or len(set(band.taps)) == 1
    return not (full_w and same_h)
