"""Depthwise convolutions and deconvolutions of planes, whose rows are contiguous."""

from __future__ import annotations

import pytest

from dnnl.codegen import isa as rows
from dnnl.kernels.convolution.depthwise.planes import DepthwisePlanesConf
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.lines import judged

ROWS = rows.available(ENGINE.features.arch, ENGINE.features.flags)
VECTORS = [row.name for row in ROWS if row.lanes > 1]
TYPES = ["f32", "bf16", "f16", "f32:bf16:f32", "bf16:f32:f8_e4m3", "f8_e5m2:f8_e5m2:f32"]
SHAPES = [
    "ih9iw21oh9ow21kh3kw3ph1pw1", "ih21iw75oh11ow38kh3kw3sh2sw2ph1pw1", "ih7oh7kh5ph2",
    "ih9iw70oh9ow64kh1kw7ph0pw0", "ih31iw19oh29ow15kh3kw3dh1dw2ph1pw1", "iw37ow12kw4sw3pw1",
    "id4ih5iw9od4oh5ow9kd3kh3kw3pd1ph1pw1", "ih2iw3oh6ow7kh3kw3ph3pw3", "ih2iw1oh2ow1kh3kw3ph1pw1",
]  # fmt: skip
ATTRIBUTES = ["", "--attr-post-ops=sum:0.5+clip:0:6", "--attr-scales=wei:1+dst:0:2",
    "--attr-post-ops=add:f32:per_oc+tanh+gelu_erf+mul:f32"]  # fmt: skip


@every_pair(
    isa=VECTORS,
    types=TYPES,
    attributes=ATTRIBUTES,
    shape=SHAPES,
    channels=[5, 1],
    batch=[1, 3, 19],
    kind=["convolution", "deconvolution"],
)
def test_planes(
    isa: str, types: str, attributes: str, shape: str, channels: int, batch: int, kind: str
) -> None:
    window = shape if kind == "convolution" else shape.translate(str.maketrans("io", "oi"))
    size = f"g{channels}mb{batch}ic{channels}oc{channels}{window}"
    given = f"--dir=FWD_B --dt={types} --stag=abx --dtag=abx {attributes} {size}"
    (conf,) = judged(kind, given, isa)
    assert isinstance(conf, DepthwisePlanesConf)


@pytest.mark.parametrize("isa", VECTORS)
@pytest.mark.parametrize("weights", ["any", "Goihw8g", "hwigo"])
def test_rows_with_gaps(weights: str, isa: str) -> None:
    """Elements between rows and planes are not touched."""
    size = "g6mb2ic6ih9iw21oc6oh9ow21kh3kw3ph1pw1"
    strides = f"--wtag={weights} --strides=2880x480x32x1::2880x480x32x1"
    given = f"--dir=FWD_B --dt=f32 {strides} {size}"
    (conf,) = judged("convolution", given, isa)
    assert isinstance(conf, DepthwisePlanesConf)
