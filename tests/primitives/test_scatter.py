"""Scatter: slices and elements written where indices say, whatever these are."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import (
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveDesc,
    ScatterDesc,
    Unimplemented,
    config,
)
from dnnl.reference.scatter import scatter
from dnnl.types.arg import Arg
from tests.check import logical
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, LAYOUTS, describe, every_isa, execute, source

DIMS = (3, 24, 5, 7)
FUNCTIONS = ["none", "add", "mul", "max", "min"]


def indices(dims: tuple[int, ...], extent: int, kind: str = "s64", outside: int = 0) -> Memory:
    """From both ends, some of them equal, and some that are ``outside``."""
    numbers = np.random.default_rng(len(dims)).integers(-extent - outside, extent + outside, dims)
    return Memory.from_numpy(numbers.astype(np.int64 if kind == "s64" else np.int32))


def run(src: Memory, where: Memory, axis: int, function: str, layout: str = "") -> None:
    """One at a time, as the reference does it, so that the bits are equal."""
    dims: tuple[int, ...] = where.desc.dims
    if len(dims) == 1:
        dims = (*src.desc.dims[:axis], *dims, *src.desc.dims[axis + 1 :])
    kind = src.desc.data_type
    rng = np.random.default_rng(3)
    updates = Memory.from_numpy(rng.integers(-3, 4, dims).astype(kind.numpy))
    dst = MemoryDesc(src.desc.dims, kind, layout or None)
    desc = ScatterDesc(function, src.desc, where.desc, updates.desc, dst, axis)
    got = execute(desc, {Arg.SRC: src, Arg.SRC_1: where, Arg.SRC_2: updates})
    want = scatter(logical(src), logical(where), logical(updates), axis, function, kind)
    np.testing.assert_array_equal(logical(got), want)


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, axis: int) -> None:
    run(source(DIMS, layout), indices((19,), DIMS[axis], "s32"), axis, "none", "dcba")


@every_pair(function=FUNCTIONS, axis=range(4), order=["abcd", "acdb"])
def test_elements(order: str, axis: int, function: str) -> None:
    """Fewer than there are along the other axes, and many of them at one place."""
    dims = [2, 21, 5, 6]
    dims[axis] = 29
    run(source(DIMS, "nchw"), indices(tuple(dims), DIMS[axis]), axis, function, order)


@every_pair(
    every_isa,
    pytest.mark.parametrize("data_type", ["f32", "f64", "bf16", "s8", "u16", "u32", "s64"]),
    pytest.mark.parametrize("function", FUNCTIONS),
)
def test_types(function: str, data_type: str, isa: str) -> None:
    """Many updates of one element: integers wrap, floats are rounded each time."""
    kind = MemoryDesc((1,), data_type).data_type
    src = Memory.from_numpy(np.random.default_rng(4).integers(0, 9, (9, 43)).astype(kind.numpy))
    with config.override("max_cpu_isa", isa):
        run(src, indices((61,), 9, outside=3), 0, function)
        run(src, indices((9, 200), 43, "s32", outside=3), 1, function)


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1, -(2**32), 2**32, 2**31])
@pytest.mark.parametrize("axis", [0, 1])
def test_numbers_far_outside_touch_nothing_there(axis: int, number: int) -> None:
    where = Memory.from_numpy(np.array([1, number, 3, -1, number, 0, 2, 5, 6], np.int64))
    run(source((20, 33), "ab"), where, axis, "none")


@pytest.mark.parametrize(
    ("dims", "where", "axis"),
    [
        ((1,), (5,), 0),
        ((300, 768), (40,), 0),
        ((17, 1), (3,), 0),
        ((70, 3), (4000,), 0),
        ((0, 4), (3,), 1),
        ((5, 4), (0,), 1),
        ((5, 4), (0, 4), 0),
        ((5, 4), (3, 0), 0),
    ],
)
def test_shapes(dims: tuple[int, ...], where: tuple[int, ...], axis: int) -> None:
    run(source(dims, "ab"[: len(dims)]), indices(where, max(1, dims[axis])), axis, "add")


def test_in_place() -> None:
    src, where = source((50, 12), "ab"), indices((7,), 50)
    updates = Memory.from_numpy(np.ones((7, 12), np.float32))
    want = scatter(logical(src), logical(where), logical(updates), 0)
    desc = ScatterDesc("none", src.desc, where.desc, updates.desc, src.desc, 0)
    got = execute(desc, {Arg.SRC: src, Arg.SRC_1: where, Arg.SRC_2: updates}, dst=src)
    np.testing.assert_array_equal(logical(got), want)


def test_wrong_arguments() -> None:
    src, where = MemoryDesc((5, 4), "f32"), MemoryDesc((3,), "s32")
    rows = MemoryDesc((3, 4), "f32")
    with pytest.raises(InvalidArguments, match=r"indices_desc = .*one dimension, or 2 for single"):
        ScatterDesc("none", src, MemoryDesc((3, 1, 1), "s32"), rows, src, 0)
    with pytest.raises(InvalidArguments, match=r"indices_desc = .*at most 4 along axis 1"):
        ScatterDesc("none", src, MemoryDesc((3, 5), "s32"), MemoryDesc((3, 5), "f32"), src, 0)
    with pytest.raises(InvalidArguments, match=r"updates_desc = .*expected \(3, 4\)"):
        ScatterDesc("none", src, where, src, src, 0)
    with pytest.raises(InvalidArguments, match=r"dst_desc = .*expected \(5, 4\)"):
        ScatterDesc("none", src, where, rows, rows, 0)
    nothing = MemoryDesc((0, 4), "f32")
    with pytest.raises(InvalidArguments, match="nothing to index along axis 0"):
        ScatterDesc("none", nothing, where, rows, nothing, 0)
    desc = ScatterDesc("add", src, where.with_data_type("f32"), rows, src, 0)
    with pytest.raises(Unimplemented, match="unsupported data type"):
        PrimitiveDesc(desc, ENGINE)
    blocked = describe((2, 16, 3, 3), "nChw8c")
    where, rows = MemoryDesc((2,), "s32"), MemoryDesc((2, 16, 3, 3), "f32")
    with pytest.raises(Unimplemented, match="dst has blocks"):
        PrimitiveDesc(ScatterDesc("none", blocked, where, rows, blocked, 0), ENGINE)
