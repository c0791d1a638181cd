"""ConvTranspose in models, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import pytest

from tests.framework.models import make_model, node
from tests.framework.test_operators import agree, random

DECONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1d": ((2, 5, 9), (5, 7, 3), {}),
    "3d": ((1, 4, 3, 4, 5), (4, 6, 3, 2, 3), {"strides": [1, 2, 1]}),
    "asymmetric": ((2, 16, 5, 6), (16, 32, 3, 4), {"strides": [2, 2], "pads": [1, 0, 0, 2]}),
    "dilated": ((1, 3, 5, 4), (3, 4, 3, 2), {"dilations": [2, 3], "strides": [3, 2]}),
    "output_padding": ((1, 4, 5, 5), (4, 6, 3, 3), {"strides": [3, 2], "output_padding": [2, 1]}),
    "output_shape": ((1, 4, 5, 6), (4, 3, 4, 3), {"strides": [2, 3], "output_shape": [9, 15]}),
    "larger": ((1, 4, 5, 6), (4, 3, 3, 3), {"strides": [2, 2], "output_shape": [12, 14]}),
    "grouped": ((2, 12, 4, 4), (12, 5, 3, 3), {"group": 4, "strides": [2, 1]}),
    "depthwise": ((1, 20, 6, 5), (20, 1, 3, 3), {"group": 20, "strides": [2, 2]}),
    "same_upper": ((1, 4, 4, 5), (4, 6, 4, 4), {"auto_pad": "SAME_UPPER", "strides": [1, 3]}),
    "same_lower": ((1, 4, 4, 5), (4, 6, 4, 4), {"auto_pad": "SAME_LOWER", "strides": [1, 3]}),
    "valid": ((1, 4, 4, 5), (4, 6, 3, 3), {"auto_pad": "VALID"}),
}


@pytest.mark.parametrize("name", DECONVOLUTIONS)
def test_deconvolution(name: str) -> None:
    source, weights, attrs = DECONVOLUTIONS[name]
    channels = weights[1] * attrs.get("group", 1)
    nodes = [node("ConvTranspose", ["x", "w", "b"], "a", **attrs), node("Relu", ["a"], "y")]
    constants = {"w": random(*weights), "b": random(channels, seed=2)}
    session = agree(make_model(nodes, {"x": source}, ["y"], constants), "propagate")
    assert [layer.primitive for layer in session.layers if layer.flops] == ["deconvolution"]
