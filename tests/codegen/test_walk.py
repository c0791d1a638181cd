"""The order of loops, and what the first-level cache keeps."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest

from dnnl.codegen.access import Operand
from dnnl.codegen.address import Affine, Axis
from dnnl.codegen.schedule import Schedule, schedule
from dnnl.codegen.walk import Loop, lines_kept, share_out
from dnnl.types.memory_desc import MemoryDesc


def plan(
    dims: tuple[int, ...], src: str, dst: str, data_type: str = "f32", src_type: str = ""
) -> Schedule:
    """The schedule of a reorder with 16 lanes; ``src_type`` is that of dst if not given."""
    axes = tuple(Axis(extent, chr(ord("a") + dim)) for dim, extent in enumerate(dims))
    index = tuple(Affine.of(axis) for axis in axes)
    operands = [
        Operand(slot, MemoryDesc(dims, kind, tag), index)
        for slot, (tag, kind) in enumerate(((src, src_type or data_type), (dst, data_type)))
    ]
    return schedule(16, axes, (), operands, operands[1])


def walked(loops: list[Loop]) -> list[tuple[int, ...]]:
    """Where the axes stand at each point, in the order of the loops."""
    axes = list(dict.fromkeys(loop.axis for loop in loops))
    points = []
    for indices in product(*(range(loop.count) for loop in loops)):
        place = dict.fromkeys(axes, 0)
        for loop, index in zip(loops, indices, strict=True):
            place[loop.axis] += index * loop.step
        if all(place[axis] < axis.extent for axis in axes):
            points.append(tuple(place[axis] for axis in axes))
    return points


@pytest.mark.parametrize(
    ("dims", "src", "dst"),
    [
        ((1, 256, 56, 56), "nchw", "nhwc"),
        ((1, 256, 56, 56), "nhwc", "nchw"),
        ((2, 1024, 14, 14), "nchw", "nhwc"),
        ((1, 96, 31, 33), "nhwc", "nChw8c"),
        ((64, 48, 3, 3), "oihw", "hwio"),
        ((64, 48, 3, 3), "hwio", "oihw"),
        ((5, 6, 7, 8, 9), "abcde", "edcba"),
    ],
)
def test_every_point_is_walked_once(dims: tuple[int, ...], src: str, dst: str) -> None:
    loops = plan(dims, src, dst).loops
    points = walked(loops)
    assert len(set(points)) == len(points)
    assert len(points) == prod({loop.axis: loop.axis.extent for loop in loops}.values())


def test_lines_that_share_few_sets_are_few() -> None:
    assert lines_kept(64) == 512
    assert lines_kept(128) == 256
    assert lines_kept(4096) == 8
    assert lines_kept(3 * 4096) == 8
    assert lines_kept(196) == 512


def test_rows_a_page_apart_are_written_in_long_runs() -> None:
    """1024 channels-last f32 channels: 16 rows would drive each other out of the cache."""
    own = plan((1, 1024, 14, 14), "nchw", "nhwc")
    assert own.pieces is not None
    assert own.pieces.extent == 1
    inner = own.loops[-1]
    assert inner.within * own.lanes * 4 == 512


def test_rows_a_page_apart_are_read_by_lines() -> None:
    own = plan((1, 1024, 14, 14), "nhwc", "nchw")
    assert own.pieces is not None
    assert own.tile is not None
    assert own.pieces.extent * own.tile.extent * 4 == 64


@pytest.mark.parametrize("data_type", ["f32", "bf16", "u8", "u4"])
def test_as_many_rows_that_begin_anywhere_are_written_in_turns(data_type: str) -> None:
    own = plan((1030, 1030), "ab", "ba", data_type)
    assert own.loops[-1].within * own.columns == 128


def test_short_axes_are_walked_as_lines() -> None:
    own = plan((64, 64, 3, 3), "oihw", "hwio")
    (line,) = own.lines
    assert line.outer.extent * line.inner.extent == 64 * 9


def test_axes_with_padding_are_no_lines() -> None:
    assert not plan((64, 40, 3, 3), "oihw", "OIhw16i16o").lines


def test_inner_loops_of_blocks_are_not_shared_out() -> None:
    axis, other = Axis(4, "a"), Axis(100, "b")
    loops = [Loop(axis, step=2), Loop(other), Loop(axis, within=2)]
    assert share_out(loops, 10**6).count <= 200


def test_stores_pass_the_caches_where_all_tensors_together_are_large() -> None:
    large, small = (1, 64, 256, 128), (1, 64, 252, 128)  # 8 MiB of f32, and a little less
    assert plan(large, "nchw", "nchw").streamed
    assert not plan(small, "nchw", "nchw").streamed
    assert not plan(large, "nchw", "nchw", src_type="u8").streamed
    assert plan(large, "nchw", "nchw", src_type="f64").streamed
    assert plan(small, "nchw", "nchw", src_type="f64").streamed
