"""Regions of images beside ONNX Runtime: means and maxima, of several images, far outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.graph.graph import ModelError
from tests.framework.models import Array, model_of
from tests.framework.one_operator import check, model_with


def feeds_of(count: int, images: int, height: int, width: int) -> dict[str, Array]:
    """Regions of all sizes, some of which reach out of their image."""
    rng = np.random.default_rng(count)
    x = rng.standard_normal((images, 3, height, width)).astype(np.float32)
    corners = rng.uniform(-9, 2 * max(height, width) + 9, (count, 4))
    return {
        "x": x,
        "r": corners.astype(np.float32),
        "i": rng.integers(0, images, count),
    }


EVERY = [feeds_of(4, 1, 9, 11), feeds_of(7, 3, 12, 8), feeds_of(20, 2, 7, 15)]


@pytest.mark.parametrize("transformation", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [1, 2, 3])
def test_means(ratio: int, transformation: str) -> None:
    attrs = {"output_height": 3, "output_width": 4, "sampling_ratio": ratio,
             "spatial_scale": 0.5, "coordinate_transformation_mode": transformation}  # fmt: skip
    check("RoiAlign", {"y": np.float32}, *EVERY, tolerance=1e-4, opset=16, attrs=attrs)


@pytest.mark.parametrize("opset", [10, 16])
def test_maxima(opset: int) -> None:
    """Before operator set 16 places are no halves of pixels off."""
    attrs = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.5,
             "mode": "max"}  # fmt: skip
    check("RoiAlign", {"y": np.float32}, *EVERY, peer="reference", tolerance=1e-4, opset=16,
          attrs={**attrs, "coordinate_transformation_mode": "output_half_pixel"})  # fmt: skip
    check("RoiAlign", {"y": np.float32}, *EVERY, tolerance=1e-4, opset=opset,
          attrs={**attrs, "mode": "avg"})  # fmt: skip


def test_other_images_do_not_matter() -> None:
    """Infinities of one are not seen in another."""
    feeds = feeds_of(5, 2, 6, 6)
    feeds["x"][1] = np.inf
    feeds["i"][:] = 0
    attrs = {"sampling_ratio": 2, "output_height": 2, "output_width": 2}
    check("RoiAlign", {"y": np.float32}, feeds, tolerance=1e-4, opset=16, attrs=attrs)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_no_regions(mode: str) -> None:
    """A result without elements, which no step computes."""
    feeds = {**feeds_of(4, 2, 6, 6), "r": np.zeros((0, 4), np.float32), "i": np.zeros(0, np.int64)}
    attrs = {"sampling_ratio": 2, "output_height": 2, "output_width": 3, "mode": mode}
    model = model_of(model_with("RoiAlign", feeds, {"y": np.float32}, opset=16, attrs=attrs))
    for given in (feeds, feeds_of(4, 2, 6, 6), feeds):
        assert model(given).shape == (len(given["r"]), 3, 2, 3)


def test_refusals() -> None:
    feeds: dict[str, Any] = feeds_of(3, 2, 6, 6)
    model = model_of(model_with("RoiAlign", feeds, {"y": np.float32}, opset=16))
    with pytest.raises(Unimplemented, match="sampling_ratio 0 takes more samples"):
        model(feeds)
    attrs = {"sampling_ratio": 1}
    model = model_of(model_with("RoiAlign", feeds, {"y": np.float32}, opset=16, attrs=attrs))
    with pytest.raises(InvalidArguments, match=r"indices of node 'RoiAlign_0.* = 2: .*-2..1"):
        model({**feeds, "i": np.array([0, 2, 1])})
    with pytest.raises(ModelError, match="disagree"):
        model({**feeds, "i": np.array([0, 1])})
