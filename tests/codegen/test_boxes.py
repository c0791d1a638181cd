"""Boxes: every element once, every padded one once, offsets as descriptors have them."""

from __future__ import annotations

import struct
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnl import MemoryDesc
from dnnl.codegen.nest import work_items
from dnnl.kernels.reorder import boxes
from dnnl.kernels.reorder.boxes import BoxTraversal, View
from tests.check import offsets

HEAD, SHARES = 6, 64


def walk(block: bytes, views: int, begin: int = 0, end: int = SHARES) -> list[tuple[int, ...]]:
    """(zero, place in each view) of all that the items ``begin`` to ``end`` touch, in order."""
    parameters = struct.unpack(f"={len(block) // 8}q", block)
    place, found = 2, []
    for _ in range(parameters[0]):
        _, zero, rows, outer, lane, along = parameters[place : place + HEAD]
        assert outer <= parameters[1]
        place += HEAD
        triples = [parameters[place + 3 * k : place + 3 * k + 3] for k in range(views)]
        place += 3 * views
        loops = [parameters[place + k * (1 + views) :][: 1 + views] for k in range(outer)]
        place += outer * (1 + views)
        everything = list(product(*(range(extent) for extent, *_ in loops)))
        assert len(everything) == rows
        for row in everything[rows * begin // SHARES : rows * end // SHARES]:
            for line, point in product(range(along), range(lane)):
                found.append(
                    (
                        zero,
                        *(
                            base
                            + point * a
                            + line * b
                            + sum(i * loop[1 + k] for i, loop in zip(row, loops, strict=True))
                            for k, (base, a, b) in enumerate(triples)
                        ),
                    )
                )
    assert place == len(parameters)
    return found


def expected(views: list[View]) -> set[tuple[int, ...]]:
    """What a walk has to touch, by NumPy."""
    dst = views[0].desc
    inside = tuple(slice(size) for size in dst.dims)
    own = offsets(dst, dst.padded_dims)
    columns = [own[inside].ravel().tolist()]
    for view in views[1:]:
        places = offsets(view.desc, view.desc.dims)
        for dim, group in enumerate(view.groups):
            places = np.repeat(places, group, dim)
        columns.append(np.broadcast_to(places, dst.dims).ravel().tolist())
    points = {(0, *places) for places in zip(*columns, strict=True)}
    assert len(points) == len(columns[0])
    padding = np.ones(dst.padded_dims, bool)
    padding[inside] = False
    return points | {(1, place) for place in own[padding].tolist()}


def check(views: list[View], lanes: int = 8, square: int = 8) -> list[tuple[int, ...]]:
    """Walk all boxes; padding counts by its place in dst alone."""
    found = walk(boxes.sizes(views, lanes, square).data, len(views))
    seen = [point[:2] if point[0] else point for point in found]
    assert len(set(seen)) == len(seen)
    assert set(seen) == expected(views)
    return found


LAYOUTS = [
    ((2, 19, 3, 5), "abcd", "acdb"), ((2, 19, 3, 5), "aBcd4b", "aBcd16b"),
    ((3, 37), "AB4b16a4b", "BA8b2a"), ((7, 50), "AB3a4b", "AB2a6b"), ((1, 1, 1), "aBc8b", "cba"),
    ((16, 32), "AB16a16b", "AB16b16a"), ((0, 3), "ab", "ba"), ((5,), "A4a", "A16a"),
]  # fmt: skip


@pytest.mark.parametrize(("dims", "dst", "src"), LAYOUTS)
def test_layouts(dims: tuple[int, ...], dst: str, src: str) -> None:
    check([View(MemoryDesc(dims, "f32", tag)) for tag in (dst, src)])


def test_a_scalar() -> None:
    desc = MemoryDesc((), "f32")
    check([View(desc), View(desc)])


def test_long_tensors_whose_blocks_cross() -> None:
    dims = (2, 250)
    views = [View(MemoryDesc(dims, "f32", tag)) for tag in ("aB12b", "aB8b")]
    check(views)
    assert sum(1 for box in boxes._cut(views) if not box.zero) == 4 + 2


def test_groups_and_broadcast() -> None:
    dims = (6, 40)
    views = [View(MemoryDesc(dims, "f32", tag)) for tag in ("aB4b", "ba")]
    views.append(View(MemoryDesc((1, 1), "f32"), (1, 1)))
    views.append(View(MemoryDesc((6, 1), "f32"), (1, 1)))
    views.append(View(MemoryDesc((2, 8), "f32"), (3, 5)))
    check(views)


@pytest.mark.parametrize("work", [16, 1024])
def test_rows_are_cut_so_that_there_are_enough(monkeypatch: pytest.MonkeyPatch, work: int) -> None:
    monkeypatch.setattr(boxes, "_WORK_OF_A_ROW", work)
    monkeypatch.setattr(work_items, "LEAST_WORK", work)
    for dims, dst, src in (((5000,), "a", "a"), ((130, 70), "ab", "ba"), ((3, 1000), "ab", "ab")):
        views = [View(MemoryDesc(dims, "f32", tag)) for tag in (dst, src)]
        found = check(views)
        block = boxes.sizes(views, 8, 8).data
        shares = [walk(block, 2, item, item + 1) for item in range(SHARES)]
        assert sorted(point for share in shares for point in share) == sorted(found)
        quarters = [len(walk(block, 2, item, item + 16)) for item in range(0, SHARES, 16)]
        if len(found) // work >= 8:
            assert max(quarters) < len(found) / 2


def traversals(dst: MemoryDesc, src: MemoryDesc) -> list[BoxTraversal]:
    views = [View(dst), View(src)]
    return [boxes._arranged(box, views).traversal for box in boxes._cut(views)]


def test_how_boxes_are_walked() -> None:
    dims = (2, 32, 4, 4)
    nchw, nhwc, blocked = (MemoryDesc(dims, "f32", tag) for tag in ("abcd", "acdb", "aBcd16b"))
    assert traversals(nchw, nchw) == traversals(nhwc, blocked) == [BoxTraversal.LINES]
    assert traversals(nhwc, nchw) == traversals(blocked, nchw) == [BoxTraversal.SQUARES]
    assert traversals(MemoryDesc((4, 6), "f32", (20, 2)), MemoryDesc((4, 6), "f32")) == [
        BoxTraversal.EACH
    ]
    odd, even = MemoryDesc((3, 5), "s4"), MemoryDesc((3, 6), "s4")
    assert traversals(odd, odd) == [BoxTraversal.LINES]  # one line
    assert traversals(MemoryDesc((3, 5), "s4", (6, 1)), MemoryDesc((3, 5), "s8")) == [
        BoxTraversal.LINES
    ]
    assert traversals(odd, MemoryDesc((3, 5), "f32", (7, 1))) == [BoxTraversal.EACH]
    assert traversals(even, MemoryDesc((3, 6), "f32", (7, 1))) == [BoxTraversal.LINES]
    assert traversals(MemoryDesc((3, 6), "s4", offset0=1), MemoryDesc((3, 6), "f32")) == [
        BoxTraversal.EACH
    ]


def test_small_tensors_wake_nobody() -> None:
    def threads(dims: tuple[int, ...], dst: str, data_type: str = "f32") -> int:
        views = [
            View(MemoryDesc(dims, kind, tag)) for tag, kind in ((dst, data_type), ("ab", "f32"))
        ]
        return boxes.sizes(views, 8, 8).threads

    assert threads((10, 20), "ab") == 1
    assert threads((1000, 200), "ab") > 8
    assert threads((1001, 201), "ba", "s4") == 1  # rows share bytes
    assert threads((1000, 200), "ba", "s4") > 8
    assert threads((1000, 200), "ab", "s4") > 8


@st.composite
def tensors(draw: st.DrawFn, dims: tuple[int, ...]) -> MemoryDesc:
    """A descriptor with blocks of any size, gaps and an offset."""
    dim = st.integers(0, len(dims) - 1)
    inner = draw(st.lists(st.tuples(dim, st.integers(2, 6)), max_size=3)) if dims else []
    sizes = [1] * len(dims)
    for blocked, size in inner:
        sizes[blocked] *= size
    stride = int(np.prod(sizes))
    strides = [0] * len(dims)
    for place in draw(st.permutations(range(len(dims)))):
        strides[place] = stride
        stride *= max(1, -(-dims[place] // sizes[place])) + draw(st.integers(0, 1))
    return MemoryDesc(dims, "f32", strides, inner_blocks=inner, offset0=draw(st.integers(0, 3)))


@given(st.data())
def test_any_layouts(data: st.DataObject) -> None:
    dims = tuple(data.draw(st.lists(st.integers(0, 13), max_size=3)))
    views = [View(data.draw(tensors(dims))) for _ in range(2)]
    check(views, 4, 2)
