"""Hypothesis strategies for shapes and for every kind of layout that a descriptor can have.

Sizes lie around the lengths of vectors, or make strides that caches do not like; layouts are dense,
blocked once or several times, padded beyond their blocks, with gaps between elements or rows, and
regions of larger tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hypothesis import strategies as st

from dnnl.types.layout import Blocks, round_up
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import MAX_NDIMS, FormatTag, block_sizes

NEAR_VECTORS = (4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 31, 32, 33, 48, 63, 64, 65, 127, 128, 130)
# Rows of 2 or 4 KiB, whose lines share few sets of a cache, and as many elements a little longer.
CROWDED = (512, 1024, 1030)
SMALL = (1, 1, 2, 2, 3)
# Blocks of 3 and 5 have no boundaries in common with the others.
BLOCKS = (2, 3, 4, 5, 8, 8, 16, 16, 32)
MOST_ELEMENTS = 2**13
# With padding and gaps; a layout that would span more is dense instead.
MOST_PLACES = 2**17


@st.composite
def shapes(draw: st.DrawFn, min_ndims: int = 0, max_ndims: int = 6) -> tuple[int, ...]:
    """Dims of at most ``MOST_ELEMENTS`` elements: a few long ones, the others short."""
    count = draw(st.integers(min_ndims, max_ndims))
    budget = MOST_ELEMENTS
    dims: list[int] = []
    for _ in range(count):
        longer = [*NEAR_VECTORS, *CROWDED] if len(dims) < 3 else []
        size = draw(st.sampled_from([*SMALL, *(size for size in longer if size <= budget)]))
        size = min(size, budget)
        dims.append(size)
        budget //= size
    return tuple(draw(st.permutations(dims)))


many_dims = shapes(7, MAX_NDIMS)


@st.composite
def empty_shapes(draw: st.DrawFn) -> tuple[int, ...]:
    """Dims of which at least one is 0."""
    dims = list(draw(shapes(1)))
    dims[draw(st.integers(0, len(dims) - 1))] = 0
    return tuple(dims)


@dataclass(frozen=True)
class Style:
    """What a layout may have besides an order of its dimensions."""

    blocks: int = 0
    gaps: bool = False
    padding: bool = False
    region: bool = False


PLAIN = Style()
STYLES = (
    PLAIN,
    Style(blocks=1),
    Style(blocks=3),
    Style(gaps=True),
    Style(region=True),
    Style(blocks=2, region=True),
    Style(blocks=2, gaps=True, padding=True),
    Style(blocks=2, gaps=True, padding=True, region=True),
)


@st.composite
def descs(
    draw: st.DrawFn, dims: Sequence[int], data_type: str, styles: Sequence[Style] = STYLES
) -> MemoryDesc:
    """A descriptor of ``dims`` in a layout of one of ``styles``."""
    style = draw(st.sampled_from(styles))
    order = draw(st.permutations(range(len(dims))))
    blocks = draw(_inner_blocks(dims, style.blocks)) if style.blocks and dims else ()
    sizes = block_sizes(len(dims), blocks)
    begin, whole = [0] * len(dims), list(dims)
    if style.region:
        for d, block in enumerate(sizes):
            begin[d] = block * draw(st.integers(0, 1))
            open_end = dims[d] % block == 0 or dims[d] < block
            whole[d] += begin[d] + (draw(st.integers(0, 2)) if open_end else 0)
    padded = list(round_up(whole, sizes))
    if style.padding:
        for d, block in enumerate(sizes):
            padded[d] += block * draw(st.integers(0, 1)) if whole[d] else 0
    strides = draw(_strides(padded, order, blocks, style.gaps))
    offset0 = draw(st.sampled_from((0, 0, 1, 2, 5, 16))) if style.region or style.gaps else 0
    # As f32, since 4-bit elements in strides are refused; regions of dense tensors have them too.
    made = MemoryDesc(
        whole, "f32", strides, inner_blocks=blocks, padded_dims=padded, offset0=offset0
    )
    if style.region:
        made = made.submemory(dims, begin)
    if made.size > MOST_PLACES * made.data_type.size:
        made = MemoryDesc(dims, "f32", FormatTag.of(order))
    return made.with_data_type(data_type)


@st.composite
def _inner_blocks(draw: st.DrawFn, dims: Sequence[int], count: int) -> Blocks:
    """At most ``count`` inner blocks, of sizes for which there is room."""
    blocks: list[tuple[int, int]] = []
    for _ in range(count):
        dim = draw(st.integers(0, len(dims) - 1))
        fitting = [size for size in BLOCKS if _padded(dims, (*blocks, (dim, size))) <= MOST_PLACES]
        if fitting:
            blocks.append((dim, draw(st.sampled_from(fitting))))
    return tuple(blocks)


def _padded(dims: Sequence[int], blocks: Blocks) -> int:
    return prod(round_up(dims, block_sizes(len(dims), blocks)))


@st.composite
def _strides(
    draw: st.DrawFn, padded: Sequence[int], order: Sequence[int], blocks: Blocks, gaps: bool
) -> list[int]:
    """Strides of a dense layout, or with up to three unused places after each step."""
    sizes = block_sizes(len(padded), blocks)
    strides = [0] * len(padded)
    step = prod(sizes)
    for dim in reversed(order):
        if gaps:
            factor = draw(st.sampled_from((1, 1, 1, 2, 3, 4, 5))) if step < 64 else 1
            step = step * factor + draw(st.sampled_from((0, 0, 1, 2, 3, 16)))
        strides[dim] = step
        step *= max(1, padded[dim] // sizes[dim])
    return strides
