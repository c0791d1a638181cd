"""Cumulative sums and products along an axis."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import (
    CumulativeDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.reference.cumulative import cumulative
from dnnl.types.arg import Arg
from tests.check import logical
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, describe, every_isa, execute, source

DIMS = (3, 24, 5, 7)
TERMS = ["inclusive", "exclusive"]
ORDERS = ["forward", "reverse"]


def run(
    src: Memory, axis: int, function: str, terms: str, order: str, dst: MemoryDesc | None = None
) -> None:
    desc = CumulativeDesc(function, src.desc, dst or src.desc, axis, terms, order)
    got = logical(execute(desc, {Arg.SRC: src}))
    options = {"exclusive": terms == "exclusive", "reverse": order == "reverse"}
    data = src.numpy() if src.desc.data_type.is_integer else logical(src)
    want = cumulative(data, function, axis, **options).astype(np.float64)
    size = cumulative(np.abs(logical(src)), function, axis, **options)
    eps = src.desc.data_type.eps
    assert (np.abs(got - want) <= 40 * eps * np.maximum(np.abs(size), 1e-30)).all()


@every_pair(
    order=ORDERS,
    terms=TERMS,
    axis=range(4),
    layout=["nchw", "nhwc", "nChw8c", "dcba", "gaps", "part"],
)
def test_layouts(layout: str, axis: int, terms: str, order: str) -> None:
    run(source(DIMS, layout), axis, "sum", terms, order)


@every_pair(
    every_isa,
    pytest.mark.parametrize("data_type", ["f32", "s32"]),
    block=[2, 3, 5, 6, 7],
    function=["sum", "product"],
    order=ORDERS,
    terms=TERMS,
)
def test_blocks_that_fill_no_vector(
    block: int, function: str, order: str, terms: str, data_type: str, isa: str
) -> None:
    """Behind the end of a block others follow."""
    rng = np.random.default_rng(block)
    for rows, size in ((1, 11), (3, 4 * block)):
        plain = MemoryDesc((rows, size), data_type)
        padded = -(-size // block) * block
        blocked = MemoryDesc(
            (rows, size),
            data_type,
            [padded, block],
            inner_blocks=[(1, block)],
            padded_dims=(rows, padded),
        )
        array = rng.uniform(0.8, 1.25, (rows, size)).astype(np.float32)
        if data_type == "s32":
            array = rng.integers(-3, 4, (rows, size)).astype(np.int32)
        src = Memory.from_numpy(array).reorder_to(blocked)
        with config.override("max_cpu_isa", isa):
            run(src, 1, function, terms, order, plain)


@every_pair(
    every_isa,
    pytest.mark.parametrize("data_type", ["f32", "f64", "s8", "u16", "s32", "u64"]),
    pytest.mark.parametrize("function", ["sum", "product"]),
)
def test_types(function: str, data_type: str, isa: str) -> None:
    """Integers wrap."""
    kind = MemoryDesc((1,), data_type).data_type
    rng = np.random.default_rng(1)
    array = rng.integers(1, 100, (6, 83)).astype(kind.numpy)
    if kind.is_float:
        array = rng.uniform(0.8, 1.25, array.shape).astype(kind.numpy)
    with config.override("max_cpu_isa", isa):
        for axis in (0, 1):
            for terms in TERMS:
                run(Memory.from_numpy(array), axis, function, terms, "forward")


def test_a_nan_goes_on_to_the_end_and_not_back() -> None:
    array = np.ones((3, 70), np.float32)
    array[1, 33] = np.nan
    src = Memory.from_numpy(array)
    got = execute(CumulativeDesc("sum", src.desc, src.desc, 1), {Arg.SRC: src}).numpy()
    np.testing.assert_array_equal(got, np.cumsum(array, 1))


@pytest.mark.parametrize("dims", [(1, 1), (300, 1), (1, 5025), (4000, 3), (0, 4), (2, 65, 129)])
def test_shapes(dims: tuple[int, ...]) -> None:
    for axis in range(len(dims)):
        for order in ORDERS:
            run(source(dims, "abc"[: len(dims)]), axis, "sum", "inclusive", order)


def test_in_place() -> None:
    src = source((5, 40), "ab")
    want = np.cumsum(logical(src), 1)
    desc = CumulativeDesc("sum", src.desc, src.desc, 1)
    got = execute(desc, {Arg.SRC: src}, dst=src)
    np.testing.assert_allclose(logical(got), want, rtol=1e-5, atol=1e-5)


def test_wrong_arguments() -> None:
    src = MemoryDesc((5, 4), "f32")
    with pytest.raises(InvalidArguments, match=r"dst_desc = .*expected \(5, 4\)"):
        CumulativeDesc("sum", src, MemoryDesc((5, 1), "f32"), 1)
    with pytest.raises(InvalidArguments, match="terms = 'all'"):
        CumulativeDesc("sum", src, src, 1, "all")
    with pytest.raises(Unimplemented, match="computed in one type"):
        PrimitiveDesc(CumulativeDesc("sum", src, MemoryDesc((5, 4), "f64"), 1), ENGINE)
    padded = describe((2, 5, 3, 3), "nChw8c")
    with pytest.raises(Unimplemented, match="padded along axis 1"):
        PrimitiveDesc(CumulativeDesc("sum", padded, padded, 1), ENGINE)
