"""MaxRoiPool beside ONNX Runtime, and beside a sum over all windows where corners are halves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.framework.model import Model
from dnnl.graph.graph import ModelError
from tests.framework.models import graph_of, make_model, node, run_peer

RNG = np.random.default_rng(375)


def pooling(scale: float, shape: tuple[int, int]) -> Any:
    own = node("MaxRoiPool", ["x", "rois"], "p", pooled_shape=shape, spatial_scale=scale)
    nodes = [own, node("Neg", ["p"], "y")]
    return make_model(nodes, {"x": ("n", "c", "h", "w"), "rois": ("r", 5)}, ["y"])


def regions(count: int, images: int, width: int, height: int) -> np.ndarray:
    """Some of them partly outside, some upside down."""
    left, right = RNG.uniform(-3, width + 3, (2, count))
    top, bottom = RNG.uniform(-3, height + 3, (2, count))
    made = np.stack([RNG.integers(0, images, count), left, top, right, bottom], 1)
    return made.astype(np.float32)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (7, 7)])
@pytest.mark.parametrize("scale", [1.0, 0.5, 0.0625])
def test_maxima_of_regions(scale: float, shape: tuple[int, int]) -> None:
    proto = pooling(scale, shape)
    model = Model(graph_of(proto))
    for images, height, width, count in ((1, 9, 12, 4), (3, 16, 7, 9), (2, 1, 1, 2)):
        x = RNG.standard_normal((images, 4, height, width), dtype=np.float32)
        rois = regions(count, images, round(width / scale), round(height / scale))
        feeds = {"x": x, "rois": rois}
        np.testing.assert_array_equal(model(feeds), run_peer(proto, feeds)["y"])
    assert model({"x": x, "rois": rois[:0]}).shape == (0, 4, *shape)


@pytest.mark.parametrize(
    ("rois", "shape", "said"),
    [
        ([[2, 0, 0, 1, 1]], (2, 2), "there are 2"),
        ([[-1, 0, 0, 1, 1]], (2, 2), "there are 2"),
        ([[0, np.nan, 0, 1, 1]], (2, 2), "must be finite"),
        ([[0, 0, 0, 1, 1]], (0, 2), "positive"),
    ],
)
def test_wrong_regions_are_refused(rois: Any, shape: tuple[int, int], said: str) -> None:
    model = Model(graph_of(pooling(1.0, shape)))
    x = np.zeros((2, 1, 4, 4), np.float32)
    with pytest.raises(ModelError, match=said):
        model({"x": x, "rois": np.array(rois, np.float32)})
