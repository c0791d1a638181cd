"""Cache blocking of a product: tiles in registers, blocks in the second-level cache."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.nest import work_items
from dnnl.codegen.product.brgemm import TileShape
from dnnl.types.size import is_known, larger, smaller, typical

# Tiles over which the loading of a part of a panel is amortized.
_TILES = 16
_PAGE = 4096
# K groups per block of an instruction of a matrix unit; packed panels hold multiples of it.
_BLOCK = 16
# Streams that a hardware prefetcher follows.
_ROWS = 8
# Bytes of a row that are worth a page walk.
_RUN = 512
LEAST_ITEMS = 8
"""The least items of a product that packs panels on the fly: more would pack panels again."""


@dataclass(frozen=True)
class Blocking:
    """The block sizes of a product with register tiles of shape ``tile``.

    ``panels`` of weights (an N block) meet a block of ``places`` (an M block) before the next
    places do. With 0 panels each tile meets all of them, which then should fit in a cache together.
    0 places means all places of a line. Of each sum, ``steps`` (a K block) are computed before
    those of the next tile; 0 means all of K. With ``single_rows`` a tile has pixels of one row of
    an image only. With ``few`` one tile has all rows, and only an execution knows how many.
    """

    tile: TileShape
    panels: int = 0
    places: int = 0
    steps: int = 0
    single_rows: bool = False
    few: bool = False


@dataclass(frozen=True)
class Size:
    """The size of a matrix product.

    ``rows`` is M, ``panels`` the number of panels of weights, ``steps`` the K groups of a sum;
    ``src_step`` and ``panel_step`` are the bytes of one step in a row of src and in a panel.
    ``in_rows`` is 0 for weights in panels, and for row-major weights the number of their rows in a
    step. ``fast`` says that a matrix unit consumes both operands faster than the second-level cache
    delivers them. ``packed_on_the_fly`` says that threads pack the panels, from rows ``row_bytes``
    apart unless that is 0.
    """

    rows: int
    panels: int
    steps: int
    src_step: int
    panel_step: int
    in_rows: int = 0
    fast: bool = False
    packed_on_the_fly: bool = False
    row_bytes: int = 0


def choose_blocking(isa: Isa, tile: TileShape, size: Size) -> Blocking:
    """Choose block sizes for the second-level cache.

    - All panels stay in the cache if they take at most half of it.
    - Otherwise one panel does while the rows of src stream past it. The hardware prefetcher follows
      rows that have pages of their own; rows that share pages are blocked.
    - If one panel is too large, K is blocked.
    - If weights are row-major, a page of each of several rows is read in parallel.
    - A matrix unit wants one operand in the first-level cache: a third of it holds part of a panel.
    """
    if not isa.thread_memory:
        return Blocking(tile, panels=1)
    cache, panel = isa.caches.l2 // 2, size.steps * size.panel_step
    if size.packed_on_the_fly:
        return _packed_on_the_fly(isa, tile, size)
    if size.fast and size.rows > tile.rows and panel > isa.caches.l1 // 2:
        places = larger(tile.rows, cache // 2 // (size.steps * size.src_step))
        return Blocking(tile, 1, places, max(1, isa.caches.l1 // 3 // size.panel_step))
    if size.panels * panel <= cache:
        return Blocking(tile)
    if size.in_rows:
        page = max(1, _PAGE * size.in_rows // size.panel_step)
        return Blocking(tile, smaller(size.panels, page), 0, max(1, _ROWS // size.in_rows))
    if size.rows <= tile.rows:
        return Blocking(tile, panels=1)
    if panel > cache:
        return _in_parts(isa, tile, size)
    row = size.steps * size.src_step
    return Blocking(tile, panels=1, places=0 if row >= _PAGE else larger(1, cache // 4 // row))


def _packed_on_the_fly(isa: Isa, tile: TileShape, size: Size) -> Blocking:
    """Blocks of panels that threads pack. For a matrix unit a packed part leaves space for src in
    the first-level cache, otherwise in the second-level cache. Each part is used by as many rows as
    have their part of src in the cache."""
    if size.panel_step <= LINE and size.row_bytes >= _PAGE:
        return _side_by_side(isa, tile, size)
    near = size.fast or size.rows <= tile.rows
    # What is packed next is prefetched meanwhile. Rows are few sets apart in a cache.
    part = isa.caches.l1 // 3 if near else isa.caches.l2 // (16 if size.row_bytes else 4)
    fitting = max(_BLOCK, part // size.panel_step // _BLOCK * _BLOCK)
    steps = fitting if not is_known(size.steps) else _even_blocks(size.steps, fitting)
    places = isa.caches.l2 // 2 // ((steps or size.steps) * size.src_step)
    return Blocking(tile, 1, 0 if size.rows <= tile.rows else larger(places, tile.rows), steps)


def _even_blocks(steps: int, most: int) -> int:
    """The K groups of a block, of about the same number in all blocks; 0 if one has all."""
    blocks = -(-steps // most)
    return 0 if blocks <= 1 else -(-steps // (blocks * _BLOCK)) * _BLOCK


def _side_by_side(isa: Isa, tile: TileShape, size: Size) -> Blocking:
    """Panels that take at most one cache line of each source row, which has pages of its own:
    several panels are packed at a time, as many rows of them as half of the first-level cache
    holds."""
    panels = max(1, min(typical(size.panels), _RUN // size.panel_step))
    while panels > 1 and -(-typical(size.panels) // panels) < LEAST_ITEMS:
        panels = -(-panels // 2)
    part = isa.caches.l1 // 2 // (panels * size.panel_step)
    steps = max(_BLOCK, part // _BLOCK * _BLOCK)
    return Blocking(tile, panels, 0 if size.rows <= tile.rows else size.rows, steps)


def _in_parts(isa: Isa, tile: TileShape, size: Size) -> Blocking:
    """Block all three dimensions: a block of src fills half of the cache, the sums of some panels a
    quarter. Fewer panels are taken where threads would be idle."""
    cache = isa.caches.l2 // 2
    places = min(size.rows, _TILES * tile.rows)
    steps = max(1, cache // (places * size.src_step))
    sums = places * tile.vectors * isa.vector_bits // 8
    wanted = typical(size.panels)
    panels = max(1, min(wanted, cache // 2 // sums))
    while panels > 1 and -(-size.rows // places) * -(-wanted // panels) < work_items.FEW_ITEMS:
        panels = -(-panels // 2)
    return Blocking(tile, panels, places, steps)


def even_rows(rows: int, most: int) -> int:
    """The rows of a tile: as few tiles as possible, of about the same height."""
    return most if rows <= most else -(-rows // -(-rows // most))
