"""Depthwise deconvolutions, several outputs of a row at a time."""

from __future__ import annotations

import pytest

from dnnl.codegen import isa as rows
from dnnl.kernels.convolution.depthwise import depthwise, planes, tiles
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.lines import judged

ROWS = rows.available(ENGINE.features.arch, ENGINE.features.flags)
VECTORS = [row.name for row in ROWS if row.lanes > 1]
TYPES = ["f32", "bf16", "f16", "f8_e5m2:f32:f8_e4m3", "f32:bf16:f32", "u8:s8:s32", "s8:s8:f32"]
SHAPES = [
    "ih9iw21oh9ow21kh3kw3ph1pw1", "ih7iw15oh13ow30kh3kw3sh2sw2ph1pw1", "ih7oh7kh5ph2",
    "ih4iw6oh12ow18kh3kw3sh3sw3", "ih6iw9oh16ow33kh3kw5sh3sw4ph1pw2dh1dw2", "iw18ow37kw4sw2pw1",
    "ih9iw15oh11ow19kh3kw3dh1dw2ph1pw1", "id4ih5iw5od4oh5ow9kd3kh3kw3sw2pd1ph1pw1",
    "ih13iw13oh13ow26kh1kw1sw2", "ih6iw7oh2ow3kh3kw3ph3pw3", "ih9iw2oh9ow19kh3kw3sw16ph1",
]  # fmt: skip
ATTRIBUTES = ["", "--attr-post-ops=sum:0.5+clip:0:6", "--attr-scales=wei:1+dst:0:2"]


@every_pair(
    isa=VECTORS,
    types=TYPES,
    layout=["axb", "any"],
    attributes=ATTRIBUTES,
    shape=SHAPES,
    channels=[19, 32, 3],
)
def test_rows(
    isa: str, types: str, layout: str, attributes: str, shape: str, channels: int
) -> None:
    size = f"g{channels}mb2ic{channels}oc{channels}{shape}"
    given = f"--dir=FWD_B --dt={types} --stag={layout} --dtag={layout} {attributes} {size}"
    (conf,) = judged("deconvolution", given, isa)
    others = depthwise.DepthwiseConf | planes.DepthwisePlanesConf
    assert isinstance(conf, tiles.DepthwiseTilesConf | others)
    if layout == "axb":
        assert isinstance(conf, tiles.DepthwiseTilesConf) == ("sw16" not in shape)


@pytest.mark.parametrize("isa", VECTORS)
@pytest.mark.parametrize("tag", ["nChw8c", "nChw16c"])
def test_channels_that_pad_a_block(tag: str, isa: str) -> None:
    """They are zero afterwards, whatever the post-ops make of zero."""
    line = f"--dir=FWD_B --dt=f32 --stag={tag} --dtag={tag} --attr-post-ops=linear:2:3 "
    size = "g19ic19ih9oc19oh18kh3sh2ph1"
    assert len([*judged("deconvolution", line + size, isa)]) == 1


@every_pair(
    isa=VECTORS,
    types=["f32", "bf16", "f16:bf16:f32", "f8_e5m2", "f32:f32:bf16"],
    layout=["axb", "any", "abx"],
    kind=["convolution", "deconvolution"],
    shape=[
        "ih9iw21oh9ow21kh3kw3ph1pw1", "ih13iw30oh7ow15kh3kw3sh2sw2ph1pw1", "iw37ow18kw4sw2pw1",
    ],
    channels=[19, 32],
)  # fmt: skip
def test_gradients(isa: str, types: str, layout: str, kind: str, shape: str, channels: int) -> None:
    """The gradient of a convolution's data is a deconvolution, and the other way round."""
    window = shape if kind == "convolution" else shape.translate(str.maketrans("io", "oi"))
    size = f"g{channels}mb2ic{channels}oc{channels}{window}"
    given = f"--dir=BWD_D --dt={types} --stag={layout} --dtag={layout} {size}"
    (conf,) = judged(kind, given, isa)
    others = depthwise.DepthwiseConf | planes.DepthwisePlanesConf
    assert isinstance(conf, tiles.DepthwiseTilesConf | others)
    if layout == "axb":
        assert isinstance(conf, tiles.DepthwiseTilesConf)
