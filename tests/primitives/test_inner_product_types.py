"""Inner products of bytes and other small elements, whose k are multiplied in groups."""

from __future__ import annotations

import itertools

import pytest

from dnnl import Arg, config
from tests.primitives.products import ROWS, Types, inner_product_desc, scaled, some_rows, verify


@some_rows
@pytest.mark.parametrize("types", [("u8", "s8"), ("s8", "s8"), ("s8", "u8")], ids="-".join)
def test_bytes_of_images(types: tuple[str, str], isa: str) -> None:
    """Groups of k along a row, along channels, within a block, and across what has none of four."""
    with config.override("max_cpu_isa", isa):
        for dims, src in (
            ((5, 19, 1, 4), "plain"),
            ((5, 19, 2, 3), "plain"),
            ((5, 20, 2, 3), "nhwc"),
            ((5, 19, 2, 3), "nChw16c"),
        ):
            desc = inner_product_desc(dims, 35, (*types, "s32"), (src, "any", "plain"))
            verify(desc, fill="normal")


@pytest.mark.parametrize("src", ["any", "reversed", "gaps", "aBcD3d8b", "nChw8c", "behind"])
@pytest.mark.parametrize("types", [("s8", "s8", "f32"), ("bf16",) * 3])
def test_layouts_of_small_elements(types: Types, src: str) -> None:
    for weights, dst in (("any", "reversed"), ("plain", "AB16a16b")):
        verify(inner_product_desc((5, 19, 2, 3), 18, types, (src, weights, dst)))


@some_rows
def test_zero_points_of_images(isa: str) -> None:
    """Those of src by channel are taken off before; padded channels count for nothing."""
    zero_points = [{Arg.SRC: 0, Arg.DST: 0}, {Arg.WEIGHTS: 1}, {Arg.SRC: 2, Arg.DST: 2}]
    with config.override("max_cpu_isa", isa):
        for masks, src in itertools.product(zero_points, ("plain", "nChw16c")):
            attr = scaled({}, {arg: (mask, ()) for arg, mask in masks.items()})
            desc = inner_product_desc((5, 19, 1, 3), 35, ("s8", "s8", "s32"), (src, "any", "plain"))
            verify(desc, attr, "normal")


@pytest.mark.parametrize("dst", ["f32", "bf16", "f16", "s32", "s8", "u8"])
def test_quantized_inner_product(dst: str) -> None:
    """Scales, bias, post-ops and a quantized dst."""
    for types, mask, bias in ((("u8", "s8"), 0, "f32"), (("s8", "s8"), 1, dst)):
        scales = {Arg.SRC: (0, ()), Arg.WEIGHTS: (mask, ()), Arg.DST: (0, ())}
        attr = scaled(scales, {Arg.DST: (0, ())} if dst in ("s8", "u8") else {})
        attr.post_ops.append_eltwise("eltwise_relu")
        attr.post_ops.append_sum(0.5)
        verify(inner_product_desc((7, 12), 35, (*types, dst), ROWS, bias), attr, "normal")


@some_rows
@pytest.mark.parametrize("weights", ["Ab8a", "Ab16a", "Ab32a"])
def test_packed_weights_in_panels_of_the_user(weights: str, isa: str) -> None:
    """Two vectors of row-major 4-bit columns are unpacked together, and a panel may have one."""
    with config.override("max_cpu_isa", isa):
        for dims, outputs in (((2, 16), 16), ((1, 7), 40)):
            desc = inner_product_desc(
                dims, outputs, ("f32", "s4", "f32"), ("plain", weights, "plain")
            )
            verify(desc, fill="normal")
