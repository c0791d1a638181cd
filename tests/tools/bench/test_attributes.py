"""Attributes of cases: their texts, and what these mean."""

from __future__ import annotations

import pytest

from dnnl.language import attributes
from dnnl.language.errors import BadValue


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("src:common:2+dst:PER_OC", "src:common:2+dst:per_oc"),
        ("wei:per_oc:bf16:1x32", "wei:per_oc:bf16:1x32"),
        ("src:0", "src:0:1"),
        ("msrc1:common:2.5", "msrc1:common:2.5"),
        ("src:common:4294967296+dst:common:1e+20", "src:common:4294967296+dst:common:1e20"),
        ("src:common:0.33333333", "src:common:0.33333333"),
        ("src:common:4.29497e+09:f32:2x3+dst:1", "src:common:4.29497e09:f32:2x3+dst:1"),
        ("dst:mx:e8m0:1x32", "dst:mx:e8m0:1x32"),
        ("", ""),
    ],
)
def test_scales(text: str, shown: str) -> None:
    assert str(attributes.scales(text)) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sum", "sum"),
        ("sum:0.5", "sum:0.5"),
        ("sum:1:3", "sum:1:3"),
        ("sum:1:0:u8", "sum:1:0:u8"),
        ("relu:-0.01", "relu:-0.01"),
        ("eltwise_linear:2:0.125", "linear:2:0.125"),
        ("linear:0:1", "linear:0:1"),
        ("linear:2:1:3", "linear:2:1:3"),
        ("eltwise_relu:0:0:0.5", "relu:0:0:0.5"),
        ("tanh:0:0:1", "tanh"),
        ("eltwise_relu_use_dst_for_bwd", "relu_dst"),
        ("binary_add:f32", "add:f32"),
        ("add:f32:per_oc", "add:f32:per_oc"),
        ("mul:s8:3:axb", "mul:s8:3:axb"),
        ("add:f32:2:abx:8x1x1", "add:f32:2:abx:8x1x1"),
        ("select:f32.2.axb:1", "select:f32.2.axb:1"),
        ("select:f32:common", "select:f32:common"),
        ("select:f32.2:3.axb", "select:f32.2:3.axb"),
        ("select:s8:3.any", "select:s8:3"),
        ("div", "div:undef"),
        ("prelu:per_oc", "prelu:per_oc"),
        ("dw:k3s1p1", "dw:k3s1p1"),
        ("dw:k3s2p1:s8", "dw:k3s2p1:s8"),
        ("mul:s8:per_oc+sum:0.25+add:f32:per_tensor", "mul:s8:per_oc+sum:0.25+add:f32:per_tensor"),
    ],
)
def test_post_ops(text: str, shown: str) -> None:
    assert str(attributes.post_ops(text)) == shown
    assert attributes.post_ops(shown) == attributes.post_ops(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("dst:environment", "dst:environment"),
        ("dst:environment:5", "dst:environment"),
        ("dst:stochastic", "dst:stochastic"),
        ("diff_src:stochastic:7+diff_weights:stochastic", ""),
    ],
)
def test_rounding_modes(text: str, shown: str) -> None:
    assert str(attributes.rounding_modes(text)) == (shown or text)


@pytest.mark.parametrize("text", ["dst", "src:stochastic", "dst:up", "dst:stochastic:1:2", "+"])
def test_rounding_modes_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match="ARG one of dst, diff_src"):
        attributes.rounding_modes(text)


@pytest.mark.parametrize("text", ["select:f32:2.zz", "select:f32:x", "select:f32:1:2", "add:g32"])
def test_post_ops_that_cannot_be_read(text: str) -> None:
    with pytest.raises((ValueError, BadValue), match=r"expected|unknown"):
        attributes.post_ops(text)


@pytest.mark.parametrize(
    ("name", "ndims", "bits"),
    [("common", 3, 0), ("per_oc", 3, 2), ("per_dim_3", 4, 8), ("per_tensor", 3, 7), ("5", 3, 5)],
)
def test_masks(name: str, ndims: int, bits: int) -> None:
    assert attributes.mask(name).bits(ndims) == bits
