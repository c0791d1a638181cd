"""Convolutions spelled as text."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bench.convolutions import CASES
from bench.descriptor import Extent, parse, read


def test_short_form() -> None:
    case = parse('mb50ic64ih56oc256oh56kh1ph0n"resnet_50:res2a_branch1*4"')
    assert (case.name, case.count) == ("resnet_50:res2a_branch1", 4)
    assert case.src_dims == (50, 64, 56, 56)
    assert case.weights_dims == (256, 64, 1, 1)
    assert case.dst_dims == (50, 256, 56, 56)
    assert (case.strides, case.dilations) == ((1, 1), (0, 0))
    assert (case.padding_l, case.padding_r) == ((0, 0), (0, 0))
    assert case.flops == 2 * 50 * 64 * 256 * 56 * 56


def test_strides_with_less_padding_at_the_end() -> None:
    text = 'g1mb50ic3ih224iw224oc64oh112ow112kh7kw7sh2sw2ph3pw3n"conv1"'
    case = parse(text, batch=1)
    assert case.count == 1
    assert case.src_dims == (1, 3, 224, 224)
    assert (case.padding_l, case.padding_r) == ((3, 3), (2, 2))


def test_groups_and_dilation() -> None:
    case = parse("g4ic8ih10oc12kh3dh1ph2nx")
    assert case.weights_dims == (4, 3, 2, 3, 3)
    assert case.dst_dims == (2, 12, 10, 10)
    assert case.dilations == (1, 1)


def test_height_and_width_of_their_own() -> None:
    case = parse("ic1_ih5iw9_oc1_kh3kw1_ph1pw0_nx")
    assert case.dst_dims == (2, 1, 5, 9)


@pytest.mark.parametrize(
    ("sizes", "dst", "padding"),
    [
        ("ih7kh3", 5, 0),
        ("ih7kh3ph1", 7, 1),
        ("ih7oh7kh3", 7, 1),
        ("ih7oh5kh3", 5, 0),
        ("ih8kh3sh2ph1", 4, 1),
    ],
)
def test_what_is_missing_follows(sizes: str, dst: int, padding: int) -> None:
    height = parse(f"ic1oc1{sizes}nx").height
    assert (height.dst, height.padding) == (dst, padding)


def test_taps_leave_padding_out() -> None:
    for extent in (
        Extent(7, 7, 3, 1, 1, 0),
        Extent(224, 112, 7, 2, 3, 0),
        Extent(9, 9, 3, 1, 2, 1),
        Extent(5, 2, 2, 3, 0, 0),
    ):
        padded = np.zeros(extent.src + extent.padding + max(extent.padding_r, 0))
        padded[extent.padding : extent.padding + extent.src] = 1
        step = extent.dilation + 1
        met = sum(
            padded[position * extent.stride + tap * step]
            for position in range(extent.dst)
            for tap in range(extent.kernel)
        )
        assert extent.taps == met


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ic1ih1oc1kh1", "no name"),
        ("ic1oc1kh1nx", "ih must be given"),
        ("ic1ih1oc1nx", "kh and sh must be positive"),
        ("ic1id3ih1oc1kh1nx", "begins with none of the keys"),
        ("ic1ih1oc1kh1,nx", "begins with none of the keys"),
        ("ic1ih1oc1kh1nx*2*3", "is no name"),
    ],
)
def test_refusals(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        parse(text)
    assert text in str(caught.value)


def test_lines_that_are_no_cases(tmp_path: Path) -> None:
    file = tmp_path / "shapes"
    file.write_text("# a comment\n\nic1ih1oc1kh1nx\n", encoding="utf-8")
    assert [case.name for case in read(file)] == ["x"]


def test_the_layers_of_resnet_50() -> None:
    cases = read(CASES, batch=1)
    assert len(cases) == 20
    assert sum(case.count for case in cases) == 53
    # The network without its classifier has 7.7 GFLOP, of which a part is with padding.
    assert 7.2e9 < sum(case.count * case.flops for case in cases) < 7.7e9
