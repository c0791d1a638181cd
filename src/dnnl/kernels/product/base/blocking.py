"""What of a product is kept where: tiles in registers, blocks in the second-level cache."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.nest import work_items
from dnnl.codegen.product.brgemm import TileShape

# Tiles that make up for loading a part of a panel.
_TILES = 16
_PAGE = 4096
# Words of which panels that are made have multiples: those of an instruction of a matrix unit.
_BLOCK = 16
# Rows that processors read ahead side by side.
_ROWS = 8
# Bytes of a row that are worth to look for its page, and groups of panels that threads share.
_RUN, _LEAST_ITEMS = 512, 8


@dataclass(frozen=True)
class Blocking:
    """The sizes of the blocks of a product with tiles of shape ``tile``.

    ``panels`` of weights, one after the other, meet a block of ``places`` before the next places
    do; 0 lets each tile meet all panels, which then had better be in a cache together. The places
    are all of a line if their number is 0. Of each sum ``steps`` are computed before those of the
    next tile of a block, all of them if 0. Tiles of ``single_rows`` have places of one row of an
    image each.
    """

    tile: TileShape
    panels: int = 0
    places: int = 0
    steps: int = 0
    single_rows: bool = False


@dataclass(frozen=True)
class Size:
    """A product of matrices: the rows that meet each panel, how many panels there are, the steps of
    a sum, and the bytes of one step in a row of src and in a panel. ``in_rows`` is 0 for weights in
    panels; where each of their rows goes on in the next panel, it is how many a step has. Tiles are
    ``fast`` where a matrix unit reads both factors faster than the second-level cache. Threads make
    panels where these are ``packed_on_the_fly``, of rows that lie ``row_bytes`` apart unless that
    is 0."""

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
    """Blocks for the second-level cache.

    All panels stay in it if they take half of it or less; else one does, while the rows of src pass
    by, of which processors follow each that has pages of its own. Rows that share pages are kept in
    blocks. Where one panel is too large, the sums are computed in parts; and where weights lie in
    rows, so that some of these are read side by side, a page of each at a time. Fast tiles want one
    of their factors in the first-level cache, which keeps a third of its size of a panel.
    """
    if isa.device is not None:
        return Blocking(tile, panels=1)
    cache, panel = isa.caches.l2 // 2, size.steps * size.panel_step
    if size.packed_on_the_fly:
        return _packed_on_the_fly(isa, tile, size)
    if size.fast and size.rows > tile.rows and panel > isa.caches.l1 // 2:
        places = max(tile.rows, cache // 2 // (size.steps * size.src_step))
        return Blocking(tile, 1, places, max(1, isa.caches.l1 // 3 // size.panel_step))
    if size.panels * panel <= cache:
        return Blocking(tile)
    if size.in_rows:
        page = max(1, _PAGE * size.in_rows // size.panel_step)
        return Blocking(tile, min(size.panels, page), 0, max(1, _ROWS // size.in_rows))
    if size.rows <= tile.rows:
        return Blocking(tile, panels=1)
    if panel > cache:
        return _in_parts(isa, tile, size)
    row = size.steps * size.src_step
    return Blocking(tile, panels=1, places=0 if row >= _PAGE else cache // 4 // row)


def _packed_on_the_fly(isa: Isa, tile: TileShape, size: Size) -> Blocking:
    """As much of a panel is made as leaves room for src in the first-level cache for a matrix unit,
    in the second-level one for others, once for as many rows as have their part of src there."""
    if size.panel_step <= LINE and size.row_bytes >= _PAGE:
        return _side_by_side(isa, tile, size)
    near = size.fast or size.rows <= tile.rows
    part = isa.caches.l1 // 3 if near else isa.caches.l2 // 4
    fitting = max(_BLOCK, part // size.panel_step // _BLOCK * _BLOCK)
    steps = fitting if fitting < size.steps else 0
    places = isa.caches.l2 // 4 // ((steps or size.steps) * size.src_step)
    return Blocking(tile, 1, 0 if size.rows <= tile.rows else max(places, tile.rows), steps)


def _side_by_side(isa: Isa, tile: TileShape, size: Size) -> Blocking:
    """Panels with no more than a line of each row, which has pages of its own: several are made at
    a time, of as many rows as half of the first-level cache holds."""
    panels = max(1, min(size.panels, _RUN // size.panel_step))
    while panels > 1 and -(-size.panels // panels) < _LEAST_ITEMS:
        panels = -(-panels // 2)
    part = isa.caches.l1 // 2 // (panels * size.panel_step)
    steps = max(_BLOCK, part // _BLOCK * _BLOCK)
    return Blocking(tile, panels, 0 if size.rows <= tile.rows else size.rows, steps)


def _in_parts(isa: Isa, tile: TileShape, size: Size) -> Blocking:
    """A block of src fills half of the cache, and the sums of some panels a quarter; fewer panels
    where threads would have nothing to do."""
    cache = isa.caches.l2 // 2
    places = min(size.rows, _TILES * tile.rows)
    steps = max(1, cache // (places * size.src_step))
    sums = places * tile.vectors * isa.vector_bits // 8
    panels = max(1, min(size.panels, cache // 2 // sums))
    while panels > 1 and -(-size.rows // places) * -(-size.panels // panels) < work_items.FEW_ITEMS:
        panels = -(-panels // 2)
    return Blocking(tile, panels, places, steps)
