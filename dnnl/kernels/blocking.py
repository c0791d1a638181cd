"""What of a product is kept where: tiles in registers, blocks in the second-level cache."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.brgemm import TileShape
from dnnl.codegen.isa import Isa

# Tiles that meet a panel make up for loading it.
_TILES = 8
# Work items that keep several threads busy.
_ITEMS = 16


@dataclass(frozen=True)
class Blocking:
    """The sizes of the blocks of a product with tiles of shape ``tile``.

    ``panels`` of weights, one after the other, meet a block of ``places`` before the next places
    do; 0 lets each tile meet all panels, which then had better be in a cache together. The places
    are all of a line if their number is 0. Of each sum ``steps`` are computed before those of the
    next tile of a block, all of them if 0.
    """

    tile: TileShape
    panels: int = 0
    places: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Size:
    """A product of matrices: the rows that meet each panel, how many panels there are, the steps of
    a sum, and the bytes of one step in a row of src and in a panel."""

    rows: int
    panels: int
    steps: int
    src_step: int
    panel_step: int


def choose_blocking(isa: Isa, tile: TileShape, size: Size, *, split_sums: bool) -> Blocking:
    """Blocks that leave a half of the second-level cache to what is read once.

    Sums are computed in parts, if they may be, where rows of src are so long that too few of them
    fit beside each other.
    """
    if isa.device is not None:
        return Blocking(tile, panels=1)
    cache = isa.caches.l2 // 2
    if size.panels * size.steps * size.panel_step <= cache:
        return Blocking(tile)
    if size.rows <= tile.rows:
        return Blocking(tile, panels=1)
    fitting = cache // max(1, size.steps * size.src_step)
    wanted = min(size.rows, _TILES * tile.rows)
    if fitting >= wanted or not split_sums:
        return Blocking(tile, panels=1, places=max(fitting, wanted))
    places = min(size.rows, 2 * _TILES * tile.rows)
    steps = max(1, cache // (places * size.src_step))
    sums = places * tile.vectors * isa.vector_bits // 8
    panels = max(1, min(size.panels, cache // 2 // sums))
    while panels > 1 and -(-size.rows // places) * -(-size.panels // panels) < _ITEMS:
        panels = -(-panels // 2)
    return Blocking(tile, panels, places, steps)
