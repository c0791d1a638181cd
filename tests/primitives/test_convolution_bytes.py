"""Convolutions of bytes: exact sums, what padding takes no part in, scales, zero points."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dnnl import (
    Arg,
    ConvolutionDesc,
    Engine,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.primitives.primitive_desc import select_isa
from tests.check import logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, execute
from tests.primitives.products import (
    Dims,
    Window,
    attr_of,
    convolution_desc,
    inputs,
    verify,
    verify_on,
)
from tests.processor import ISAS
from tests.work_items import assert_apart

PAIRS = [("u8", "s8"), ("s8", "s8")]
MOST_LINES = 6000  # of assembly
DST = ["f32", "bf16", "f16", "s32", "s8", "u8"]
SAME = Window((5, 9), (3, 3), padding_l=(1, 1))
POINT = Window((4, 5), (1, 1))
FAR = Window((6, 7), (3, 2), (2, 1), (3, 2), (1, 4), (1, 2))  # some pixels see padding alone
LINE = Window((11,), (4,), (3,), (2,), (1,))
VOLUME = Window((3, 4, 5), (2, 3, 2), (1, 1, 2), (1, 0, 1), (0, 1, 1))
SPLIT, DEPTHWISE = (2, 5, 6), (20, 1, 1)

every_row = pytest.mark.parametrize("isa", ISAS)


def convolution(
    types: tuple[str, str, str],
    channels: Dims = (19, 8),
    window: Window = SAME,
    layouts: tuple[str, str, str] = ("any", "any", "any"),
    bias: str | None = None,
) -> ConvolutionDesc:
    """Two images; ``channels`` are (OC, IC), or (G, OC / G, IC / G)."""
    desc = convolution_desc(window, 2, channels, layouts, bias is not None)
    src, weights, dst = types
    return replace(
        desc,
        src_desc=desc.src_desc.with_data_type(src),
        weights_desc=desc.weights_desc.with_data_type(weights),
        dst_desc=desc.dst_desc.with_data_type(dst),
        bias_desc=desc.bias_desc.with_data_type(bias) if bias else desc.bias_desc,
    )


def quantized(
    scales: tuple[int | None, ...] = (), zero_points: tuple[int | None, ...] = ()
) -> PrimitiveAttr:
    """An attribute with masks for src, weights and dst."""
    attr = PrimitiveAttr()
    arguments = (Arg.SRC, Arg.WEIGHTS, Arg.DST)
    for arg, mask in zip(arguments, scales, strict=False):
        if mask is not None:
            attr.set_scales(arg, mask)
    for arg, mask in zip(arguments, zero_points, strict=False):
        if mask is not None:
            attr.set_zero_points(arg, mask)
    return attr


@every_row
@pytest.mark.parametrize(
    ("channels", "types"), [*itertools.product([(19, 8)], PAIRS), ((2, 4, 6), PAIRS[1])], ids=str
)
def test_sums_are_exact(channels: Dims, types: tuple[str, str], isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        verify(convolution((*types, "s32"), channels), quantized((), (0, None)), "normal")


@pytest.mark.parametrize("channels", [(5, 4), (5, 1, 1)], ids=str)
def test_every_row_has_the_same_bits(channels: Dims) -> None:
    window = Window((3, 4), (2, 2), padding_l=(1, 1))
    desc = convolution(("s8", "s8", "u8"), channels, window, ("last", "plain", "last"), "f32")
    attr = quantized((0, 1, 2), (0, 0, 0))
    args = inputs(PrimitiveDesc(desc, ENGINE, attr))
    results = []
    for isa in ISAS:
        with config.override("max_cpu_isa", isa):
            results.append(logical(execute(desc, args, attr)))
    assert all((result == results[0]).all() for result in results)
    assert len(np.unique(results[0])) > 9


@every_row
def test_sums_of_single_channels_are_exact(isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        verify(convolution(("s8", "s8", "s32"), DEPTHWISE), quantized((), (0, 0)), "normal")


@every_row
@pytest.mark.parametrize("src", [("u8", 255), ("s8", 127), ("s8", -128)], ids=str)
def test_no_sum_saturates(src: tuple[str, int], isa: str) -> None:
    """Products of the largest bytes, of which two do not fit 16 bits."""
    with config.override("max_cpu_isa", isa):
        pd = PrimitiveDesc(convolution((src[0], "s8", "s32")), ENGINE)
        for weight in (-128, 127):
            args: dict[int, Memory] = {
                arg: memory_of(np.full(pd.arg_desc(arg).dims, value), pd.arg_desc(arg), ENGINE)
                for arg, value in ((Arg.SRC, src[1]), (Arg.WEIGHTS, weight))
            }
            verify_on(pd, args)


@every_pair(
    every_row,
    pytest.mark.parametrize("types", PAIRS, ids=str),
    pytest.mark.parametrize("channels", [(260, 8), (2, 260, 5)], ids=str),
)
def test_pixels_that_are_apart_meet_many_outputs(
    channels: Dims, types: tuple[str, str], isa: str
) -> None:
    """A copy of them stands for src, in the sums that compensate zero points as well."""
    window = Window((5, 7), (1, 1), (2, 2))
    with config.override("max_cpu_isa", isa):
        for layout in ("any", "plain"):
            desc = convolution((*types, "s32"), channels, window, (layout, "any", layout))
            verify(desc, quantized((), (2, 0)))


@pytest.mark.parametrize("window", [FAR, LINE, VOLUME, POINT], ids=["far", "line", "volume", "1x1"])
@pytest.mark.parametrize(
    ("types", "zero_points"), [(PAIRS[0], (0, None)), (PAIRS[1], (2, 0))], ids=str
)
def test_padding_stands_for_the_zero_point(
    types: tuple[str, str], zero_points: Dims, window: Window
) -> None:
    for channels in ((7, 5), DEPTHWISE):
        desc = convolution((*types, "s32"), channels, window)
        verify(desc, quantized((), zero_points), "normal")


@pytest.mark.parametrize(
    "zero_points", [(None, 3, 0), (0, 3, None), (2, None, 2), (2, 1, 0)], ids=str
)
def test_zero_points(zero_points: tuple[int | None, ...]) -> None:
    verify(convolution(("u8", "s8", "s8"), SPLIT), quantized((), zero_points), "normal")


@pytest.mark.parametrize(
    ("channels", "dst"), [((19, 8), 0), ((19, 8), 2), (SPLIT, 2), (DEPTHWISE, 0)], ids=str
)
def test_scales(channels: Dims, dst: int) -> None:
    per_output = 3 if len(channels) == 3 else 1
    attr = quantized((0, per_output, dst), (0, 0, 0))
    attr.post_ops.append_eltwise("eltwise_relu")
    attr.post_ops.append_sum(0.5, 3)
    verify(convolution(("u8", "s8", "u8"), channels, bias="f32"), attr, "normal")


@pytest.mark.parametrize("channels", [(19, 8), DEPTHWISE], ids=str)
def test_scales_of_floats(channels: Dims) -> None:
    per_output = 3 if len(channels) == 3 else 1
    desc = convolution(("f32", "f32", "f32"), channels, bias="f32")
    verify(desc, quantized((0, per_output, 2)), "normal")


@pytest.mark.parametrize("dst", DST)
@pytest.mark.parametrize("channels", [(19, 8), DEPTHWISE], ids=str)
def test_types_of_dst_and_bias(channels: Dims, dst: str) -> None:
    bias = DST[DST.index(dst) - 1]
    verify(convolution(("u8", "s8", dst), channels, bias=bias), None, "normal")


_LAYOUTS = [
    *itertools.product([(19, 8)], ["plain", "last", "block16", "reversed", "part"]),
    *itertools.product([DEPTHWISE], ["plain", "block8"]),
    ((2, 8, 4), "block8"),  # blocks that groups cut
    ((2, 8, 6), "block8"),
]


@pytest.mark.parametrize(("channels", "layout"), _LAYOUTS, ids=str)
def test_layouts(channels: Dims, layout: str) -> None:
    weights = "any" if layout.startswith("block") else "plain"
    attr = quantized((0,), (0, None, 2))
    desc = convolution(("s8", "s8", "u8"), channels, SAME, (layout, weights, layout))
    verify(desc, attr, "normal")


@pytest.mark.parametrize("types", [("u8", "s8", "s8"), ("bf16",) * 3], ids=str)
@pytest.mark.parametrize("dst", ["last", "plain"])
def test_post_ops(dst: str, types: tuple[str, str, str]) -> None:
    operand = MemoryDesc((2, 19, 1, 1), "s8")
    attr = attr_of(
        ("binary", "binary_mul", operand),
        ("eltwise", "eltwise_gelu_tanh"),
        ("sum", 0.5),
        ("prelu", 2),
    )
    for window in (SAME, POINT):
        desc = convolution(types, (19, 8), window, ("any", "any", dst), "f32")
        verify(desc, attr, "normal")


@pytest.mark.parametrize("channels", [(19, 8), (2, 17, 3)], ids=str)
@pytest.mark.parametrize("layout", ["any", "last", "plain"])
def test_pairs_of_bf16(layout: str, channels: Dims) -> None:
    for window in (SAME, FAR):
        desc = convolution(("bf16", "bf16", "f32"), channels, window, (layout, "any", layout))
        verify(desc, None, "normal")


@pytest.mark.parametrize("channels", [(64, 64), (2, 32, 64)], ids=str)
def test_nothing_is_copied_in_layouts_that_were_chosen(channels: Dims) -> None:
    bfloats = any(dot.a == "bf16" for dot in select_isa(ENGINE).dots)
    for types in (("u8", "s8", "u8"), *[("bf16",) * 3] * bfloats):
        pd = PrimitiveDesc(convolution(types, channels), ENGINE)
        assert not pd.info().packing


@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
def test_sums_of_a_group_stay_out_of_the_next_one(isa: str) -> None:
    """Channels of a group are fewer than those of its panels, and two threads may do two groups."""
    desc = convolution(("u8", "s8", "s32"), (3, 81, 12), Window((6, 6), (2, 2)))
    with config.override("max_cpu_isa", isa):
        pd = PrimitiveDesc(desc, ENGINE, quantized((), (0,)))
    memories = {
        tensor.argument: Memory(pd.arg_desc(tensor.argument), ENGINE) for tensor in pd.desc.tensors
    }
    zero_points = Memory(MemoryDesc((1,), "s32"), ENGINE)
    zero_points.numpy()[:] = 3
    assert_apart(Primitive(pd), {**memories, Arg.ZERO_POINTS | Arg.SRC: zero_points})


def test_depthwise_of_many_taps_stays_exact() -> None:
    window = Window((17, 18), (17, 17))
    desc = convolution(("u8", "s8", "s32"), (2, 1, 1), window)
    assert "brgemm" in PrimitiveDesc(desc, ENGINE).impl_info
    verify(desc, None, "normal")


@pytest.mark.parametrize(
    ("scales", "zero_points", "message"),
    [
        ((2,), (), "scales of SRC with mask 2; it takes 0"),
        ((0, 2), (), "scales of WEIGHTS with mask 2; it takes 0 or 1"),
        ((), (1,), "zero points of SRC with mask 1; it takes 0 or 2"),
    ],
)
def test_what_varies_within_a_sum_is_refused(scales: Dims, zero_points: Dims, message: str) -> None:
    with pytest.raises(Unimplemented, match=message):
        PrimitiveDesc(convolution(("u8", "s8", "f32")), ENGINE, quantized(scales, zero_points))


@pytest.mark.parametrize("window", [SAME, Window((14, 14), (3, 3), padding_l=(1, 1))], ids=str)
def test_borders_are_not_written_out_for_each_tile(window: Window) -> None:
    """Code for each tile of an image once took seconds to build."""
    desc = convolution(("u8", "s8", "u8"), (64, 64), window, bias="f32")
    with config.override("max_cpu_isa", "avx2"):
        text = Primitive(PrimitiveDesc(desc, Engine("null"), quantized((0, 1, 0), (0, 0, 0)))).asm()
    assert text.count("\n") < MOST_LINES
