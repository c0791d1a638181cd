"""Convolutions and inner products of small floats, and into other types."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dnnl import (
    Arg,
    ConvolutionDesc,
    InnerProductDesc,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    config,
)
from dnnl.primitives.primitive_desc import select_isa
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.lines import conf_of
from tests.primitives.products import Dims, Window, attr_of, convolution_desc, lay_out, verify
from tests.processor import ISAS

FORWARD = "forward_inference"
SAME = Window((5, 9), (3, 3), padding_l=(1, 1))
TYPES = [("bf16", "bf16"), ("bf16", "f32"), ("f16", "f16"), ("f16", "u8"), ("f32", "s8")]

every_row = pytest.mark.parametrize("isa", ISAS)


def typed(desc: ConvolutionDesc, data_type: str, dst: str) -> ConvolutionDesc:
    """The convolution with other types."""
    return replace(
        desc,
        src_desc=desc.src_desc.with_data_type(data_type),
        weights_desc=desc.weights_desc.with_data_type(data_type),
        dst_desc=desc.dst_desc.with_data_type(dst),
    )


@every_pair(
    types=TYPES,
    channels=[(19, 35), (2, 17, 16), (20, 1, 1)],
    layout=["any", "plain", "last", "block16", "reversed", "gaps", "part"],
)
def test_convolution(channels: Dims, layout: str, types: tuple[str, str]) -> None:
    desc = convolution_desc(SAME, 2, channels, (layout, "any", layout))
    verify(typed(desc, *types), attr_of(("eltwise", "eltwise_relu"), ("sum", 0.5)), "normal")


@every_row
@pytest.mark.parametrize(
    ("channels", "weights"), [((19, 35), "any"), ((19, 5), "plain")], ids=["any", "plain"]
)
def test_convolution_on_every_row(channels: Dims, weights: str, isa: str) -> None:
    # Few channels where weights are packed: their tails take a second of LLVM's time each.
    desc = convolution_desc(SAME, 1, channels, ("any", weights, "any"))
    with config.override("max_cpu_isa", isa):
        for pair in TYPES:
            verify(typed(desc, *pair), fill="normal")


@every_pair(isa=ISAS, types=TYPES, layout=["any", "plain", "block16", "reversed"])
def test_inner_product(layout: str, types: tuple[str, str], isa: str) -> None:
    dims = (5, 19, 2, 3), (18, 19, 2, 3), (5, 18)
    layouts = layout, "any", "plain" if layout == "block16" else layout
    names = types[0], types[0], types[1]
    src, weights, dst = (
        lay_out(size, where).with_data_type(name)
        for size, where, name in zip(dims, layouts, names, strict=True)
    )
    bias = MemoryDesc((18,), types[0])
    with config.override("max_cpu_isa", isa):
        verify(
            InnerProductDesc.forward("forward_inference", src, weights, dst, bias), None, "normal"
        )


def retyped(desc: ConvolutionDesc, types: tuple[str, str, str]) -> ConvolutionDesc:
    """The convolution with other types of src, weights and dst."""
    src, weights, dst = types
    return replace(typed(desc, src, dst), weights_desc=desc.weights_desc.with_data_type(weights))


RARE = [
    *(("f64",) * 3, ("f8_e5m2",) * 3, ("f8_e4m3", "f8_e5m2", "f32"), ("f4_e2m1",) * 3),
    *(("f4_e2m1", "f4_e2m1", "f32"), ("bf16", "f8_e5m2", "f32"), ("f16", "f4_e2m1", "bf16")),
    *(("f32", "s8", "f32"), ("bf16", "u8", "bf16"), ("f16", "s4", "f32"), ("u8", "s4", "u8")),
    *(("s8", "u4", "s32"), ("f32", "f32", "f8_e4m3"), ("f32", "bf16", "f32")),
    *(("bf16", "f32", "bf16"), ("f16", "bf16", "f32"), ("f8_e5m2", "f16", "f32")),
]


@every_pair(
    isa=sorted({*ISAS} & {"sse41", "avx2", ISAS[-1]}),
    types=RARE,
    layout=["any", "plain", "last", "block16", "gaps"],
    channels=[(35, 19), (2, 18, 20), (20, 1, 1)],
    weights=["any", "plain"],
)
def test_types_that_become_others(
    isa: str, types: tuple[str, str, str], layout: str, channels: Dims, weights: str
) -> None:
    """Floats of few bits become bf16, bytes beside floats f32, where they are copied or loaded."""
    window = Window((5, 9), (3, 2), (1, 2), (1, 1))
    with config.override("max_cpu_isa", isa):
        desc = convolution_desc(window, 2, channels, (layout, weights, layout))
        verify(retyped(desc, types), attr_of(("eltwise", "eltwise_relu")), "normal")


@every_pair(
    isa=ISAS,
    channels=[(19, 1, 1), (64, 32)],
    layout=["plain", "last", "behind"],
    size=[7, 14],
)
def test_windows_that_begin_in_the_middle_of_a_byte(
    layout: str, channels: Dims, isa: str, size: int
) -> None:
    """Those at the border begin before the first element."""
    types = "f4_e2m1", "f4_e2m1", "f32"
    with config.override("max_cpu_isa", isa):
        window = Window((size, size), (3, 3), padding_l=(1, 1))
        desc = convolution_desc(window, 1, channels, (layout, "any", "any"))
        verify(retyped(desc, types), fill="normal")


@every_pair(
    types=[("f32", "s8", "f32"), ("bf16", "u8", "bf16"), ("f16", "s4", "u8")],
    isa=ISAS,
    channels=[(35, 19), (2, 18, 20), (20, 1, 1)],
    weights=["any", "plain"],
)
def test_weights_that_stand_for_floats(
    types: tuple[str, str, str], channels: Dims, weights: str, isa: str
) -> None:
    attr = PrimitiveAttr()
    per_output = 3 if len(channels) == 3 else 1
    attr.set_scales(Arg.SRC, 0)
    attr.set_scales(Arg.WEIGHTS, per_output)
    attr.set_zero_points(Arg.WEIGHTS, per_output, (), "s8")
    with config.override("max_cpu_isa", isa):
        desc = convolution_desc(SAME, 2, channels, ("any", weights, "any"))
        verify(retyped(desc, types), attr, "normal")


@every_row
@pytest.mark.parametrize("channels", [(32, 64), (2, 32, 32), (20, 1, 1)], ids=str)
def test_floats_that_may_be_narrowed(channels: Dims, isa: str) -> None:
    """Small integers have no more digits than bf16, so that results are exact."""
    attr = PrimitiveAttr(fpmath_mode="bf16")
    with config.override("max_cpu_isa", isa):
        pairs = any(dot.a == "bf16" for dot in select_isa(ENGINE).dots)
        for batch in (1, 2):
            desc = convolution_desc(SAME, batch, channels)
            verify(desc, attr)
            if channels[-1] > 1:
                multiply = conf_of(PrimitiveDesc(desc, ENGINE, attr)).multiply
                assert multiply.a.name == ("bf16" if pairs else "f32")
