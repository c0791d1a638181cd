"""Convolutions of groups of a few channels, whose outputs share vectors."""

from __future__ import annotations

import pytest

from dnnl import PrimitiveDesc, config
from dnnl.codegen import isa as rows
from dnnl.kernels.convolution.depthwise.tiles import DepthwiseTilesConf
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE
from tests.primitives.lines import judged
from tests.primitives.products import Window, convolution_desc

ROWS = rows.available(ENGINE.features.arch, ENGINE.features.flags)
LANES = {row.name: row.lanes for row in ROWS if row.lanes > 1}
TYPES = ["f32", "bf16", "f16", "f32:f32:f8_e4m3", "f32:bf16:f32", "f16:s8:f32", "bf16:bf16:u8"]
PER_GROUP = [(4, 4), (2, 2), (8, 8), (1, 4), (2, 8), (16, 16)]  # channels and outputs
SHAPES = [
    "ih9iw21oh9ow21kh3kw3ph1pw1", "ih13iw30oh7ow15kh3kw3sh2sw2ph1pw1", "ih7oh7kh5ph2",
    "ih11iw19oh9ow15kh3kw3dh1dw2ph1pw1", "iw37ow18kw4sw2pw1", "ih6iw9oh6ow9kh1kw1",
    "id4ih5iw9od4oh5ow9kd3kh3kw3pd1ph1pw1", "ih2iw3oh6ow7kh3kw3ph3pw3", "ih1iw1oh1ow1kh3kw3ph1pw1",
]  # fmt: skip
ATTRIBUTES = ["", "--attr-post-ops=sum:0.5+clip:0:6", "--attr-scales=wei:3+dst:0:2"]


def _size(groups: int, per_group: tuple[int, int]) -> str:
    channels, outputs = per_group
    return f"g{groups}mb2ic{groups * channels}oc{groups * outputs}"


def _shares(isa: str, taken: int, written: int) -> bool:
    """Whether vectors hold whole groups."""
    return LANES[isa] % written == 0 and written % taken == 0


@every_pair(
    isa=list(LANES),
    types=TYPES,
    layout=["axb", "any"],
    attributes=ATTRIBUTES,
    shape=SHAPES,
    groups=[8, 7, 2],
    per_group=PER_GROUP,
)
def test_rows(
    isa: str,
    types: str,
    layout: str,
    attributes: str,
    shape: str,
    groups: int,
    per_group: tuple[int, int],
) -> None:
    """Vectors that the last groups fill in part, among others."""
    given = f"--dir=FWD_B --dt={types} --stag={layout} --dtag={layout} {attributes}"
    (conf,) = judged("convolution", f"{given} {_size(groups, per_group)}{shape}", isa)
    if types == "f32" or per_group[0] < LANES[isa]:
        assert isinstance(conf, DepthwiseTilesConf) == _shares(isa, *per_group)


@every_pair(
    isa=list(LANES),
    types=["f32", "bf16", "f16:bf16:f32"],
    layout=["axb", "any"],
    kind=["convolution", "deconvolution"],
    direction=["FWD_B", "BWD_D"],
    shape=[
        "ih9iw21oh9ow21kh3kw3ph1pw1", "ih13iw30oh7ow15kh3kw3sh2sw2ph1pw1", "iw37ow18kw4sw2pw1",
    ],
    per_group=[(4, 4), (2, 2), (8, 8), (4, 2)],
)  # fmt: skip
def test_transposed(
    isa: str,
    types: str,
    layout: str,
    kind: str,
    direction: str,
    shape: str,
    per_group: tuple[int, int],
) -> None:
    """Deconvolutions, and gradients by data: one is the other's. Those of more outputs than
    channels have more channels than outputs, which are products."""
    window = shape if kind == "convolution" else shape.translate(str.maketrans("io", "oi"))
    channels, outputs = per_group
    given = f"--dir={direction} --dt={types} --stag={layout} --dtag={layout}"
    (conf,) = judged(kind, f"{given} {_size(7, per_group)}{window}", isa)
    if types == "f32" or channels < LANES[isa]:
        pair = (channels, outputs) if direction == "FWD_B" else (outputs, channels)
        assert isinstance(conf, DepthwiseTilesConf) == _shares(isa, *pair)


@pytest.mark.parametrize("isa", list(LANES))
@pytest.mark.parametrize("tag", ["nChw8c", "nChw16c"])
def test_channels_that_pad_a_block(tag: str, isa: str) -> None:
    """They are zero afterwards, whatever the post-ops make of zero."""
    line = f"--dir=FWD_B --dt=f32 --stag={tag} --dtag={tag} --attr-post-ops=linear:2:3 "
    assert len([*judged("convolution", line + "g7ic28ih9oc28oh9kh3ph1", isa)]) == 1


@pytest.mark.parametrize("isa", list(LANES))
@pytest.mark.parametrize("tag", ["decab", "abcde", "aBcde4b", "eabcd"])
def test_weights_in_other_layouts(tag: str, isa: str) -> None:
    """Those whose outputs are contiguous are read in place, others copied."""
    line = f"--dir=FWD_B --dt=f32 --stag=axb --dtag=axb --wtag={tag} "
    (conf,) = judged("convolution", line + "g9ic36ih9oc36oh9kh3ph1", isa)
    assert bool(conf.copies_in) == (tag != "decab")


@pytest.mark.parametrize(
    ("channels", "layout", "reason"),
    [
        ((7, 3, 3), "last", "groups of 3 for 3 outputs; the channels of a group divide"),
        ((7, 4, 8), "last", "groups of 8 for 4 outputs"),
        ((1, 4, 4), "last", "one group"),
        ((7, 4, 4), "plain", "it takes contiguous channels"),
    ],
)
def test_refusals(channels: tuple[int, int, int], layout: str, reason: str) -> None:
    """They say what does not fit."""
    window = Window((9, 9), (3, 3))
    with config.override("max_cpu_isa", "avx2"):
        pd = PrimitiveDesc(convolution_desc(window, 1, channels, (layout, "any", layout)), ENGINE)
    refused = {candidate.name: str(candidate.refusal) for candidate in pd.candidates}
    assert reason in refused["grouped"]


def test_info() -> None:
    """It says what the lanes of a vector read."""
    desc = convolution_desc(Window((9, 9), (3, 3)), 1, (8, 4, 4))
    with config.override("max_cpu_isa", "avx2"):
        info = str(PrimitiveDesc(desc, ENGINE).info())
    assert "each lane of a vector reads the 4 channels of its own group" in info
    assert "nothing is copied" in info


@every_pair(
    isa=list(LANES),
    kind=["convolution", "deconvolution"],
    types=["f32", "f32:s8:f32"],
    scales=["wei:3", "wei:1", "wei:2", "src:2"],
)
def test_scales_of_groups(isa: str, kind: str, types: str, scales: str) -> None:
    """A scale for each group, or for one output of all groups, is none of an output. One of src for
    each channel needs groups of single ones."""
    size = "g16ic16ih9oc32oh9kh3ph1" if scales == "src:2" else "g8ic32ih9oc32oh9kh3ph1"
    line = f"--dir=FWD_B --dt={types} --stag=axb --dtag=axb --attr-scales={scales} {size}"
    (conf,) = judged(kind, line, isa)
    if LANES[isa] > 4 or scales != "wei:3":  # few registers leave some cases to products
        assert isinstance(conf, DepthwiseTilesConf) == (scales == "wei:3")
