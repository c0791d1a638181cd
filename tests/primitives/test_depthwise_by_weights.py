"""The gradients of weights and bias of depthwise convolutions."""

from __future__ import annotations

import pytest

from dnnl.codegen import isa as rows
from dnnl.kernels.convolution.depthwise.by_weights import DepthwiseGradientConf
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.lines import judged

ROWS = {row.name: row for row in rows.available(ENGINE.features.arch, ENGINE.features.flags)}
SHAPES = [
    "ih9iw21oh9ow21kh3kw3ph1pw1", "ih13iw30oh7ow15kh3kw3sh2sw2ph1pw1", "ih7oh7kh5ph2",
    "ih8iw17oh8ow17kh7kw7ph3pw3", "ih11iw19oh9ow15kh3kw3dh1dw2ph1pw1", "iw37ow18kw4sw2pw1",
    "id4ih5iw9od4oh5ow9kd3kh3kw3pd1ph1pw1", "id2ih5iw9od4oh5ow9kd1kh3kw3pd1ph1pw1",
    "ih2iw3oh6ow7kh3kw3ph3pw3", "ih1iw1oh1ow1kh3kw3ph1pw1", "ih4iw40oh4ow30kh1kw17ph0pw3",
    "ih1iw90oh1ow84kh1kw15ph0pw4",
]  # fmt: skip
TYPES = ["f32", "bf16", "f16", "bf16:f32:bf16", "f16:f16:f32", "f64", "f8_e5m2:f8_e4m3:f8_e5m2"]


def gradient(kind: str, isa: str, given: str, channels: int, shape: str) -> DepthwiseGradientConf:
    """The configuration, once its results have been found right."""
    size = f"g{channels}mb3ic{channels}oc{channels}{shape}"
    (conf,) = judged(kind, f"{given} {size}", isa)
    assert isinstance(conf, DepthwiseGradientConf)
    return conf


@every_pair(
    isa=[*ROWS],
    types=TYPES,
    layout=["axb", "any", "abx", "aBx16b"],
    bias=["BWD_W", "BWD_WB --bia-dt=f32", "BWD_WB --bia-dt=bf16"],
    shape=SHAPES,
    channels=[19, 32, 3, 70],
)
def test_gradients(isa: str, types: str, layout: str, bias: str, shape: str, channels: int) -> None:
    given = f"--dir={bias} --dt={types} --stag={layout} --dtag={layout}"
    conf = gradient("convolution", isa, given, channels, shape)
    if "kw15" not in shape:  # which needs many registers
        nests = types == "f64" or "kw17" in shape or ROWS[isa].lanes == 1
        assert (conf.tiles is None) == nests


@every_pair(
    isa=[*ROWS],
    types=TYPES,
    layout=["axb", "any"],
    shape=["ih9iw21oh9ow21kh3kw3ph1pw1", "ih7iw15oh13ow30kh3kw3sh2sw2ph1pw1", "iw18ow37kw4sw2pw1"],
    channels=[19, 32],
)
def test_deconvolutions(isa: str, types: str, layout: str, shape: str, channels: int) -> None:
    given = f"--dir=BWD_WB --dt={types} --stag={layout} --dtag={layout}"
    gradient("deconvolution", isa, given, channels, shape)


@pytest.mark.parametrize("isa", [*ROWS][-2:])
@pytest.mark.parametrize(
    "tags",
    [("nChw16c", "Goihw16g"), ("nChw8c", "Goihw8g"), ("nchw", "hwigo"), ("nhwc", "aBx8b")],
)
def test_weights_layouts(tags: tuple[str, str], isa: str) -> None:
    """Channels that pad a block count for nothing, and are zero afterwards; so is the padding of
    blocks of a group's single channel."""
    given = f"--dir=BWD_WB --dt=f32 --stag={tags[0]} --dtag={tags[0]} --wtag={tags[1]}"
    gradient("convolution", isa, given, 19, "ih9oh9kh3ph1")


@pytest.mark.parametrize("types", ["f32", "f64"])
@pytest.mark.parametrize("batch", [0, 1, 17])
def test_images(batch: int, types: str) -> None:
    """Sums of no image are zero; those of many are divided."""
    size = f"g19mb{batch}ic19ih9iw21oc19oh9ow21kh3kw3ph1pw1"
    given = f"--dir=BWD_WB --dt={types} --stag=axb --dtag=axb {size}"
    (conf,) = judged("convolution", given, [*ROWS][-1])
    if types == "f32" and batch:
        assert conf.tiles.sums[1].dims[0] == batch * 9 * 21 // (16 * 9)
