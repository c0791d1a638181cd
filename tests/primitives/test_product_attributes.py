"""Attributes of products besides quantization: dropout, rounding, sums behind the weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    DataType,
    InvalidArguments,
    MatmulDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReorderDesc,
    Stream,
    Unimplemented,
    config,
)
from dnnl.primitives.desc import Desc
from dnnl.reference import dropout as reference
from dnnl.reference import stochastic
from dnnl.reference.conversions import convert
from dnnl.reference.post_ops import apply_post_ops
from dnnl.types.compensation import Compensation
from tests.check import check, logical, poisoned_memory
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, execute_all
from tests.primitives.products import (
    Window,
    convolution_desc,
    dequantized,
    expected,
    inner_product_desc,
    inputs,
    matmul_desc,
    some_rows,
)

SEED, CHANCE = 0x123456789, 0.3
# Sums of integers and this have more digits than narrow floats, and no more than f32.
SHIFT = 2.0**-3 + 2.0**-10


def told(offset: int | None) -> dict[int, Memory]:
    given: dict[Arg, np.ndarray] = {
        Arg.DROPOUT_PROBABILITY: np.array([CHANCE], np.float32),
        Arg.DROPOUT_SEED: np.array([SEED], np.int64),
    }
    if offset is not None:
        given[Arg.DROPOUT_OFFSET] = np.array([offset], np.int64)
    return {int(arg): Memory.from_numpy(values) for arg, values in given.items()}


def verify_dropout(desc: Desc, mask: str | None = "any", offset: int | None = None) -> None:
    """Drop elements of a product with a bias, before a post-op."""
    attr = PrimitiveAttr()
    dims = desc.outputs[0].desc.dims
    attr.set_dropout(
        None if mask is None else MemoryDesc(dims, "u8", mask), use_offset=offset is not None
    )
    attr.post_ops.append_eltwise("eltwise_linear", 2.0, 1.0)
    pd = PrimitiveDesc(desc, ENGINE, attr)
    args = inputs(pd, "integers")
    written: dict[int, Memory] = {}
    if mask is not None:
        written[Arg.DROPOUT_MASK] = poisoned_memory(pd.arg_desc(Arg.DROPOUT_MASK), ENGINE)
    results = execute_all(pd, {**args, **told(offset)}, written)
    values = {arg: logical(memory) for arg, memory in args.items()}
    sums, _, tolerance = expected(pd, values)
    dropped, kept = reference.dropout(sums, CHANCE, SEED, offset or 0)
    want = apply_post_ops(dropped, tuple(attr.post_ops), {})
    check(results[Arg.DST], want, tolerance(pd.dst_desc.data_type, 1))
    if mask is not None:
        check(results[Arg.DROPOUT_MASK], kept, 0.0)


@every_pair(
    some_rows,
    pytest.mark.parametrize("layout", ["plain", "ba"]),
    pytest.mark.parametrize(("mask", "offset"), [(None, None), ("any", 5), ("ba", None)]),
)
def test_dropout_of_matmul(mask: str | None, offset: int | None, layout: str, isa: str) -> None:
    desc = matmul_desc((9, 20, 37), ("f32",) * 3, ("any", "any", layout), "f32")
    with config.override("max_cpu_isa", isa):
        verify_dropout(desc, mask, offset)


@pytest.mark.parametrize(
    "types", [("bf16", "bf16", "f32"), ("u8", "s8", "s32"), ("f64", "f64", "f64")], ids=str
)
def test_types_of_dropout(types: tuple[str, str, str]) -> None:
    verify_dropout(matmul_desc((6, 16, 20), types, batch=(2,)))


@pytest.mark.parametrize("mask", ["any", "aB16b"])
def test_dropout_of_inner_product(mask: str) -> None:
    verify_dropout(inner_product_desc((5, 7, 3), 21, ("f32",) * 3, bias="f32"), mask, 3)


def test_what_drops_nothing() -> None:
    attr = PrimitiveAttr()
    attr.set_dropout()
    for desc in (
        convolution_desc(Window((5,), (3,)), 1, (4, 4)),
        matmul_desc((4, 4, 4), ("s64",) * 3, ("plain",) * 3),
    ):
        with pytest.raises(Unimplemented, match="unsupported attribute: dropout"):
            PrimitiveDesc(desc, ENGINE, attr)


@some_rows
@pytest.mark.parametrize(
    ("dst", "layout"),
    [
        ("bf16", "plain"),
        ("bf16", "ba"),
        ("f16", "plain"),
        ("f8_e5m2", "plain"),
        ("f8_e4m3", "ba"),
        ("f32", "plain"),
    ],
)
def test_stochastic_rounding(dst: str, layout: str, isa: str) -> None:
    attr = PrimitiveAttr()
    attr.set_rounding_mode(Arg.DST, "stochastic")
    attr.post_ops.append_eltwise("eltwise_linear", 1.0, SHIFT)
    desc = matmul_desc((9, 40, 37), ("f32", "f32", dst), ("any", "any", layout), "f32")
    with config.override("max_cpu_isa", isa):
        pd = PrimitiveDesc(desc, ENGINE, attr)
        args = inputs(pd, "integers")
        args[Arg.ROUNDING_SEED] = Memory.from_numpy(np.array([-77], np.int32))
        got = execute_all(pd, args)[Arg.DST]
    sums, _, _ = expected(pd, {arg: logical(memory) for arg, memory in args.items()})
    want = stochastic.rounded(sums + SHIFT, pd.dst_desc.data_type, -77)
    nearest = convert(sums + SHIFT, pd.dst_desc.data_type)
    check(got, want, 0.0)
    assert dst == "f32" or (logical(got) != nearest).any()


def test_stochastic_rounding_is_right_on_the_mean() -> None:
    values = np.full(100000, 1 + 0.3 * 2**-7)
    made = stochastic.rounded(values, DataType.bf16, 5)
    assert {*made} == {1.0, 1 + 2**-7}
    assert abs((made.mean() - 1) * 2**7 - 0.3) < 0.005


@pytest.mark.parametrize("name", ["bf16", "f16", "f8_e5m2", "f8_e4m3"])
def test_ends_of_stochastic_rounding(name: str) -> None:
    attr = PrimitiveAttr()
    attr.set_rounding_mode("DST", "stochastic")
    row = np.array([[np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-38, -1e-41, 0.0]], np.float32)
    pd = PrimitiveDesc(
        matmul_desc((1, 1, 8), ("f32", "f32", name), ("plain", "plain", "plain")), ENGINE, attr
    )
    dst = Memory(pd.dst_desc, ENGINE)
    args = {
        Arg.SRC: Memory.from_numpy(np.ones((1, 1), np.float32)),
        Arg.WEIGHTS: Memory.from_numpy(row),
        Arg.DST: dst,
        Arg.ROUNDING_SEED: Memory.from_numpy(np.array([3], np.int32)),
    }
    Primitive(pd).execute(Stream(ENGINE), args)
    got, most = logical(dst)[0], pd.dst_desc.data_type.max
    assert (got[0], got[1]) == (most, -most)
    assert np.isnan(got[2])
    check(dst, stochastic.rounded(row, pd.dst_desc.data_type, 3), 0.0)


def test_what_is_not_rounded_by_chance() -> None:
    attr = PrimitiveAttr()
    attr.set_rounding_mode(Arg.DST, "stochastic")
    with pytest.raises(Unimplemented, match="stochastic rounding to s8"):
        PrimitiveDesc(matmul_desc((4, 4, 4), ("u8", "s8", "s8")), ENGINE, attr)
    with pytest.raises(Unimplemented, match="unsupported attribute: rounding_mode"):
        PrimitiveDesc(inner_product_desc((4, 4), 4, ("f32", "f32", "f32")), ENGINE, attr)
    with pytest.raises(InvalidArguments, match="expected DST, DIFF_SRC or DIFF_WEIGHTS"):
        attr.set_rounding_mode(Arg.SRC, "stochastic")
    attr.set_rounding_mode(Arg.DST, "environment")
    assert attr == PrimitiveAttr()


def compensated(desc: Any, mask: int, scale_adjust: float = 1.0) -> Any:
    """A product of s8 in s32 whose weights, in the layout that it chooses, have both kinds of sums
    behind them."""
    src, weights = (desc.desc_of(arg).with_data_type("s8") for arg in (Arg.SRC, Arg.WEIGHTS))
    dst = desc.desc_of(Arg.DST).with_data_type("s32")
    desc = replace(desc, src_desc=src, weights_desc=weights, dst_desc=dst)
    sums = Compensation(mask, mask, scale_adjust)
    chosen = PrimitiveDesc(desc, ENGINE).weights_desc
    return replace(desc, weights_desc=chosen.with_compensation(sums))


WINDOW = Window((6, 7), (3, 3), padding_l=(1, 1))
PRODUCTS = {
    "convolution": (convolution_desc(WINDOW, 2, (20, 12), bias=False), 1),
    "groups": (convolution_desc(WINDOW, 2, (3, 5, 4), bias=False), 3),
    "1x1": (convolution_desc(Window((5, 6), (1, 1)), 2, (40, 20), bias=False), 1),
    "depthwise": (convolution_desc(WINDOW, 2, (19, 1, 1), bias=False), 1),
    "matmul": (matmul_desc((5, 20, 33), ("f32",) * 3), 2),
    "inner product": (inner_product_desc((4, 8, 3), 21, ("f32",) * 3), 1),
}


@every_pair(
    pytest.mark.parametrize("zero_point", [False, True]),
    pytest.mark.parametrize("name", PRODUCTS),
    pytest.mark.parametrize(("adjust", "isa"), [(1.0, "default"), (0.5, "default"), (0.5, "avx2")]),
)
def test_weights_with_sums_behind_them(
    adjust: float, isa: str, name: str, zero_point: bool
) -> None:
    """Those that the reorder made smaller are rounded, and count for what they are made smaller
    from."""
    with config.override("max_cpu_isa", isa):
        desc = compensated(*PRODUCTS[name], adjust)
        attr = PrimitiveAttr()
        if zero_point:
            attr.set_zero_points(Arg.SRC)
        pd = PrimitiveDesc(desc, ENGINE, attr)
        asked = desc.desc_of(Arg.WEIGHTS)
        assert pd.weights_desc == asked
        bare = PrimitiveDesc(
            replace(desc, weights_desc=asked.with_compensation(None)), ENGINE, attr
        )
        args = inputs(bare, "integers")
        stored = {arg: logical(memory) for arg, memory in args.items()}
        stored[int(Arg.WEIGHTS)] = np.rint(stored[int(Arg.WEIGHTS)] * adjust) / adjust
        want, _, _ = expected(bare, {**stored, **dequantized(bare, stored)})
        summed = Memory(asked, ENGINE)
        reorder = Primitive(PrimitiveDesc(ReorderDesc(args[Arg.WEIGHTS].desc, asked), ENGINE))
        reorder.execute(Stream(ENGINE), {Arg.FROM: args[Arg.WEIGHTS], Arg.TO: summed})
        got = Memory(pd.dst_desc, ENGINE)
        Primitive(pd).execute(Stream(ENGINE), {**args, Arg.WEIGHTS: summed, Arg.DST: got})
        check(got, want, 0.0)


def packed(weights: np.ndarray, desc: MemoryDesc) -> Memory:
    """Weights with sums behind them."""
    made, given = Memory(desc, ENGINE), Memory.from_numpy(weights)
    reorder = Primitive(PrimitiveDesc(ReorderDesc(given.desc, desc), ENGINE))
    reorder.execute(Stream(ENGINE), {Arg.FROM: given, Arg.TO: made})
    return made


def test_smaller_weights_of_open_and_of_grouped_products() -> None:
    rng, smaller = np.random.default_rng(1), Compensation(2, 0, 0.5)
    src = rng.integers(-100, 100, (9, 64)).astype(np.int8)
    weights = rng.integers(-100, 100, (64, 48)).astype(np.int8)
    want = src.astype(float) @ (np.rint(weights * 0.5) * 2)
    some, dst = MemoryDesc((RUNTIME_DIM, 64), "s8"), MemoryDesc((RUNTIME_DIM, 48), "f32")
    chosen = PrimitiveDesc(MatmulDesc(some, MemoryDesc((64, 48), "s8", "any"), dst), ENGINE)
    desc = MatmulDesc(some, chosen.weights_desc.with_compensation(smaller), dst)
    got = Memory(MemoryDesc((9, 48), "f32"), ENGINE)
    args = {Arg.SRC: Memory.from_numpy(src), Arg.WEIGHTS: packed(weights, desc.weights_desc)}
    Primitive(PrimitiveDesc(desc, ENGINE)).execute(Stream(ENGINE), {**args, Arg.DST: got})
    check(got, want, 0.0)
    some, dst = (MemoryDesc.grouped((9, n), t, 0, 2) for n, t in ((64, "s8"), (48, "f32")))
    chosen = PrimitiveDesc(MatmulDesc(some, MemoryDesc((2, 64, 48), "s8", "any"), dst), ENGINE)
    asked = chosen.weights_desc.with_compensation(replace(smaller, s8s8=5))
    rows, got = Memory(some, ENGINE), Memory(dst, ENGINE)
    rows.parts[0].numpy()[:] = src
    for memory in (rows, got):
        memory.parts[1].numpy()[:] = (4, 9)
    both = packed(np.stack([weights, weights]), asked)
    args = {Arg.SRC: rows, Arg.WEIGHTS: both, Arg.DST: got}
    Primitive(PrimitiveDesc(MatmulDesc(some, asked, dst), ENGINE)).execute(Stream(ENGINE), args)
    check(got.parts[0], want, 0.0)


@every_pair(groups=[64, 32, 1], src=["s8", "f32"], layout=["any", "ab"])
def test_smaller_weights_with_scales_along_k(layout: str, src: str, groups: int) -> None:
    """Those of segments, and those for which factors are copied as floats."""
    rng = np.random.default_rng(3)
    weights = rng.integers(-100, 100, (64, 48)).astype(np.int8)
    scales = 2.0 ** rng.integers(-2, 3, (64 // groups, 48))
    attr = PrimitiveAttr()
    attr.set_scales(Arg.WEIGHTS, 3, (groups, 1))
    for count in (1, 9, 600):
        values = rng.integers(-9, 9, (count, 64))
        rows = Memory.from_numpy(values.astype(np.int8 if src == "s8" else np.float32))
        asked, dst = MemoryDesc((64, 48), "s8", layout), MemoryDesc((count, 48), "f32")
        chosen = PrimitiveDesc(MatmulDesc(rows.desc, asked, dst), ENGINE, attr).weights_desc
        smaller = packed(weights, chosen.with_compensation(Compensation(2, 0, 0.5)))
        pd = PrimitiveDesc(MatmulDesc(rows.desc, smaller.desc, dst), ENGINE, attr)
        got, factors = Memory(dst, ENGINE), Memory.from_numpy(scales.astype(np.float32))
        args: dict[int, Memory] = {Arg.SRC: rows, Arg.WEIGHTS: smaller, Arg.DST: got}
        args[Arg.SCALES | Arg.WEIGHTS] = factors
        Primitive(pd).execute(Stream(ENGINE), args)
        meant = np.rint(weights * 0.5) * 2 * np.repeat(scales, groups, axis=0)
        check(got, values @ meant, 0.0)
