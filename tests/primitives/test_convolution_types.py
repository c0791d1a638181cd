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
    Unimplemented,
    config,
)
from dnnl.codegen import isa as rows
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.products import Dims, Window, attr_of, convolution_desc, lay_out, verify

NAMES = [row.name for row in rows.available(ENGINE.features.arch, ENGINE.features.flags)]
FORWARD = "forward_inference"
SAME = Window((5, 9), (3, 3), padding_l=(1, 1))
TYPES = [("bf16", "bf16"), ("bf16", "f32"), ("f16", "f16"), ("f16", "u8"), ("f32", "s8")]

every_row = pytest.mark.parametrize("isa", NAMES)


def typed(desc: ConvolutionDesc, data_type: str, dst: str) -> ConvolutionDesc:
    """The convolution with other types."""
    return replace(
        desc,
        src_desc=desc.src_desc.with_data_type(data_type),
        weights_desc=desc.weights_desc.with_data_type(data_type),
        dst_desc=desc.dst_desc.with_data_type(dst),
    )


@every_pair(
    types=TYPES, channels=[(19, 35), (2, 17, 16), (20, 1, 1)],
    layout=["any", "plain", "last", "block16", "reversed", "gaps", "part"],
)  # fmt: skip
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


@every_pair(isa=NAMES, types=TYPES, layout=["any", "plain", "block16", "reversed"])
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


RARE = [
    *(("f64",) * 3, ("f8_e5m2",) * 3, ("f8_e4m3", "f8_e5m2", "f32"), ("f4_e2m1",) * 3),
    *(("f4_e2m1", "f4_e2m1", "f32"), ("bf16", "f8_e5m2", "f32"), ("f16", "f4_e2m1", "bf16")),
    *(("f32", "s8", "f32"), ("bf16", "u8", "bf16"), ("f16", "s4", "f32"), ("u8", "s4", "u8")),
    *(("s8", "u4", "s32"), ("f32", "f32", "f8_e4m3")),
]


@every_pair(
    isa=NAMES, types=RARE, layout=["any", "plain", "last", "block16", "gaps"],
    channels=[(35, 19), (2, 18, 20), (20, 1, 1)],
)  # fmt: skip
def test_types_that_become_others(
    isa: str, types: tuple[str, str, str], layout: str, channels: Dims
) -> None:
    """Floats of few bits become bf16, bytes beside floats f32, where they are copied or loaded."""
    window = Window((5, 9), (3, 2), (1, 2), (1, 1))
    with config.override("max_cpu_isa", isa):
        for desc in (
            convolution_desc(window, 2, channels, (layout, "any", layout)),
            convolution_desc(window, 2, channels, (layout, "plain", layout)),
        ):
            tensors = dict(zip(("src_desc", "weights_desc", "dst_desc"), types, strict=True))
            made = {name: getattr(desc, name).with_data_type(t) for name, t in tensors.items()}
            verify(replace(desc, **made), attr_of(("eltwise", "eltwise_relu")), "normal")


def test_zero_points_of_weights_beside_floats() -> None:
    attr = PrimitiveAttr()
    attr.set_zero_points(Arg.WEIGHTS, 0)
    desc = convolution_desc(SAME, 2, (19, 35))
    desc = replace(desc, weights_desc=desc.weights_desc.with_data_type("s8"))
    with pytest.raises(Unimplemented, match="zero points of weights beside f32"):
        PrimitiveDesc(desc, ENGINE, attr)
