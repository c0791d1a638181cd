"""Blocked layouts: where each element of a tensor lives, as arithmetic on plain tuples.

A layout splits every dimension into an outer part and zero or more inner blocks. The inner
blocks of all dimensions are innermost, in the order of ``inner_blocks``; ``strides`` lead from
one outer block to the next. For ``aBcd16b`` and dims (2, 20, 3, 3)::

    position (n, c, h, w) -> n * strides[0] + (c // 16) * strides[1] + h * strides[2]
                             + w * strides[3] + c % 16

Everything counts elements, never bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from dnnl.errors import InvalidArguments
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.size import Descending, is_known, is_one, order
from dnnl.types.tag import FormatTag, block_sizes

Blocks = tuple[tuple[int, int], ...]


class Layout(NamedTuple):
    """A blocked layout; ``inner_blocks`` are (dimension, size), outermost first.

    ``padded_dims`` are ``dims`` rounded up to whole blocks, except in a part of a block that
    belongs to a bigger tensor: there is nothing to pad there.
    """

    dims: tuple[int, ...]
    padded_dims: tuple[int, ...]
    strides: tuple[int, ...]
    inner_blocks: Blocks = ()
    offset0: int = 0

    @property
    def blocks(self) -> tuple[int, ...]:
        """The product of the inner blocks of each dimension."""
        return block_sizes(len(self.dims), self.inner_blocks)

    @property
    def outer_dims(self) -> tuple[int, ...]:
        """How many outer blocks each dimension has."""
        if not self.inner_blocks:
            return self.padded_dims
        return tuple(
            size if size == RUNTIME_DIM else -(-size // block)
            for size, block in zip(self.padded_dims, self.blocks, strict=True)
        )

    @property
    def has_runtime(self) -> bool:
        """Whether any size, stride or offset is known only at execution."""
        return (
            RUNTIME_DIM in self.padded_dims
            or RUNTIME_DIM in self.strides
            or self.offset0 == RUNTIME_DIM
        )


def round_up(dims: Sequence[int], blocks: Sequence[int]) -> tuple[int, ...]:
    """Return every dimension rounded up to whole blocks; runtime dimensions stay."""
    return tuple(
        size if size == RUNTIME_DIM else -(-size // block) * block
        for size, block in zip(dims, blocks, strict=True)
    )


def dense(dims: tuple[int, ...], order: Sequence[int], inner_blocks: Blocks = ()) -> Layout:
    """Return the layout without gaps that has its outer blocks in ``order``.

    Strides outside of a runtime dimension are runtime values themselves.
    """
    blocks = block_sizes(len(dims), inner_blocks)
    padded = round_up(dims, blocks) if inner_blocks else dims
    strides = [0] * len(dims)
    stride = prod(blocks)
    for dim in reversed(order):
        strides[dim] = stride
        size = padded[dim]
        if RUNTIME_DIM in (stride, size):
            stride = RUNTIME_DIM
        else:
            stride *= size // blocks[dim] or 1
    return Layout(dims, padded, tuple(strides), inner_blocks)


def span(layout: Layout) -> int:
    """Return the number of elements from the first to the last one, padding included.

    ``offset0`` is not included. Zero for a tensor without elements; RUNTIME_DIM where unknown.
    """
    if 0 in layout.dims:
        return 0
    if layout.has_runtime:
        return RUNTIME_DIM
    block = prod(size for _, size in layout.inner_blocks) if layout.inner_blocks else 1
    reach: Iterable[int] = map(operator.mul, layout.outer_dims, layout.strides)
    return block + sum(reach) - sum(layout.strides)


def offset(layout: Layout, index: Sequence[int]) -> int:
    """Return the physical offset of the element at a position inside ``padded_dims``."""
    position = list(index)
    total, inner = layout.offset0, 1
    for dim, size in reversed(layout.inner_blocks):
        position[dim], rest = divmod(position[dim], size)
        total += rest * inner
        inner *= size
    return total + sum(p * s for p, s in zip(position, layout.strides, strict=True))


def order_of(layout: Layout) -> tuple[int, ...]:
    """Return the dimensions from outermost to innermost, as the strides have them.

    Among equal strides the longer dimension is the outer one, then the one with smaller index.
    """
    outer = layout.outer_dims
    known = all(map(is_known, (*outer, *layout.strides)))
    fall: Callable[[int], Any] = operator.neg if known else Descending
    return tuple(
        sorted(range(len(outer)), key=lambda d: (fall(layout.strides[d]), fall(outer[d]), d))
    )


def same_strides(a: Layout, b: Layout) -> bool:
    """Whether two layouts put each element at the same distance from ``offset0``.

    The stride of a dimension that has one position only is never used, so it does not count.
    """
    if a.padded_dims != b.padded_dims or a.dims != b.dims or a.inner_blocks != b.inner_blocks:
        return False
    return all(
        is_one(n) or s == t for n, s, t in zip(a.padded_dims, a.strides, b.strides, strict=True)
    )


def find_tag(layout: Layout) -> FormatTag | None:
    """Return the tag that gives this layout (up to ``offset0``), or None where none does."""
    if not layout.dims or layout.has_runtime:
        return None
    order = order_of(layout)
    if not same_strides(layout, dense(layout.dims, order, layout.inner_blocks)):
        return None
    return FormatTag.of(order, layout.inner_blocks)


def check_overlap(layout: Layout) -> None:
    """Raise InvalidArguments where two elements would share a place.

    Stride 0 means broadcast and is allowed; a dimension with one position may have any stride.
    Runtime values are not checked.
    """
    if layout.has_runtime or 0 in layout.dims:
        return
    reach = prod(size for _, size in layout.inner_blocks)
    outer = layout.outer_dims
    for dim in reversed(order_of(layout)):
        stride = layout.strides[dim]
        if is_one(outer[dim]) or stride == 0:
            continue
        if stride < reach:
            rule = f"stride {stride} of dimension {dim} overlaps the {reach} elements inside it"
            hint = f"strides of a dense tensor: {dense_strides(layout)}, 0 to broadcast"
            raise InvalidArguments("strides", layout.strides, rule, hint)
        reach += (outer[dim] - 1) * stride


def dense_strides(layout: Layout) -> tuple[int, ...]:
    """Return the row-major strides without gaps for the same dims and inner blocks."""
    return dense(layout.dims, range(len(layout.dims)), layout.inner_blocks).strides


def permute(layout: Layout, perm: Sequence[int]) -> Layout:
    """Return the layout whose dimension ``perm[d]`` is dimension ``d`` of the given one."""
    source = [0] * len(perm)
    for old, new in enumerate(perm):
        source[new] = old
    return Layout(
        tuple(layout.dims[d] for d in source),
        tuple(layout.padded_dims[d] for d in source),
        tuple(layout.strides[d] for d in source),
        tuple((perm[dim], size) for dim, size in layout.inner_blocks),
        layout.offset0,
    )


def part(layout: Layout, dims: Sequence[int], offsets: Sequence[int]) -> Layout:
    """Return the layout of the region of ``dims`` that begins at ``offsets``.

    The region must begin on a block in every dimension, and end on one, within the first one or
    at the end of the tensor; InvalidArguments otherwise. Padding remains at the tensor's end and
    nowhere else, because any other edge is followed by elements of the whole tensor.
    """
    padded = []
    start = layout.offset0
    for d, (size, first, block) in enumerate(zip(dims, offsets, layout.blocks, strict=True)):
        whole = layout.dims[d]
        if first < 0 or size < 0 or first + size > whole:
            rule = f"{first}..{first + size} leaves dimension {d}, which has {whole}"
            raise InvalidArguments("dims", tuple(dims), rule, f"offsets = {tuple(offsets)}")
        if first % block:
            rule = f"a region begins on a whole block: dimension {d} has blocks of {block}"
            near = first // block * block
            raise InvalidArguments("offsets", tuple(offsets), rule, f"{near} or {near + block}")
        at_end = first + size == whole
        if not at_end and size % block and size > block:
            rule = f"a region ends on a whole block: dimension {d} has blocks of {block}"
            near = size // block * block
            raise InvalidArguments("dims", tuple(dims), rule, f"{near} works for dimension {d}")
        padded.append(layout.padded_dims[d] - first if at_end else size)
        start += first // block * layout.strides[d]
    return Layout(tuple(dims), tuple(padded), layout.strides, layout.inner_blocks, start)


class _Run(NamedTuple):
    """Neighbouring dimensions, old and new, that hold the same elements."""

    old: list[int]
    new: list[int]


def _fixed(layout: Layout, dim: int) -> bool:
    """Whether a dimension is blocked or padded, and so can be neither cut nor merged."""
    return layout.blocks[dim] != 1 or layout.padded_dims[dim] != layout.dims[dim]


def _runs(layout: Layout, dims: tuple[int, ...]) -> list[_Run]:
    """Match old and new dimensions into the shortest runs of equal volume.

    New dimensions of size 1 that no old one needs are left out: they are placed afterwards.
    """
    old = [d for d, size in enumerate(layout.dims) if not is_one(size) or _fixed(layout, d)]
    runs: list[_Run] = []
    new = 0
    while old:
        left, right = [old.pop(0)], []
        have, want = layout.dims[left[0]], 0
        while (place := order(have, want)) != 0:
            if place < 0:
                left.append(old.pop(0))
                have *= layout.dims[left[-1]]
                continue
            if not is_one(dims[new]) or is_one(have):
                right.append(new)
                want = max(want, 1) * dims[new]
            new += 1
        runs.append(_Run(left, right))
    return runs


def reshape(layout: Layout, dims: tuple[int, ...]) -> Layout:
    """Return the layout of the same elements in the same places, as a tensor of ``dims``.

    Dimensions of size 1 may come and go; others may stay; neighbours that are unblocked,
    unpadded and follow each other without gap may be merged, cut, or both. InvalidArguments
    where ``dims`` ask for anything else.
    """
    if 0 in dims:
        return _reshape_empty(layout, dims)
    padded, strides = list(dims), [-1] * len(dims)
    renamed: dict[int, int] = {}
    for run in _runs_or_refusal(layout, dims):
        if len(run.old) == len(run.new) == 1:
            (d,), (e,) = run
            padded[e], strides[e] = layout.padded_dims[d], layout.strides[d]
            renamed[d] = e
            continue
        _check_mergeable(layout, run.old, dims)
        stride = layout.strides[run.old[-1]]
        for e in reversed(run.new):
            strides[e] = stride
            stride *= dims[e]
    inner = tuple((renamed[dim], size) for dim, size in layout.inner_blocks)
    done = Layout(dims, tuple(padded), tuple(strides), inner, layout.offset0)
    return done._replace(strides=_place_units(done))


def _runs_or_refusal(layout: Layout, dims: tuple[int, ...]) -> list[_Run]:
    """Return :func:`_runs`, or raise where a blocked dimension of size 1 finds no partner."""
    try:
        return _runs(layout, dims)
    except IndexError:
        rule = "a dimension that is blocked or padded cannot be removed"
        raise InvalidArguments("dims", dims, rule, f"use its dims {layout.dims}") from None


def _reshape_empty(layout: Layout, dims: tuple[int, ...]) -> Layout:
    """Reshape a tensor without elements: it has no offsets, so the result is row-major."""
    if layout.inner_blocks:
        rule = "an empty tensor in a blocked layout cannot be reshaped"
        raise InvalidArguments("dims", dims, rule, f"use its dims {layout.dims}")
    return dense(dims, range(len(dims)))._replace(offset0=layout.offset0)


def _check_mergeable(layout: Layout, run: list[int], dims: tuple[int, ...]) -> None:
    """Raise where the dimensions of a run are not one unblocked piece without gaps."""
    for d in run:
        if _fixed(layout, d):
            rule = f"dimension {d} is blocked or padded and cannot change"
            raise InvalidArguments("dims", dims, rule, "reorder to a plain layout first")
    for outer, inner in pairwise(run):
        if layout.strides[outer] != layout.strides[inner] * layout.dims[inner]:
            rule = f"dimensions {outer} and {inner} do not follow each other without gap in memory"
            raise InvalidArguments("dims", dims, rule, "reorder to a row-major layout first")


def _place_units(layout: Layout) -> tuple[int, ...]:
    """Return the strides with those of added unit dimensions (-1) filled in.

    A unit dimension is placed just outside of the one that follows it, and innermost at the end.
    """
    strides = list(layout.strides)
    inner = prod(size for _, size in layout.inner_blocks)
    outer = layout.outer_dims
    outside = next((stride for stride in reversed(strides) if stride != -1), inner)
    for e in reversed(range(len(strides))):
        if strides[e] == -1:
            strides[e] = outside
        else:
            outside = strides[e] * outer[e]
    return tuple(strides)
