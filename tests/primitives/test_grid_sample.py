"""Grid sample: images at places of any kind, in any layout."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import (
    GridSampleDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.reference.grid_sample import grid_sample
from dnnl.types.arg import Arg
from tests.check import logical
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS, LAYOUTS, execute, source

DIMS = (2, 24, 5, 7)
FUNCTIONS = ["nearest", "linear", "cubic"]
PADDINGS = ["zeros", "border", "reflection"]


def grid_of(*dims: int, reach: float = 1.6) -> Memory:
    """Places inside and outside, none of them at a tie."""
    places = np.random.default_rng(len(dims)).uniform(-reach, reach, dims)
    return Memory.from_numpy(places.astype(np.float32))


def run(
    src: Memory,
    grid: Memory,
    function: str,
    padding: str = "zeros",
    coordinates: str = "edges",
    layout: str = "",
) -> None:
    dims = (*src.desc.dims[:2], *grid.desc.dims[1:-1])
    dst = MemoryDesc(dims, "f32", layout or None)
    desc = GridSampleDesc(function, padding, coordinates, src.desc, grid.desc, dst)
    got = logical(execute(desc, {Arg.SRC: src, Arg.SRC_1: grid}))
    want = grid_sample(logical(src), logical(grid), function, padding, coordinates)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, function: str) -> None:
    run(source(DIMS, layout), grid_of(2, 6, 9, 2), function, "border", "corners", "nhwc")


@every_pair(
    isa=ISAS,
    function=FUNCTIONS,
    padding=PADDINGS,
    layout=["nchw", "nhwc"],
    coordinates=["edges", "corners"],
)
def test_instruction_sets(
    function: str, padding: str, isa: str, layout: str, coordinates: str
) -> None:
    with config.override("max_cpu_isa", isa):
        run(source(DIMS, layout), grid_of(2, 5, 19, 2), function, padding, coordinates)


@every_pair(coordinates=["edges", "corners", "pixels"], padding=PADDINGS, function=FUNCTIONS)
def test_places_that_are_no_numbers_touch_nothing_outside(
    function: str, padding: str, coordinates: str
) -> None:
    """Results are those of some elements, or zeros."""
    odd = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e10, -1e10, 2.0**31, -(2.0**31), 1e-40]
    places = np.array(odd, np.float32)
    grid = Memory.from_numpy(np.stack(np.meshgrid(places, places), -1)[None])
    src = Memory.from_numpy(np.ones((1, 20, 3, 4), np.float32))
    dst = MemoryDesc((1, 20, 10, 10), "f32")
    desc = GridSampleDesc(function, padding, coordinates, src.desc, grid.desc, dst)
    got = execute(desc, {Arg.SRC: src, Arg.SRC_1: grid}).numpy()
    ones = np.isclose(got, 1, atol=1e-5)
    assert (ones if padding != "zeros" else ones | (got == 0) | (np.abs(got) < 2)).all()


@pytest.mark.parametrize(
    ("dims", "grid"),
    [
        ((1, 1, 1, 1), (1, 1, 1, 2)),
        ((2, 3, 40), (2, 33, 1)),
        ((1, 3, 4, 5, 6), (1, 3, 2, 17, 3)),
        ((0, 3, 4, 5), (0, 2, 2, 2)),
        ((1, 0, 4, 5), (1, 2, 2, 2)),
        ((1, 2, 4, 5), (1, 0, 2, 2)),
        ((1, 2, 300, 3), (1, 70, 1, 2)),
    ],
)
def test_shapes(dims: tuple[int, ...], grid: tuple[int, ...]) -> None:
    src = source(dims, "abcde"[: len(dims)])
    for function in FUNCTIONS:
        for coordinates in ("edges", "corners"):
            for padding in PADDINGS:
                run(src, grid_of(*grid), function, padding, coordinates)


def test_wrong_arguments() -> None:
    def desc(src: tuple[int, ...], grid: tuple[int, ...], dst: tuple[int, ...]) -> GridSampleDesc:
        tensors = (MemoryDesc(dims, "f32") for dims in (src, grid, dst))
        return GridSampleDesc("linear", "zeros", "edges", *tensors)

    with pytest.raises(InvalidArguments, match="1 to 3 of space"):
        desc((2, 3), (2, 0), (2, 3))
    with pytest.raises(
        InvalidArguments, match=r"grid_desc = .*4 dimensions, the first of 2 and the last of 2"
    ):
        desc((2, 3, 4, 5), (2, 6, 7, 3), (2, 3, 6, 7))
    with pytest.raises(InvalidArguments, match=r"dst_desc = .*expected \(2, 3, 6, 7\)"):
        desc((2, 3, 4, 5), (2, 6, 7, 2), (2, 3, 7, 6))
    with pytest.raises(InvalidArguments, match="nothing to sample"):
        desc((2, 3, 0, 5), (2, 6, 7, 2), (2, 3, 6, 7))
    whole = GridSampleDesc(
        "linear", "zeros", "edges", MemoryDesc((2, 3, 4), "s32"), MemoryDesc((2, 6, 1), "f32"),
        MemoryDesc((2, 3, 6), "s32"),
    )  # fmt: skip
    with pytest.raises(Unimplemented, match="unsupported data type"):
        PrimitiveDesc(whole, ENGINE)
