"""Arg reduction: the places of extremes, in any layout and type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dnnl import (
    ArgReductionDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.reference.arg_reduction import arg_reduction
from dnnl.types.arg import Arg
from tests.check import logical
from tests.primitives.harness import ENGINE, LAYOUTS, every_isa, execute, source

DIMS = (3, 24, 5, 7)


def run(src: Memory, axis: int, function: str, tie: str = "first", kind: str = "s64") -> None:
    dims = tuple(1 if dim == axis else extent for dim, extent in enumerate(src.desc.dims))
    desc = ArgReductionDesc(function, src.desc, MemoryDesc(dims, kind), axis, tie)
    got = execute(desc, {Arg.SRC: src})
    np.testing.assert_array_equal(logical(got), arg_reduction(logical(src), function, axis, tie))


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, axis: int) -> None:
    run(source(DIMS, layout), axis, "max")


@every_isa
@pytest.mark.parametrize("data_type", ["f32", "f64", "bf16", "s8", "u16", "u32", "s64", "u64"])
def test_equal_elements(data_type: str, isa: str) -> None:
    """In every lane, so that the place decides; numbers from end to end of their type."""
    desc = MemoryDesc((9, 83), data_type)
    kind = desc.data_type
    numbers = np.random.default_rng(1).integers(0, 3, desc.dims)
    ends = [-np.inf, 0.0, np.inf] if kind.is_float else [kind.min, (kind.max // 2), kind.max]
    src = Memory.from_numpy(np.array(ends, kind.numpy)[numbers])
    with config.override("max_cpu_isa", isa):
        for axis, function in ((0, "max"), (1, "max"), (0, "min"), (1, "min")):
            for tie in ("first", "last"):
                run(src, axis, function, tie, "s32")


@pytest.mark.parametrize("data_type", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_is_before_all_numbers(axis: int, data_type: type) -> None:
    rng = np.random.default_rng(2)
    array: NDArray[Any] = rng.standard_normal((31, 45)).astype(data_type)
    array[rng.random(array.shape) < 0.05] = np.nan
    array[rng.random(array.shape) < 0.05] = -np.nan
    for function in ("max", "min"):
        for tie in ("first", "last"):
            run(Memory.from_numpy(array), axis, function, tie)


def test_zeros_are_equal() -> None:
    src = Memory.from_numpy(np.array([[-0.0, 0.0, -0.0]], np.float32))
    for function in ("max", "min"):
        run(src, 1, function)
        run(src, 1, function, "last")


@pytest.mark.parametrize("dims", [(1, 1), (300, 1), (1, 50257), (4000, 3), (0, 4), (2, 65, 129)])
def test_shapes(dims: tuple[int, ...]) -> None:
    src = source(dims, "abc"[: len(dims)])
    for axis, extent in enumerate(dims):
        if extent:
            run(src, axis, "max")


def test_wrong_arguments() -> None:
    src = MemoryDesc((5, 0), "f32")
    with pytest.raises(InvalidArguments, match="nothing to compare along axis 1"):
        ArgReductionDesc("max", src, MemoryDesc((5, 1), "s64"), 1)
    src = MemoryDesc((5, 4), "f32")
    with pytest.raises(InvalidArguments, match=r"dst_desc = .*expected \(5, 1\)"):
        ArgReductionDesc("max", src, MemoryDesc((1, 4), "s64"), 1)
    with pytest.raises(InvalidArguments, match="function = 'most'"):
        ArgReductionDesc("most", src, MemoryDesc((5, 1), "s64"), 1)
    desc = ArgReductionDesc("max", src, MemoryDesc((5, 1), "f32"), 1)
    with pytest.raises(Unimplemented, match="unsupported data type"):
        PrimitiveDesc(desc, ENGINE)
