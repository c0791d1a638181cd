"""Deconvolution of bytes: exact sums, scales, and zero points that weigh the taps of each pixel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dnnl import DeconvolutionDesc, PrimitiveAttr, PrimitiveDesc, config
from tests.check import logical
from tests.primitives.harness import ENGINE, execute
from tests.primitives.products import Dims, Window, inputs, verify
from tests.primitives.test_convolution_bytes import every_row, quantized
from tests.primitives.test_deconvolution import deconvolution
from tests.processor import ISAS

STRIDED = Window((9, 11), (3, 3), (2, 2), (1, 1))
TAPLESS = Window((14, 19), (2, 3), (4, 6), (0, 1), dilations=(1, 2))
LINE = Window((23,), (5,), (3,), (2,))
PAIRS = [("u8", "s8"), ("s8", "s8")]
SPLIT, DEPTHWISE = (2, 4, 6), (5, 1, 1)


def of_bytes(
    window: Window,
    channels: Dims,
    types: tuple[str, str, str],
    layouts: tuple[str, str, str] = ("any", "any", "any"),
) -> DeconvolutionDesc:
    """A deconvolution of src, weights and dst of these types, with a bias in f32."""
    desc = deconvolution(window, channels, layouts)
    src, weights, dst = types
    return replace(
        desc,
        src_desc=desc.src_desc.with_data_type(src),
        weights_desc=desc.weights_desc.with_data_type(weights),
        dst_desc=desc.dst_desc.with_data_type(dst),
    )


@every_row
@pytest.mark.parametrize("types", PAIRS, ids=str)
@pytest.mark.parametrize("channels", [(19, 8), SPLIT, DEPTHWISE], ids=str)
def test_sums_are_exact(channels: Dims, types: tuple[str, str], isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        verify(of_bytes(LINE, channels, (*types, "s32")), quantized((), (0, None)), "normal")


@pytest.mark.parametrize("window", [STRIDED, TAPLESS], ids=str)
@pytest.mark.parametrize(
    ("types", "zero_points"), [(PAIRS[0], (0, None)), (PAIRS[1], (2, 0))], ids=str
)
def test_pixels_are_compensated_by_their_own_taps(
    types: tuple[str, str], zero_points: Dims, window: Window
) -> None:
    for channels in ((7, 5), DEPTHWISE):
        verify(of_bytes(window, channels, (*types, "s32")), quantized((), zero_points), "normal")


@pytest.mark.parametrize("channels", [(19, 8), SPLIT, DEPTHWISE], ids=str)
def test_scales(channels: Dims) -> None:
    attr: PrimitiveAttr = quantized((0, 3 if len(channels) == 3 else 1, 2), (0, 0, 0))
    attr.post_ops.append_eltwise("eltwise_relu")
    attr.post_ops.append_sum(0.5, 3)
    verify(of_bytes(LINE, channels, ("u8", "s8", "u8")), attr, "normal")


def test_every_row_has_the_same_bits() -> None:
    layouts = "last", "plain", "last"
    desc = of_bytes(LINE, (5, 4), ("s8", "s8", "u8"), layouts)
    attr = quantized((0, 1, 2), (0, 0, 0))
    args = inputs(PrimitiveDesc(desc, ENGINE, attr))
    with config.override("max_cpu_isa", ISAS[0]):
        want = logical(execute(desc, args, attr))
    for isa in ISAS[1:]:
        with config.override("max_cpu_isa", isa):
            assert (logical(execute(desc, args, attr)) == want).all()
