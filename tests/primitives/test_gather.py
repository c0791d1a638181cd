"""Gather: rows and elements in the order that indices say, whatever these are."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    GatherDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.reference import gather as reference
from tests.check import check, codes_of, logical, memory_of, poisoned_memory
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    describe,
    every_isa,
    execute,
    source,
    tensor,
)

DIMS = (3, 24, 5, 7)


def indices(count: int, extent: int, kind: str = "s64", outside: int = 0) -> Memory:
    """From both ends, and some that lie ``outside``."""
    numbers = np.random.default_rng(count).integers(-extent - outside, extent + outside, count)
    return Memory.from_numpy(numbers.astype(np.int64 if kind == "s64" else np.int32))


def run(src: Memory, where: Memory, axis: int, layout: str) -> None:
    dims: tuple[int, ...] = where.desc.dims
    if len(dims) == 1:
        dims = (*src.desc.dims[:axis], *dims, *src.desc.dims[axis + 1 :])
    dst = describe(dims, layout).with_data_type(src.desc.data_type)
    got = execute(GatherDesc(src.desc, where.desc, dst, axis), {Arg.SRC: src, Arg.SRC_1: where})
    check(got, reference.gather(logical(src), logical(where), axis), reference.TOLERANCE("f32"))


@every_pair(kind=["s32", "s64"], axis=range(4), layout=LAYOUTS)
def test_layouts(layout: str, axis: int, kind: str) -> None:
    run(source(DIMS, layout), indices(19, DIMS[axis], kind), axis, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("order", "axis", "kind"), [("C", 0, "s64"), ("F", 1, "s32"), ("C", 2, "s32"), ("F", 3, "s64")]
)
def test_elements(order: Literal["C", "F"], layout: str, axis: int, kind: str) -> None:
    """One index each, along the other axes for some of them only."""
    dims = [2, 21, 5, 6]
    dims[axis] = 19
    rng = np.random.default_rng(axis)
    numbers = rng.integers(-DIMS[axis] - 2, DIMS[axis] + 2, dims)
    array = numbers.astype(np.int64 if kind == "s64" else np.int32, order=order)
    run(source(DIMS, layout), Memory.from_numpy(array), axis, layout)


def test_indices_in_blocks_of_blocks_that_are_turned() -> None:
    """Each lane has an index of its own, though one stride of the layout leads along all lanes."""
    inner = ((1, 2), (0, 2), (1, 2))
    layout = MemoryDesc((4, 2), "s32", (8, 8), inner_blocks=inner, padded_dims=(4, 4))
    where = memory_of(np.array([[1, 0], [0, 0], [0, 1], [0, 0]], np.int32), layout, ENGINE)
    run(source((2, 2), "ab"), where, 0, "ba")


@pytest.mark.parametrize(
    ("src", "dst"), [("nchw", "nChw16c"), ("nChw8c", "nhwc"), ("gaps", "part")]
)
@pytest.mark.parametrize("axis", [0, 1, 3])
def test_another_layout_for_the_result(src: str, dst: str, axis: int) -> None:
    run(source(DIMS, src), indices(11, DIMS[axis]), axis, dst)


@every_pair(
    every_isa,
    pytest.mark.parametrize("data_type", ["f32", "bf16", "s8", "f64", "s64", "f8_e4m3", "boolean"]),
    pytest.mark.parametrize("axis", [0, 1]),
)
def test_bits_are_moved(axis: int, data_type: str, isa: str) -> None:
    """All of them, whatever they mean; outside, those of the nearest slice."""
    md = MemoryDesc((30, 43), data_type)
    src = poisoned_memory(md, ENGINE)
    src.data[:] = np.random.default_rng(1).integers(0, 256, src.data.size)
    where = indices(37, md.dims[axis], outside=9)
    dims = [30, 43]
    dims[axis] = 37
    desc = GatherDesc(md, where.desc, MemoryDesc(dims, data_type), axis)
    with config.override("max_cpu_isa", isa):
        got = codes_of(execute(desc, {Arg.SRC: src, Arg.SRC_1: where}))
    numbers = where.numpy()
    from_front = np.where(numbers < 0, numbers + md.dims[axis], numbers)
    np.testing.assert_array_equal(got, np.take(codes_of(src), from_front, axis, mode="clip"))


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1, -(2**32), 2**32, 2**31])
@pytest.mark.parametrize("axis", [0, 1])
def test_numbers_far_outside_touch_nothing_there(axis: int, number: int) -> None:
    src = source((20, 33), "ab")
    where = Memory.from_numpy(np.array([1, number, 3, -1, number, 0, 2, 5, 6], np.int64))
    run(src, where, axis, "ab")


@pytest.mark.parametrize(
    ("dims", "axis", "count"),
    [((1,), 0, 5), ((300, 768), 0, 40), ((17, 1), 0, 3), ((4, 9, 3), 1, 1), ((70, 3), 0, 4000)],
)
def test_shapes(dims: tuple[int, ...], axis: int, count: int) -> None:
    tag = "abc"[: len(dims)]
    run(source(dims, tag), indices(count, dims[axis]), axis, tag)


@pytest.mark.parametrize(("dims", "count"), [((0, 4), 3), ((5, 4), 0), ((5, 0), 0)])
def test_no_elements(dims: tuple[int, int], count: int) -> None:
    run(source(dims, "ab"), indices(count, 4), 1, "ab")


def test_pytorch_has_the_same() -> None:
    src, where = source((50, 12, 7), "abc"), indices(23, 12)
    dst = MemoryDesc((50, 23, 7), "f32")
    got = execute(GatherDesc(src.desc, where.desc, dst, 1), {Arg.SRC: src, Arg.SRC_1: where})
    places = torch.from_numpy(where.numpy() % 12)
    np.testing.assert_array_equal(logical(got), torch.index_select(tensor(src), 1, places).numpy())


def test_wrong_arguments() -> None:
    src, where = MemoryDesc((5, 4), "f32"), MemoryDesc((3,), "s32")
    with pytest.raises(InvalidArguments, match=r"indices_desc = .*one dimension, or 2 for single"):
        GatherDesc(src, MemoryDesc((3, 1, 1), "s32"), MemoryDesc((3, 4), "f32"), 0)
    with pytest.raises(InvalidArguments, match=r"indices_desc = .*at most 4 along axis 1"):
        GatherDesc(src, MemoryDesc((3, 5), "s32"), MemoryDesc((3, 5), "f32"), 0)
    with pytest.raises(InvalidArguments, match=r"dst_desc = .*expected \(3, 4\)"):
        GatherDesc(src, where, src, 0)
    with pytest.raises(InvalidArguments, match="nothing to index along axis 0"):
        GatherDesc(MemoryDesc((0, 4), "f32"), where, MemoryDesc((3, 4), "f32"), 0)
    with pytest.raises(InvalidArguments, match="axis = 2"):
        GatherDesc(src, where, src, 2)
    for kind, other in (("f32", "s32"), ("s32", "bf16")):
        desc = GatherDesc(src, where.with_data_type(kind), MemoryDesc((3, 4), other), 0)
        with pytest.raises(Unimplemented, match="unsupported data type"):
            PrimitiveDesc(desc, ENGINE)
