"""Depthwise convolutions in f32, several outputs of a row at a time."""

from __future__ import annotations

import pytest

from dnnl import PrimitiveDesc, config
from dnnl.codegen import isa as rows
from dnnl.kernels.convolution.depthwise import depthwise, planes, tiles
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.lines import conf_of, judged
from tests.primitives.products import Window, attr_of, convolution_desc, verify

ROWS = rows.available(ENGINE.features.arch, ENGINE.features.flags)
VECTORS = [row.name for row in ROWS if row.lanes > 1]
TYPES = [
    "f32",
    "bf16",
    "f16",
    "f32:bf16:f32",
    "bf16:f32:u8",
    "f16:f16:f32",
    "f32:s8:f32",
    "s8:u8:s32",
]
SHAPES = [
    "ih9iw21oh9ow21kh3kw3ph1pw1", "ih13iw30oh7ow15kh3kw3sh2sw2ph1pw1", "ih7oh7kh5ph2",
    "ih9iw40oh9ow34kh1kw7ph0pw0", "ih11iw19oh9ow15kh3kw3dh1dw2ph1pw1", "iw37ow18kw4sw2pw1",
    "id4ih5iw9od4oh5ow9kd3kh3kw3pd1ph1pw1", "ih2iw3oh6ow7kh3kw3ph3pw3", "ih1iw1oh1ow1kh3kw3ph1pw1",
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
    (conf,) = judged("convolution", given, isa)
    others = depthwise.DepthwiseConf | planes.DepthwisePlanesConf
    assert isinstance(conf, tiles.DepthwiseTilesConf | others)
    if layout == "axb":
        assert isinstance(conf, tiles.DepthwiseTilesConf)


@every_pair(
    isa=VECTORS,
    types=["u8:s8:u8", "s8:s8:s8", "u8:u8:s32"],
    layout=["axb", "aBx8b"],
    zero=["", "+src:0:3"],
    shape=["ih9iw21oh9ow21kh3kw3ph1pw1", "ih7oh7kh5ph2"],
    channels=[19, 32],
)
def test_bytes(isa: str, types: str, layout: str, zero: str, shape: str, channels: int) -> None:
    """What lies outside of the image has the zero point of src, and counts for nothing."""
    given = (
        f"--dir=FWD_B --dt={types} --stag={layout} --dtag={layout} --attr-scales=wei:1+src:0:0.5"
    )
    points = f"--attr-zero-points=dst:0:2{zero}"
    size = f"g{channels}mb2ic{channels}oc{channels}{shape}"
    assert len([*judged("convolution", f"{given} {points} {size}", isa)]) == 1


@pytest.mark.parametrize("isa", VECTORS)
@pytest.mark.parametrize("tag", ["nChw8c", "nChw16c"])
def test_channels_that_pad_a_block(tag: str, isa: str) -> None:
    """They are zero afterwards, whatever the post-ops make of zero."""
    line = f"--dir=FWD_B --dt=f32 --stag={tag} --dtag={tag} --attr-post-ops=linear:2:3 "
    assert len([*judged("convolution", line + "g19ic19ih9oc19oh9kh3ph1", isa)]) == 1


def test_rows_that_are_nests() -> None:
    """Two layouts, and borders of many tiles."""
    last, mixed = ("last", "any", "last"), ("plain", "any", "last")
    near, far = Window((9, 9), (3, 3)), Window((5, 80), (1, 15), (), (0, 35), None, (0, 4))
    for window, layouts, kind in (
        (near, last, tiles.DepthwiseTilesConf),
        (near, mixed, depthwise.DepthwiseConf),
        (far, last, depthwise.DepthwiseConf),
    ):
        desc = convolution_desc(window, 1, (20, 1, 1), layouts)
        assert type(conf_of(PrimitiveDesc(desc, ENGINE))) is kind


@pytest.mark.parametrize(("size", "items"), [(66, 64), (9, 70)])
def test_items(size: int, items: int) -> None:
    """An item has all channels of a row where there are rows enough, else some of them."""
    desc = convolution_desc(Window((size, size), (3, 3)), 1, (960, 1, 1), ("last", "any", "last"))
    with config.override("max_cpu_isa", "avx2"):
        pd = PrimitiveDesc(desc, ENGINE)
        (phase,) = pd.plan.recipe.kernel().phases[-1:]
    assert phase.count == items


@pytest.mark.parametrize("layout", ["plain", "last"])
@pytest.mark.parametrize(
    "window",
    [
        Window((1, 20), (5, 5), padding_l=(2, 2)),
        Window((2, 2), (7, 7), padding_l=(3, 3)),
        Window((20, 1), (5, 5), padding_l=(2, 2)),
    ],
    ids=str,
)
def test_images_smaller_than_their_borders(window: Window, layout: str) -> None:
    """All tiles are near a border, and there are fewer of them than taps outside."""
    chain = attr_of(("eltwise", "eltwise_gelu_erf"), ("eltwise", "eltwise_tanh"))
    desc = convolution_desc(window, 2, (20, 1, 1), (layout, "any", layout))
    verify(desc, chain, "normal")
