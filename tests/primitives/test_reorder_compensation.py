"""Reorder into weights with compensation: the weights as ever, and sums of them behind."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import (
    Arg,
    BinaryDesc,
    Compensation,
    ConcatDesc,
    EltwiseDesc,
    InvalidArguments,
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
from dnnl.reference.reorder import QUANTIZED_TOLERANCE, reorder
from tests.check import Fill, check, logical, memory_of, random_memory, random_values
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, describe, every_isa, execute

OIHW = (20, 17, 3, 5)
GOIHW = (3, 20, 9, 3, 1)
LAYOUTS = {
    "oihw": OIHW, "hwio": OIHW, "Oihw16o": OIHW, "OIhw4i16o4i": OIHW, "ABcd2a8b8a2b": OIHW,
    "gaps": OIHW, "part": OIHW, "part16": OIHW, "goihw": GOIHW,
    "gOIhw4i16o4i": GOIHW, "hwigo": GOIHW, "Goihw16g": GOIHW, "ba": (20, 33), "a": (77,),
}  # fmt: skip


def weights_desc(layout: str, compensation: Compensation) -> MemoryDesc:
    return describe(LAYOUTS[layout], layout).with_data_type("s8").with_compensation(compensation)


def run(src: Memory, dst: MemoryDesc) -> Memory:
    """A reorder without attributes, its weights checked; they must be integers of s8 in src."""
    result = execute(ReorderDesc(src.desc, dst), {Arg.SRC: src})
    check(result, logical(src), QUANTIZED_TOLERANCE("s8"))
    return result


@pytest.mark.parametrize(
    ("layout", "masks"),
    [
        (layout, masks)
        for layout, dims in LAYOUTS.items()
        for masks in ((1, 1), (3, 0), (2, 1), (15, 15), (8, 3))
        if not max(masks) >> len(dims)
    ],
)
def test_layouts_and_masks(layout: str, masks: tuple[int, int]) -> None:
    dims = LAYOUTS[layout]
    values = np.random.default_rng(1).integers(-128, 127, dims, endpoint=True)
    src = memory_of(values, MemoryDesc(dims, "f32"), ENGINE)
    run(src, weights_desc(layout, Compensation(*masks)))


def test_sums_that_pass_the_caches() -> None:
    """Those of zero points begin where no vector may be streamed to."""
    src = random_memory(MemoryDesc((2056, 8), "s8"), ENGINE)
    run(src, MemoryDesc((2056, 8), "s8", "ba", compensation=Compensation(1, 1)))


@every_isa
@pytest.mark.parametrize("layout", ["hwio", "OIhw4i16o4i", "part16", "gOIhw4i16o4i", "ba"])
def test_every_instruction_set(layout: str, isa: str) -> None:
    src = random_memory(MemoryDesc(LAYOUTS[layout], "s8"), ENGINE)
    with config.override("max_cpu_isa", isa):
        run(src, weights_desc(layout, Compensation(1, 3)))


@pytest.mark.parametrize(
    "data_type",
    ["f32", "bf16", "f16", "f64", "s32", "u8", "s4", "u4", "f8_e5m2", "f8_e4m3", "e8m0", "f4_e2m1"],
)
def test_source_types(data_type: str) -> None:
    dims = (20, 18)
    fill: Fill = "positive" if data_type == "e8m0" else "integers"
    src = random_memory(MemoryDesc(dims, data_type), ENGINE, 2, fill)
    dst = MemoryDesc(dims, "s8", "AB4b16a4b", compensation=Compensation(1, 1))
    result = execute(ReorderDesc(src.desc, dst), {Arg.SRC: src})
    check(result, logical(src), QUANTIZED_TOLERANCE("s8"))


def test_large_weights_are_summed_exactly() -> None:
    """f32 could not hold such sums; those of s8s8 are larger than s32, and wrap."""
    values = np.random.default_rng(3).integers(90, 127, (2, 250_001), endpoint=True)
    src = memory_of(values, MemoryDesc(values.shape, "s8"), ENGINE)
    for compensation in (Compensation(1, 1), Compensation(2, 2)):
        run(src, MemoryDesc(values.shape, "s8", "ba", compensation=compensation))


@pytest.mark.parametrize(
    ("tag", "whole", "dims"),
    [("aB48b", (18, 48), (18, 20)), ("AB6b16a", (16, 6), (2, 3)), ("BA16a32b", (16, 32), (9, 4))],
)
@pytest.mark.parametrize("mask", [1, 2])
def test_a_part_of_a_block_is_summed_alone(
    tag: str, whole: tuple[int, ...], dims: tuple[int, ...], mask: int
) -> None:
    """What lies beside it in the block belongs to others."""
    part = MemoryDesc(whole, "s8", tag).submemory(dims, (0, 0))
    src = random_memory(MemoryDesc(dims, "f32"), ENGINE, 7, "integers")
    run(src, part.with_compensation(Compensation(mask, mask)))


def test_weights_without_elements() -> None:
    for dims in ((0, 5), (5, 0)):
        dst = MemoryDesc(dims, "s8", compensation=Compensation(1))
        memory = Memory(dst, ENGINE)
        args = {Arg.SRC: Memory(MemoryDesc(dims, "f32"), ENGINE), Arg.DST: memory}
        pd = PrimitiveDesc(ReorderDesc(args[Arg.SRC].desc, dst), ENGINE)
        Primitive(pd).execute(Stream(ENGINE), args)
        np.testing.assert_array_equal(memory.compensation("s8s8"), np.zeros((dims[0], 1)))


def parameters(dims: tuple[int, ...]) -> tuple[PrimitiveAttr, dict[int, Memory]]:
    """Every attribute that a reorder to s8 has, with its memories."""
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC, mask=1)
    attr.set_zero_points(Arg.SRC, mask=2)
    attr.set_scales(Arg.DST, mask=3)
    attr.set_zero_points(Arg.DST, mask=1)
    attr.post_ops.append_sum(0.5)
    args = {
        Arg.SCALES | Arg.SRC: random_memory(MemoryDesc(dims[:1], "f32"), ENGINE, 1, "positive"),
        Arg.ZERO_POINTS | Arg.SRC: random_memory(MemoryDesc(dims[1:2], "s32"), ENGINE, 2),
        Arg.SCALES | Arg.DST: random_memory(
            MemoryDesc((*dims[:2], 1, 1), "f32"), ENGINE, 3, "positive"
        ),
        Arg.ZERO_POINTS | Arg.DST: random_memory(MemoryDesc(dims[:1], "s32"), ENGINE, 4),
    }
    return attr, {int(arg): memory for arg, memory in args.items()}


@every_pair(
    every_isa,
    pytest.mark.parametrize("adjust", [1.0, 0.5]),
    pytest.mark.parametrize("layout", ["oihw", "OIhw4i16o4i"]),
)
def test_together_with_every_attribute(layout: str, adjust: float, isa: str) -> None:
    src = random_memory(MemoryDesc(OIHW, "u8", "hwio"), ENGINE, 5)
    desc = weights_desc(layout, Compensation(1, 1, adjust))
    old = random_memory(desc, ENGINE, 6)
    attr, args = parameters(OIHW)
    with config.override("max_cpu_isa", isa):
        result = execute(ReorderDesc(src.desc, desc), {Arg.SRC: src, **args}, attr, old)
    given = {
        name: logical(args[flag | end]).reshape([*shape, 1, 1])
        for name, flag, end, shape in (
            ("src_scale", Arg.SCALES, Arg.SRC, (-1, 1)),
            ("src_zero_point", Arg.ZERO_POINTS, Arg.SRC, (1, -1)),
            ("dst_scale", Arg.SCALES, Arg.DST, OIHW[:2]),
            ("dst_zero_point", Arg.ZERO_POINTS, Arg.DST, (-1, 1)),
        )
    }
    want = reorder(logical(src), sum_scale=0.5, dst=logical(old), scale_adjust=adjust, **given)
    check(result, want, QUANTIZED_TOLERANCE("s8"))


@pytest.mark.parametrize("tag", ["OIhw4i16o4i", "hwio"])
@pytest.mark.parametrize("threads", [1, 2])
def test_quantizing_weights_is_one_call(tag: str, threads: int) -> None:
    """f32 weights to s8 with a scale for each output channel, in blocks, with both sums."""
    weights = np.random.default_rng(7).standard_normal((40, 24, 3, 3), np.float32)
    scales = np.abs(weights).max(axis=(1, 2, 3)) / np.float32(127)
    dst = MemoryDesc(weights.shape, "s8", tag, compensation=Compensation(1, 1))
    attr = PrimitiveAttr()
    attr.set_scales(Arg.DST, mask=1)
    src, quantized = Memory.from_numpy(weights), Memory(dst, ENGINE)
    args = {Arg.SRC: src, Arg.DST: quantized, Arg.SCALES | Arg.DST: Memory.from_numpy(scales)}
    primitive = Primitive(PrimitiveDesc(ReorderDesc(src.desc, dst), ENGINE, attr))
    primitive.execute(Stream(ENGINE, threads), args)
    want = np.rint(weights / scales[:, None, None, None]).astype(np.int64)
    np.testing.assert_array_equal(quantized.numpy(), want)
    sums = want.sum(axis=(1, 2, 3))
    np.testing.assert_array_equal(quantized.compensation("s8s8").reshape(-1), -128 * sums)
    np.testing.assert_array_equal(quantized.compensation("zero_points").reshape(-1), -sums)


def test_halved_weights_have_sums_of_their_own() -> None:
    values = random_values(OIHW, "s8", 8) * 7
    src = memory_of(values, MemoryDesc(OIHW, "s8"), ENGINE)
    desc = weights_desc("OIhw4i16o4i", Compensation(1, 0, 0.5))
    result = execute(ReorderDesc(src.desc, desc), {Arg.SRC: src})
    halves = np.rint(values / 2)
    assert not np.array_equal(halves, values / 2)
    check(result, halves, QUANTIZED_TOLERANCE("s8"))


@every_pair(
    every_isa,
    pytest.mark.parametrize("adjust", [1.0, 0.5]),
    pytest.mark.parametrize("layout", ["hwio", "OIhw4i16o4i", "part16", "gOIhw4i16o4i"]),
)
def test_such_weights_go_back_to_plain_floats(layout: str, adjust: float, isa: str) -> None:
    """What the scales and the adjustment have done to them is undone; the sums are left behind."""
    desc = weights_desc(layout, Compensation(1, 3, adjust))
    dims = desc.dims
    values = np.random.default_rng(9).standard_normal(dims).astype(np.float32)
    attr, back = PrimitiveAttr(), PrimitiveAttr()
    attr.set_scales(Arg.DST, mask=1)
    back.set_scales(Arg.SRC, mask=1)
    shape = (dims[0], *[1] * (len(dims) - 1))
    scales = np.linspace(0.02, 0.05, dims[0], dtype=np.float32)
    own = Memory.from_numpy(scales)
    src = Memory.from_numpy(values)
    with config.override("max_cpu_isa", isa):
        made = execute(ReorderDesc(src.desc, desc), {Arg.SRC: src, Arg.SCALES | Arg.DST: own}, attr)
        args = {Arg.SRC: made, Arg.SCALES | Arg.SRC: own}
        result = execute(ReorderDesc(desc, src.desc), args, back)
    check(result, logical(made) / adjust * scales.reshape(shape), QUANTIZED_TOLERANCE("f32"))
    held = np.abs(values) < 127 * scales.reshape(shape)
    wrong = np.abs(result.numpy() - values) / scales.reshape(shape)
    assert wrong[held].max() <= 0.51 / adjust


def test_weights_get_other_sums() -> None:
    """From one layout and adjustment into others, with what dst held added in between."""
    given = weights_desc("OIhw4i16o4i", Compensation(1, 0, 0.5))
    values = np.random.default_rng(10).integers(-60, 60, OIHW)
    made = run(
        Memory.from_numpy(values.astype(np.float32) * 2), weights_desc("oihw", Compensation(2))
    )
    half = execute(ReorderDesc(made.desc, given), {Arg.SRC: made})
    check(half, values, QUANTIZED_TOLERANCE("s8"))
    attr = PrimitiveAttr()
    attr.post_ops.append_sum(1.0)
    wanted = weights_desc("hwio", Compensation(1, 1))
    old = memory_of(np.full(OIHW, 3), wanted, ENGINE)
    result = execute(ReorderDesc(given, wanted), {Arg.SRC: half}, attr, old)
    check(result, 2 * values + 3, QUANTIZED_TOLERANCE("s8"))


def test_nothing_else_takes_such_weights() -> None:
    dims = (4, 5)
    plain = MemoryDesc(dims, "s8")
    weights = plain.with_compensation(Compensation(1))
    wanted = MemoryDesc(dims, "f32")
    attr = PrimitiveAttr()
    attr.post_ops.append_binary("binary_add", weights)
    kinds = ("forward_inference", "eltwise_relu")
    for desc, attributes, name in (
        (ConcatDesc(0, [plain, weights], MemoryDesc((8, 5), "s8")), None, r"MULTIPLE_SRC\+1"),
        (BinaryDesc("binary_add", plain, weights, plain), None, "SRC_1"),
        (EltwiseDesc.forward(*kinds, plain, weights), None, "DST"),
        (EltwiseDesc.forward(*kinds, wanted, wanted), attr, r"post_op\(0\)\|SRC_1"),
    ):
        message = rf"unsupported compensation: {name} is s8::blocked:ab::f1:s8m1"
        with pytest.raises(Unimplemented, match=message):
            PrimitiveDesc(desc, ENGINE, attributes)


def test_other_memory_is_refused() -> None:
    """Weights without room for sums, or with other ones, are not those of the description."""
    desc = MemoryDesc((4, 5), "s8", compensation=Compensation(1))
    src = random_memory(MemoryDesc((4, 5), "f32"), ENGINE)
    primitive = Primitive(PrimitiveDesc(ReorderDesc(src.desc, desc), ENGINE))
    for other in (None, Compensation(0, 1), Compensation(3), Compensation(1, 0, 0.5)):
        dst = Memory(desc.with_compensation(other), ENGINE)
        message = r"args\[DST\].*must be s8::blocked:ab::f1:s8m1.*; compensation is written by"
        with pytest.raises(InvalidArguments, match=message):
            primitive.execute(Stream(ENGINE), {Arg.SRC: src, Arg.DST: dst})
