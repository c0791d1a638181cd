"""Depthwise convolutions of bytes by an instruction that adds up the products of four taps."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from dnnl import Arg, ConvolutionDesc, MemoryDesc, PrimitiveAttr, PrimitiveDesc, config
from dnnl.codegen import isa as rows
from dnnl.kernels.convolution.depthwise import bytes as convolution_depthwise_bytes
from tests.check import logical
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, execute
from tests.primitives.products import Types, Window, convolution_desc, inputs, verify

_ROWS = rows.available(ENGINE.features.arch, ENGINE.features.flags)
NAMES = [
    row.name for row in _ROWS
    if row.masked_bytes and any((dot.a, dot.b) == ("u8", "s8") for dot in row.dots)
]  # fmt: skip
pytestmark = pytest.mark.skipif(not NAMES, reason="no instruction of this processor adds up bytes")

SAME = Window((5, 9), (3, 3), padding_l=(1, 1), padding_r=(1, 1))
WINDOWS = {
    "same": SAME,
    "bare": Window((6, 7), (3, 3)),
    "strides": Window((9, 11), (3, 3), (2, 3), (1, 1), (1, 1)),
    "far": Window((6, 7), (3, 2), (2, 1), (3, 2), (1, 4), (1, 2)),
    "large": Window((3, 2), (7, 5), (1, 1), (3, 2), (3, 2)),
    "narrow": Window((4, 1), (3, 3), (1, 1), (1, 1), (1, 1)),
    "line": Window((11,), (4,), (3,), (2,), (1,)),
    "volume": Window((3, 4, 5), (2, 3, 2), (1, 1, 2), (1, 0, 1), (0, 1, 1)),
    "point": Window((4, 5), (1, 1)),
    "padding alone": Window((2, 2), (1, 1), (1, 1), (2, 3), (2, 3)),
}


def described(
    channels: int, types: Types, window: Window = SAME, weights: str = "any", *, bias: bool = True
) -> ConvolutionDesc:
    """Two images with their channels side by side."""
    layouts = ("last", weights, "last")
    desc = convolution_desc(window, 2, (channels, 1, 1), layouts, bias)
    return replace(
        desc,
        src_desc=desc.src_desc.with_data_type(types[0]),
        weights_desc=desc.weights_desc.with_data_type(types[1]),
        dst_desc=desc.dst_desc.with_data_type(types[2]),
    )


def quantized(*, points: bool = True) -> PrimitiveAttr:
    """Scales of all, and zero points of src and dst."""
    attr = PrimitiveAttr()
    attr.set_scales(Arg.SRC)
    attr.set_scales(Arg.WEIGHTS, 1)
    attr.set_scales(Arg.DST)
    for arg in (Arg.SRC, Arg.DST) if points else ():
        attr.set_zero_points(arg)
    return attr


def by_fours(desc: ConvolutionDesc, attr: PrimitiveAttr | None = None) -> bool:
    return isinstance(
        PrimitiveDesc(desc, ENGINE, attr).plan.recipe.conf,
        convolution_depthwise_bytes.DepthwiseBytesConf,
    )


@every_pair(isa=NAMES, channels=[5, 16, 20, 32, 47, 64, 70, 144], src=["u8", "s8"])
def test_channels(src: str, channels: int, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        desc = described(channels, (src, "s8", "u8"))
        assert by_fours(desc, quantized())
        verify(desc, quantized(), "normal")


@every_pair(
    pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS),
    pytest.mark.parametrize("src", ["u8", "s8"]),
    pytest.mark.parametrize("points", [False, True]),
)
def test_windows(src: str, points: bool, window: Window) -> None:
    desc = described(37, (src, "s8", "s8"), window)
    assert by_fours(desc, quantized(points=points))
    verify(desc, quantized(points=points), "normal")


@pytest.mark.parametrize("dst", ["f32", "bf16", "f16", "s32", "s8", "u8"])
@pytest.mark.parametrize("weights", ["plain", "last", "block16"])
def test_types_and_layouts_of_weights(weights: str, dst: str) -> None:
    desc = described(40, ("s8", "s8", dst), SAME, weights, bias=False)
    assert by_fours(desc)
    verify(desc, None, "normal")


def test_post_ops() -> None:
    attr = quantized()
    desc = described(40, ("u8", "s8", "u8"))
    attr.post_ops.append_sum(0.5)
    attr.post_ops.append_eltwise("eltwise_relu")
    attr.post_ops.append_binary("binary_add", MemoryDesc((1, 40, 1, 1), "f32"))
    attr.post_ops.append_prelu(2)
    assert by_fours(desc, attr)
    verify(desc, attr)


@pytest.mark.parametrize("channels", [20, 72])
def test_a_part_of_a_larger_image(channels: int) -> None:
    """Pixels and rows that are further apart than their channels."""
    desc = described(channels, ("u8", "s8", "s8"))
    shapes = [(tensor.dims, tensor.data_type) for tensor in (desc.src_desc, desc.dst_desc)]
    src, dst = (
        MemoryDesc((2, channels + 30, h + 2, w + 3), kind, "nhwc").submemory(
            (2, channels, h, w), (0, 11, 1, 2)
        )
        for (_, _, h, w), kind in shapes
    )
    desc = replace(desc, src_desc=src, dst_desc=dst)
    assert by_fours(desc, quantized())
    verify(desc, quantized())


@pytest.mark.parametrize("src", ["u8", "s8"])
def test_bits_are_those_of_a_nest(src: str) -> None:
    desc = described(50, (src, "s8", "u8"), WINDOWS["strides"])
    attr = quantized()
    args = inputs(PrimitiveDesc(desc, ENGINE, attr), "normal")
    results = []
    for isa in ("generic", *NAMES):
        with config.override("max_cpu_isa", isa):
            results.append(logical(execute(desc, args, attr)))
    assert all((result == results[0]).all() for result in results)
    assert len(np.unique(results[0])) > 9


def test_what_others_do() -> None:
    """Blocks, zero points of each channel or of weights, weights of u8, very many taps."""
    taps = Window((17, 17), (9, 9))
    assert prod(taps.kernel) > 64
    blocks = described(32, ("u8", "s8", "u8"))
    blocks = replace(blocks, src_desc=MemoryDesc(blocks.src_desc.dims, "u8", "nChw16c"))
    points = PrimitiveAttr()
    points.set_zero_points(Arg.SRC, 2)
    weights = PrimitiveAttr()
    weights.set_zero_points(Arg.WEIGHTS)
    for desc, attr in (
        (blocks, None),
        (described(32, ("u8", "s8", "u8")), points),
        (described(32, ("u8", "s8", "u8")), weights),
        (described(32, ("u8", "u8", "u8")), None),
        (described(32, ("u8", "s8", "u8"), taps), None),
    ):
        conf = PrimitiveDesc(desc, ENGINE, attr).plan.recipe.conf
        assert not isinstance(conf, convolution_depthwise_bytes.DepthwiseBytesConf)
        verify(desc, attr)
