"""What of a product is kept where when its sizes are known at execution only.

The room that a thread has is laid out when the code is written, for blocks of any size up to a
limit; how large they are is decided for each execution. A *block* is so many rows of src and panels
of weights for a part of the k, both packed or where they lie, and the sums that belong to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.isa import Isa
from dnnl.codegen.nest import work_items
from dnnl.codegen.product.brgemm import TileShape, max_rows
from dnnl.codegen.product.multiply import Multiply

_LINE = 64  # bytes
_MOST_WORDS = 1024  # of a block of k
_LEAST_WORDS = 128
# Weights that few rows meet stay in rows: a page of the rows of so many words is read side by side.
_PAGE = 4096
_WORDS = 8
_WIDE = 4  # vectors of a tile that reads them
_FEW_TILES = 2


@dataclass(frozen=True)
class Room:
    """The memory of a thread for a way to multiply and panels of ``vectors`` vectors.

    ``rows`` and ``words`` are the most that a block has; rows are ``pitch`` words apart, which
    spreads them over the sets of a cache. The other sizes are in bytes: ``panels`` is what all
    panels of a block take, ``sums`` what its tiles take.
    """

    tile: TileShape
    lanes: int
    group: int
    word: int
    column: int
    cell: int
    rows: int
    words: int
    panels: int
    sums: int
    wide: TileShape

    @staticmethod
    def of(isa: Isa, way: Multiply, vectors: int, *, ones: bool) -> Room:
        """Src, weights and sums take at most a quarter of the second-level cache each."""
        quarter = isa.caches.l2 // 4
        tile = TileShape(max_rows(isa, vectors * way.span, way.parts, ones=ones), vectors)
        word, column = way.group * way.a.size, way.group * way.b.size
        words = min(_MOST_WORDS, max(_LEAST_WORDS, quarter // 128 // word))
        words = words // isa.lanes * isa.lanes
        pitch = (words + isa.lanes) * word + _LINE
        tiles = max(1, -(-quarter // pitch // tile.rows))
        cell = isa.lanes * way.accumulator_bytes
        least = (tile.rows + ones) * vectors * cell
        wide = TileShape(max_rows(isa, _WIDE * way.span, way.parts, ones=ones), _WIDE)
        few = _FEW_TILES * (wide.rows + ones) * wide.vectors * cell
        return Room(
            tile,
            isa.lanes,
            way.group,
            word,
            column,
            cell,
            tiles * tile.rows,
            words,
            max(quarter, (words + isa.lanes) * vectors * isa.lanes * column),
            max(quarter, tiles * least, few),
            wide,
        )

    @property
    def pitch(self) -> int:
        """How far rows are apart, in words."""
        return self.words + self.lanes + _LINE // self.word

    @property
    def lines(self) -> int:
        """How many rows there is room for: what is written are whole squares."""
        return -(-self.rows // self.lanes) * self.lanes

    @property
    def width(self) -> int:
        """The columns of a panel."""
        return self.tile.vectors * self.lanes


@dataclass(frozen=True)
class Extents:
    """The sizes of an execution: matrices, rows, columns, words and terms of a sum. Weights may lie
    in panels, or with neighbours ``in_rows``."""

    batch: int
    rows: int
    columns: int
    words: int
    terms: int
    panels: bool
    in_rows: bool


@dataclass(frozen=True)
class Blocks:
    """A block has at most so many rows, panels for a tile, and words; ``threads`` is for how many
    there is work. Weights may be multiplied ``as_they_are``, in rows."""

    tile: TileShape
    rows: int
    panels: int
    words: int
    threads: int
    as_they_are: bool = False


def choose_blocks(isa: Isa, room: Room, size: Extents) -> Blocks:
    """The blocks of an execution: sums are computed in as few parts as there is room for."""
    work = size.batch * size.rows * size.columns * max(1, size.terms) // work_items.MULTIPLY_ADDS
    threads = max(1, work // work_items.LEAST_WORK)
    wanted = min(work_items.FEW_ITEMS, threads)
    wide = room.wide.vectors * room.lanes
    if size.in_rows and size.rows <= _FEW_TILES * room.wide.rows and not size.columns % wide:
        return _as_they_are(room, size, threads)
    tile = room.tile
    total = max(1, -(-size.columns // room.width))
    parts = max(1, -(-size.words // room.words))
    words = max(1, -(-size.words // parts))
    rows = _even(size.rows, room.rows, tile.rows)
    panels = max(1, room.panels // (_padded(words, room.lanes) * room.width * room.column))
    if parts > 1:
        panels = min(panels, _with_sums(room, tile, rows))
    panels = _even(total, panels, 1)

    def items() -> int:
        return size.batch * -(-max(1, size.rows) // rows) * -(-total // panels)

    cheap = size.panels or parts == 1  # then blocks of rows share packed weights
    while items() < wanted and cheap and rows > 2 * tile.rows:
        rows = _even(rows, rows - 1, tile.rows)
    while items() < wanted and panels > 1:
        panels = _even(panels, panels - 1, 1)
    return Blocks(tile, rows, panels, words, threads)


def _as_they_are(room: Room, size: Extents, threads: int) -> Blocks:
    """Weights in rows that few rows of src meet: pieces of some rows, again and again."""
    tile = room.wide
    width = tile.vectors * room.lanes
    total = max(1, size.columns // width)
    rows = _even(size.rows, room.rows, tile.rows)
    page = max(1, _PAGE * room.group // (width * room.column))
    pieces = 2 if threads > 1 and total * size.batch <= page else 1
    panels = min(page, -(-total // pieces), _with_sums(room, tile, rows))
    return Blocks(tile, rows, _even(total, panels, 1), _WORDS, threads, as_they_are=True)


def _with_sums(room: Room, tile: TileShape, rows: int) -> int:
    """How many panels there is room for beside the sums of so many rows."""
    cells = (tile.rows + 1) * tile.vectors * room.cell  # a row of ones included
    return max(1, room.sums // (-(-rows // tile.rows) * cells))


def _padded(words: int, lanes: int) -> int:
    """The words of a panel with room for whole squares."""
    return -(-words // lanes) * lanes


def _even(count: int, most: int, step: int) -> int:
    """The size of parts of at most ``most``, a multiple of ``step``, that are about as large."""
    parts = max(1, -(-count // max(step, most)))
    return max(step, -(-count // parts // step) * step)
