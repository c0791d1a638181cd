"""Cache blocking of a matrix product with run-time sizes.

The scratch memory of a thread is laid out at code generation, for blocks up to a limit; block sizes
are chosen for each execution. A *block* is some rows of src and panels of weights for a part of K,
packed or in place, with their sums.
"""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.isa import Isa
from dnnl.codegen.nest import work_items
from dnnl.codegen.product.brgemm import TileShape, max_rows
from dnnl.codegen.product.multiply import Multiply

_LINE = 64  # bytes
_MOST_K_GROUPS = 1024  # the most K groups of a block
_LEAST_K_GROUPS = 128
# Row-major weights that few rows use are read in place: a page each of the rows of 8 K groups at a
# time.
_PAGE = 4096
_PAGE_K_GROUPS = 8
_WIDE = 4  # the width of tiles that read them, in vectors
_FEW_TILES = 2


@dataclass(frozen=True)
class ThreadScratch:
    """The scratch memory of a thread for a dot-product kind and panels of ``vectors`` vectors.

    ``rows`` and ``k_groups`` are the most that a block has. The row stride is ``pitch`` K groups,
    which spreads rows over the sets of a cache. The other sizes are in bytes: ``panels`` for all
    panels of a block, ``sums`` for its tiles.
    """

    tile: TileShape
    lanes: int
    group: int
    k_group_bytes: int
    column_bytes: int
    cell: int
    rows: int
    k_groups: int
    panels: int
    sums: int
    wide: TileShape

    @staticmethod
    def of(isa: Isa, dot: Multiply, vectors: int, *, ones: bool) -> ThreadScratch:
        """src, weights and sums take at most a quarter of the second-level cache each, or of what
        an invocation on a device may have."""
        quarter = isa.scratch_bytes // 4
        tile = TileShape(max_rows(isa, vectors * dot.span, dot.parts, ones=ones), vectors)
        k_group_bytes, column_bytes = dot.group * dot.a.size, dot.group * dot.b.size
        k_groups = min(_MOST_K_GROUPS, max(_LEAST_K_GROUPS, quarter // 128 // k_group_bytes))
        k_groups = k_groups // isa.lanes * isa.lanes
        pitch = (k_groups + isa.lanes) * k_group_bytes + _LINE
        tiles = max(1, -(-quarter // pitch // tile.rows))
        cell = isa.lanes * dot.accumulator_bytes
        least = (tile.rows + ones) * vectors * cell
        wide = TileShape(max_rows(isa, _WIDE * dot.span, dot.parts, ones=ones), _WIDE)
        few = _FEW_TILES * (wide.rows + ones) * wide.vectors * cell
        return ThreadScratch(
            tile,
            isa.lanes,
            dot.group,
            k_group_bytes,
            column_bytes,
            cell,
            tiles * tile.rows,
            k_groups,
            max(quarter, (k_groups + isa.lanes) * vectors * isa.lanes * column_bytes),
            max(quarter, tiles * least, few),
            wide,
        )

    @property
    def pitch(self) -> int:
        """The row stride in K groups."""
        return self.k_groups + self.lanes + _LINE // self.k_group_bytes

    @property
    def lines(self) -> int:
        """The rows that are allocated: stores are of whole squares."""
        return -(-self.rows // self.lanes) * self.lanes

    @property
    def width(self) -> int:
        """The columns of a panel."""
        return self.tile.vectors * self.lanes


@dataclass(frozen=True)
class Extents:
    """The sizes of an execution: batch, M, N, and K in K groups and in terms. Weights are in
    ``panels``, or row-major (``in_rows``)."""

    batch: int
    rows: int
    columns: int
    k_groups: int
    terms: int
    panels: bool
    in_rows: bool


@dataclass(frozen=True)
class Blocks:
    """The most rows, panels (of a tile's width) and K groups of a block. ``threads`` is the number
    of threads that there is work for. Row-major weights may be read ``in_place``."""

    tile: TileShape
    rows: int
    panels: int
    k_groups: int
    threads: int
    in_place: bool = False


def choose_blocks(isa: Isa, scratch: ThreadScratch, size: Extents) -> Blocks:
    """The blocks of an execution, with as few K blocks as the scratch memory allows."""
    work = size.batch * size.rows * size.columns * max(1, size.terms) // work_items.MULTIPLY_ADDS
    threads = max(1, work // work_items.LEAST_WORK)
    wanted = min(work_items.FEW_ITEMS, threads)
    wide = scratch.wide.vectors * scratch.lanes
    if size.in_rows and size.rows <= _FEW_TILES * scratch.wide.rows and not size.columns % wide:
        return _in_place(scratch, size, threads)
    tile = scratch.tile
    total = max(1, -(-size.columns // scratch.width))
    parts = max(1, -(-size.k_groups // scratch.k_groups))
    k_groups = max(1, -(-size.k_groups // parts))
    rows = _even(size.rows, scratch.rows, tile.rows)
    panels = max(
        1,
        scratch.panels // (_padded(k_groups, scratch.lanes) * scratch.width * scratch.column_bytes),
    )
    if parts > 1:
        panels = min(panels, _with_sums(scratch, tile, rows))
    panels = _even(total, panels, 1)

    def items() -> int:
        return size.batch * -(-max(1, size.rows) // rows) * -(-total // panels)

    cheap = size.panels or parts == 1  # blocks of rows then share packed weights
    while items() < wanted and cheap and rows > 2 * tile.rows:
        rows = _even(rows, rows - 1, tile.rows)
    while items() < wanted and panels > 1:
        panels = _even(panels, panels - 1, 1)
    return Blocks(tile, rows, panels, k_groups, threads)


def _in_place(scratch: ThreadScratch, size: Extents, threads: int) -> Blocks:
    """Row-major weights that few rows of src use: pieces of some rows at a time."""
    tile = scratch.wide
    width = tile.vectors * scratch.lanes
    total = max(1, size.columns // width)
    rows = _even(size.rows, scratch.rows, tile.rows)
    page = max(1, _PAGE * scratch.group // (width * scratch.column_bytes))
    pieces = 2 if threads > 1 and total * size.batch <= page else 1
    panels = min(page, -(-total // pieces), _with_sums(scratch, tile, rows))
    return Blocks(tile, rows, _even(total, panels, 1), _PAGE_K_GROUPS, threads, in_place=True)


def _with_sums(scratch: ThreadScratch, tile: TileShape, rows: int) -> int:
    """The panels for which there is scratch memory for the sums of ``rows`` rows."""
    cells = (tile.rows + 1) * tile.vectors * scratch.cell  # including a row of ones
    return max(1, scratch.sums // (-(-rows // tile.rows) * cells))


def _padded(k_groups: int, lanes: int) -> int:
    """The K groups of a panel, rounded up to whole squares."""
    return -(-k_groups // lanes) * lanes


def _even(count: int, most: int, step: int) -> int:
    """The size of parts of at most ``most``, a multiple of ``step``, of about equal size."""
    parts = max(1, -(-count // max(step, most)))
    return max(step, -(-count // parts // step) * step)
