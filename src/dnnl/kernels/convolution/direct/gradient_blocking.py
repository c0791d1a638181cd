"""How the sums of a gradient of weights are cut: into parts for threads, and into blocks for the
second-level cache, or for the first-level one.

All numbers follow from sizes and caches, never from the number of threads, so that any number of
threads adds in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Protocol

from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest import work_items
from dnnl.codegen.product.brgemm import TileShape
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.product.base.pixel_tiles import Space
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import typical

_SUMS = 4
"""The sums of a work item fill at most this fraction of the second-level cache."""
_OPERANDS = 2
"""The parts of both operands of a block fill at most this fraction."""
_TERMS = 384
"""The least K groups of a part whose sums go through memory: that of fewer would cost more than a
tenth of the time."""
_F32 = 4
_DELIVERED = 8
"""The bytes that the second-level cache delivers for each multiply-add: 16 a cycle, in which two
begin. A tile that reads more needs its operands in the first-level cache."""


@dataclass(frozen=True)
class Cut:
    """Images, or K groups of them, in ``image_parts`` parts, and rows of pixels in ``row_parts``:
    the items that threads do. Each part is summed in blocks of ``images`` and ``rows`` rows along
    dimension ``dim``. A work item has ``channels`` channels of src and ``panels`` panels of
    diff_dst; 0 means all. If src has blocks of channels, these are ``channel_blocks`` whole ones.
    """

    image_parts: int
    row_parts: int
    image_blocks: int
    row_blocks: int
    images: int
    rows: int
    dim: int
    channels: int
    panels: int
    channel_blocks: int = 1

    def __str__(self) -> str:
        images = "1 image" if self.images == 1 else f"{self.images} images"
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        blocks = self.image_blocks * self.row_blocks
        part = f"{blocks} blocks of {images} and {rows}" if blocks > 1 else f"{images} and {rows}"
        if self.parts == 1:
            return f"sums of {part}"
        return f"sums in {self.parts} parts, each of {part}"

    @property
    def steps(self) -> int:
        """The pixels of a block, 0 where blocks are of images and rows."""
        return 0

    @property
    def parts(self) -> int:
        """The number of parts."""
        return self.image_parts * self.row_parts

    def axes(self) -> tuple[tuple[Axis, Axis], tuple[Axis, ...]]:
        """The axes of parts, and those of the blocks of a part."""
        parts = Axis(self.image_parts, "images"), Axis(self.row_parts, "rows")
        blocks = Axis(self.image_blocks, "image_block"), Axis(self.row_blocks, "row_block")
        return parts, blocks if self.image_blocks * self.row_blocks > 1 else ()

    def first_image(self, parts: tuple[Axis, Axis], blocks: tuple[Axis, ...]) -> Affine:
        """The first image of a block."""
        form = Affine.of(parts[0], self.image_blocks * self.images)
        return form + Affine.of(blocks[0], self.images) if blocks else form

    def first_row(self, parts: tuple[Axis, Axis], blocks: tuple[Axis, ...]) -> Affine:
        """The first row of a block."""
        form = Affine.of(parts[1], self.row_blocks * self.rows)
        return form + Affine.of(blocks[1], self.rows) if blocks else form


@dataclass(frozen=True)
class OpenCut:
    """Sums in ``image_parts`` parts, which take blocks of ``steps`` pixels in turn; with 0 steps
    there is one part, with all pixels. ``channels``, ``panels`` and ``channel_blocks`` are those of
    a work item, as in `Cut`."""

    image_parts: int
    steps: int
    channels: int
    panels: int
    channel_blocks: int
    row_parts: int = 1

    def __str__(self) -> str:
        blocks = f"blocks of {self.steps} pixels" if self.steps else "all pixels"
        many = typical(self.parts)
        return f"sums in {many} parts, by {blocks} in turn" if many > 1 else f"sums by {blocks}"

    @property
    def parts(self) -> int:
        """The number of parts."""
        return self.image_parts


class Sizes(Protocol):
    """The sizes of a gradient of weights."""

    @property
    def src(self) -> MemoryDesc:
        """The first operand."""

    @property
    def space(self) -> Space:
        """Depth, height and width."""

    @property
    def diff_weights(self) -> MemoryDesc:
        """The result."""

    @property
    def groups(self) -> int:
        """The number of groups."""

    @property
    def outputs(self) -> int:
        """The channels of diff_dst in a group."""

    @property
    def channels(self) -> int:
        """The channels of src in a group."""


def cut_sums(
    problem: Sizes,
    isa: Isa,
    tile: TileShape,
    dot: Multiply,
    block: int,
    least: int = 0,
    together: int = 1,
) -> Cut:
    """Choose the cut of a gradient whose register tiles have the shape ``tile``. If ``block`` is
    not 0, a work item has whole blocks of so many channels of src, and all items have as many; the
    same holds for ``least`` panels. So many K groups of images ``together`` count as an image."""
    images, space = -(-problem.src.dims[0] // (dot.group * together)), problem.space
    dim = next((dim for dim, own in enumerate(space) if own.dst > 1), 2)
    own = space[dim]
    # Rows are divided only if there is padding in front or none at all: one block cannot see
    # padding behind the image.
    rows = own.dst if dim < 2 and (own.padding > 0 or not own.padded) else 1
    if not isa.thread_memory or problem.diff_weights.has_zero_dim:
        return Cut(1, 1, 1, 1, images, own.dst, dim, 0, 1)
    terms = images * together * prod(each.dst for each in space)
    share = share_out(problem, isa, tile, terms, block, least)
    image_parts = _near_divisor(images, share.parts)
    row_parts = _near_divisor(rows, -(-share.parts // image_parts))
    per_row, budget = terms // max(1, images * own.dst), share.terms
    row_block, some = _largest_divisor(rows // row_parts, budget // max(1, per_row)), 1
    if row_block == rows:
        some = _largest_divisor(images // image_parts, budget // max(1, per_row * own.dst))
    images_left = max(1, images // (image_parts * some))
    return Cut(
        image_parts,
        row_parts,
        images_left,
        rows // (row_parts * row_block),
        min(images, some),
        row_block if rows > 1 else own.dst,
        dim,
        share.channels,
        share.panels,
        share.channel_blocks,
    )


@dataclass(frozen=True)
class Share:
    """What a work item sums: ``channels`` of src, which are so many whole blocks if src has blocks,
    and ``panels`` of diff_dst. Items are enough if sums are in so many ``parts``; the operands of
    so many ``terms`` stay in a cache."""

    channels: int
    panels: int
    channel_blocks: int
    parts: int
    terms: int


def share_out(
    problem: Sizes, isa: Isa, tile: TileShape, terms: int, block: int, least: int = 0
) -> Share:
    """Choose what work items sum, for sums of so many ``terms``; ``block`` and ``least`` are those
    of `cut_sums`."""
    width, taps = tile.vectors * isa.lanes, prod(own.kernel for own in problem.space)
    every, channels = -(-problem.outputs // width), problem.channels
    panels = every
    while channels * panels * width * taps * _F32 > isa.caches.l2 // _SUMS:
        fewer = _largest_divisor(every // least, panels // 2 // least) * least if least else 0
        fewer = fewer or -(-panels // 2)
        if channels > max(tile.rows, panels * width):
            channels = -(-channels // 2)
        elif fewer < panels:
            panels = fewer
        else:
            break
    blocks = _largest_divisor(problem.channels // block, channels // block) if block else 1
    channels = blocks * block or -(-channels // tile.rows) * tile.rows
    items = problem.groups * -(-problem.channels // channels)
    items *= -(-problem.outputs // (panels * width))
    work = terms * problem.channels * problem.outputs * problem.groups * taps
    wanted = work_items.target_items(isa, work // work_items.MULTIPLY_ADDS, work_items.FEW_ITEMS)
    size = problem.channels * problem.outputs * problem.groups * taps * _F32
    parts = min(-(-wanted // items), max(1, terms // _TERMS, isa.caches.l2 // size))
    budget = isa.caches.l2 // _OPERANDS // (_F32 * (channels + panels * width))
    step = LINE + _F32 * width
    if step > _DELIVERED * tile.rows * tile.vectors:
        budget = min(budget, isa.caches.l1 // step)
    return Share(channels, panels, blocks, parts, max(1, budget))


def _divisors(number: int) -> Iterable[int]:
    return (size for size in range(1, number + 1) if number % size == 0)


def _near_divisor(number: int, wanted: int) -> int:
    """The largest divisor that is at most ``wanted``; if it is less than half of that, the next
    one."""
    low = _largest_divisor(number, wanted)
    above = (size for size in _divisors(number) if size > wanted)
    return low if 2 * low >= wanted else next(above, low)


def _largest_divisor(number: int, most: int) -> int:
    """The largest divisor that is at most ``most``, at least 1."""
    return max((size for size in _divisors(number) if size <= most), default=1)
