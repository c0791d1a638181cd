"""The order of loops, and what the first-level cache keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

import pytest

from dnnl.codegen import isa
from dnnl.codegen.isa import Isa, caches
from dnnl.codegen.isa.caches import Caches
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.loop_order import Loop
from dnnl.codegen.nest.schedule import Schedule, schedule
from dnnl.codegen.nest.space import Space
from dnnl.codegen.nest.vectorize import Squares
from dnnl.codegen.nest.work_items import share_out
from dnnl.types.memory_desc import MemoryDesc


def plan(
    dims: tuple[int, ...],
    src: str,
    dst: str,
    data_type: str = "f32",
    src_type: str = "",
    lanes: int = 16,
    cpu: str = "",
) -> Schedule:
    """The schedule of a reorder with the caches of ``cpu``; ``src_type`` is that of dst if not
    given."""
    axes = tuple(Axis(extent, chr(ord("a") + dim)) for dim, extent in enumerate(dims))
    index = tuple(Affine.of(axis) for axis in axes)
    operands = [
        Operand(slot, MemoryDesc(dims, kind, tag), index)
        for slot, (tag, kind) in enumerate(((src, src_type or data_type), (dst, data_type)))
    ]
    space = Space.of(axes, (), operands[:1], operands[1:])
    return schedule(machine(lanes, cpu), space)


def machine(lanes: int, cpu: str = "") -> Isa:
    """A processor with so many lanes and the caches of ``cpu``."""
    row = isa.find("avx512_core")
    return replace(row, vector_bits=32 * lanes, caches=caches.of(cpu, Caches()))


def walked(loops: Sequence[Loop]) -> list[tuple[int, ...]]:
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
@pytest.mark.parametrize("cpu", ["", "cascadelake"])
def test_every_point_is_walked_once(dims: tuple[int, ...], src: str, dst: str, cpu: str) -> None:
    loops = plan(dims, src, dst, cpu=cpu).loops
    points = walked(loops)
    assert len(set(points)) == len(points)
    assert len(points) == prod({loop.axis: loop.axis.extent for loop in loops}.values())


def test_lines_that_share_few_sets_are_few() -> None:
    resident_lines = Caches().resident_lines
    assert resident_lines(64) == 512
    assert resident_lines(128) == 256
    assert resident_lines(4096) == 8
    assert resident_lines(3 * 4096) == 8
    assert resident_lines(196) == 512


def test_rows_a_page_apart_are_written_in_long_runs() -> None:
    """1024 channels-last f32 channels: 16 rows would drive each other out of the cache."""
    own = plan((1, 1024, 14, 14), "nchw", "nhwc")
    assert isinstance(own.squares, Squares)
    assert own.squares.pieces.extent == 1
    inner = own.loops[-1]
    assert inner.within * own.vectors.lanes * 4 == 512


@pytest.mark.parametrize(
    ("dims", "src", "dst", "in_runs"),
    [
        ((4096, 2048), "ba", "ab", True),  # from memory, rows of both are pages apart
        ((1024, 512), "ba", "ab", True),  # from the third cache, rows of dst 2 KiB apart
        ((256, 512), "ba", "ab", False),  # in the second cache
        ((16, 256, 56, 56), "nchw", "nhwc", True),  # rows of dst 1 KiB apart
        ((16, 256, 56, 56), "nhwc", "nchw", False),  # 12544 bytes apart
        ((16, 64, 112, 112), "nchw", "nhwc", False),  # 256 bytes apart
        ((16, 512, 28, 28), "nChw16c", "nchw", False),  # a row of src is one line
    ],
)
def test_what_the_second_cache_does_not_hold_is_written_in_runs_or_read_side_by_side(
    dims: tuple[int, ...], src: str, dst: str, in_runs: bool
) -> None:
    own = plan(dims, src, dst)
    inner, around = own.loops[-1], own.loops[-2]
    along = [access.offset.stride(inner.axis) for access in own.accesses.values() if access.offset]
    assert (along[1] == own.vectors.lanes) is in_runs
    assert not in_runs or inner.count * own.vectors.lanes * 4 == 1024
    assert own.prefetch_axis is (around.axis if in_runs or prod(dims) > 2**20 else None)


@pytest.mark.parametrize(
    ("dims", "blocked"),
    [
        ((1, 256, 14, 14), False),
        ((1, 256, 56, 56), True),  # blocks of dst 49 * 4096 bytes apart
        ((16, 64, 56, 56), True),  # from memory
    ],
)
def test_vectors_are_moved_as_the_source_has_them_if_the_cache_keeps_their_lines(
    dims: tuple[int, ...], blocked: bool
) -> None:
    own = plan(dims, "nhwc", "nChw8c")
    steps = [
        access.offset.stride(own.loops[-1].axis)
        for access in own.accesses.values()
        if access.offset is not None
    ]
    assert bool(own.loops[-1].within) is blocked
    assert (steps[0] == 8) is not blocked


@pytest.mark.parametrize(("channels", "rows"), [(512, 8), (1024, 16)])
def test_vectors_come_from_few_rows_unless_those_of_dst_crowd_a_set(
    channels: int, rows: int
) -> None:
    assert plan((16, channels, 28, 28), "nChw8c", "nhwc").loops[-1].within == rows


def test_short_rows_of_parts_of_lines_are_written_one_after_the_other() -> None:
    own = plan((16, 250, 28, 27), "nchw", "nhwc")
    assert [loop.axis.extent for loop in own.loops[-2:]] == [28 * 27 // 4, 16]
    assert own.prefetch_axis is own.loops[-2].axis
    apart = plan((5, 12, 9, 14, 17, 31), "decfba", "abdfce")
    assert apart.loops[-1].axis.extent == 60 // 4


def test_more_rows_than_processors_follow_are_written_in_runs() -> None:
    # Rows of dst are 256 bytes, less than a run.
    many = plan((64, 128, 56, 56), "nchw", "nhwc", "bf16", lanes=32)
    few = plan((64, 64, 56, 56), "nchw", "nhwc", "f32", lanes=16)
    inner = [own.loops[-1].axis.extent for own in (many, few)]
    assert inner == [128 // 32, 56 * 56 // few.columns]


def test_blocks_longer_than_an_axis_do_not_split_it() -> None:
    own = plan((16, 3, 224, 224), "nChw16c", "nhwc")
    assert own.vectors.lanes == 4
    assert not own.space.domain


def test_rows_of_a_line_are_read_far_at_once() -> None:
    """Their addresses are divided for: not for each 4 columns, unless these lie on a line too."""
    dims = 5, 12, 9, 14, 17, 31
    rows, both = plan(dims, "ebafcd", "dbcafe"), plan(dims, "decfba", "abdfce")
    assert [len(own.space.lines) for own in (rows, both)] == [1, 2]
    assert [own.columns for own in (rows, both)] == [16, 4]


def test_vectors_are_read_whole_where_the_buffer_goes_on() -> None:
    """The fourth lane of a pixel is its own padding, or behind the last pixel nothing."""
    dims = 16, 3, 224, 224
    blocked, dense = plan(dims, "nChw16c", "nhwc"), plan(dims, "nhwc", "nChw16c")
    assert [access.contained for access in blocked.accesses.values()] == [True, False]
    assert [access.contained for access in dense.accesses.values()] == [False, False]


def test_rows_a_page_apart_are_read_by_lines() -> None:
    own = plan((1, 1024, 14, 14), "nhwc", "nchw")
    assert own.columns * 4 == 64


@pytest.mark.parametrize("data_type", ["f32", "bf16", "u8", "u4"])
def test_as_many_rows_that_begin_anywhere_are_written_in_turns(data_type: str) -> None:
    own = plan((1030, 1030), "ab", "ba", data_type)
    assert own.loops[-1].within * own.columns == 128


def test_short_axes_are_walked_as_lines() -> None:
    own = plan((64, 64, 3, 3), "oihw", "hwio")
    (line,) = own.space.lines
    assert line.outer.extent * line.inner.extent == 64 * 9


def test_axes_with_padding_are_no_lines() -> None:
    assert not plan((64, 40, 3, 3), "oihw", "OIhw16i16o").space.lines


def test_inner_loops_of_blocks_are_not_shared_out() -> None:
    axis, other = Axis(4, "a"), Axis(100, "b")
    loops = [Loop(axis, step=2), Loop(other), Loop(axis, within=2)]
    assert share_out(machine(16), loops, 10**6).count <= 200


def test_stores_pass_the_caches_where_all_tensors_together_are_large() -> None:
    large, small = (1, 64, 256, 128), (1, 64, 252, 128)  # 8 MiB of f32, and a little less
    assert plan(large, "nchw", "nchw").streamed
    assert not plan(small, "nchw", "nchw").streamed
    assert not plan(large, "nchw", "nchw", src_type="u8").streamed
    assert plan(large, "nchw", "nchw", src_type="f64").streamed
    assert plan(small, "nchw", "nchw", src_type="f64").streamed


@pytest.mark.parametrize(
    ("dims", "src", "dst"),
    [((16, 512, 28, 28), "nchw", "nhwc"), ((2048, 1024, 1, 1), "hwio", "oihw")],
)
def test_processors_that_follow_rows_read_them_in_order_from_memory(
    dims: tuple[int, ...], src: str, dst: str
) -> None:
    own, other = plan(dims, src, dst, cpu="cascadelake"), plan(dims, src, dst)
    assert own.loops[-1].within == 0
    assert own.prefetch_axis is own.loops[-1].axis
    assert other.loops[-1].within * 64 == 1024


@pytest.mark.parametrize(
    ("dims", "src", "dst"),
    [((1, 512, 28, 28), "nchw", "nhwc"), ((1024, 512, 1, 1), "hwio", "oihw")],
)
def test_processors_walk_alike_what_is_in_the_third_cache(
    dims: tuple[int, ...], src: str, dst: str
) -> None:
    own, other = (
        [(loop.axis.extent, loop.step, loop.within) for loop in plan(dims, src, dst, cpu=cpu).loops]
        for cpu in ("cascadelake", "")
    )
    assert own == other


def test_half_lines_are_written_by_turns_only_where_that_is_as_fast() -> None:
    dims = 1, 256, 28, 28
    assert plan(dims, "nChw16c", "nChw8c").loops[-1].axis.extent == 2
    assert plan(dims, "nChw16c", "nChw8c", cpu="cascadelake").loops[-1].within == 8


@pytest.mark.parametrize(
    ("dims", "src", "dst", "few", "other"),
    [
        ((16, 256, 56, 56), "nchw", "nhwc", True, True),
        ((16, 64, 56, 56), "nhwc", "nchw", True, True),  # 64 rows
        ((16, 256, 56, 56), "nhwc", "nChw16c", True, False),  # 16 rows, one for each block
        ((16, 512, 56, 56), "nhwc", "nChw16c", True, True),
        ((16, 256, 56, 56), "nChw16c", "nchw", True, False),  # the 16 channels of a block
        ((16, 256, 56, 56), "nChw8c", "nChw16c", True, False),  # one
        ((1, 64, 256, 128), "nchw", "nchw", True, False),
    ],
)
def test_some_processors_fetch_the_few_rows_that_are_written(
    dims: tuple[int, ...], src: str, dst: str, few: bool, other: bool
) -> None:
    assert bool(plan(dims, src, dst).streamed) is few
    assert bool(plan(dims, src, dst, cpu="cascadelake").streamed) is other


@pytest.mark.parametrize(("channels", "blocks"), [(192, 1), (960, 5), (4096, 19)])
def test_weights_of_windows_stay_in_the_first_cache(channels: int, blocks: int) -> None:
    """Half of 32 KiB has room for 14 vectors of channels with 9 weights and 9 pixels each."""
    axes = n, h, w, c = tuple(map(Axis, (2, 7, 7, channels), "nhwc"))
    taps = Axis(3, "kh"), Axis(3, "kw")
    batch, across, down, channel = (Affine.of(axis) for axis in (n, w, h, c))
    right, below = (Affine.of(axis) for axis in (taps[1], taps[0]))
    image, made = (MemoryDesc((2, channels, size, size), "f32", "nhwc") for size in (9, 7))
    kept = MemoryDesc((channels, 3, 3), "f32", "bca")
    src = Operand(0, image, (batch, channel, down + below, across + right))
    weights = Operand(1, kept, (channel, below, right))
    dst = Operand(2, made, (batch, channel, down, across))
    loops = schedule(machine(16), Space.of(axes, taps, (src, weights), (dst,))).loops
    names = "".join(loop.axis.name for loop in loops)
    assert names == ("nhwc" if blocks == 1 else "cnhwc")
    assert loops[0].count == (2 if blocks == 1 else blocks)
    assert len(walked(loops)) == len(set(walked(loops))) == 2 * 7 * 7 * channels // 16
