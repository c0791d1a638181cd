"""Images read at computed places: grids, affine grids, deformed convolutions; open sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.graph.graph import ModelError
from tests.framework.models import Array, model_of
from tests.framework.one_operator import assert_equal, check, model_with, results_of
from tests.pairs import every_pair

TOLERANCE = 1e-4


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def places(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(-1.4, 1.4, shape).astype(np.float32)


@every_pair(
    corners=[0, 1], padding=["zeros", "border", "reflection"], mode=["nearest", "linear", "cubic"]
)
def test_images(mode: str, padding: str, corners: int) -> None:
    every = [
        {"x": normal(*shape), "g": places(shape[0], *out, 2)}
        for shape, out in (((2, 3, 5, 7), (6, 9)), ((3, 5, 9, 4), (2, 17)), ((2, 20, 6, 8), (4, 5)))
    ]
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    check("GridSample", {"y": np.float32}, *every, tolerance=TOLERANCE, opset=20, attrs=attrs)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_volumes(padding: str, mode: str) -> None:
    every = [{"x": normal(2, 3, 4, 5, size), "g": places(2, 2, 3, size, 3)} for size in (4, 6, 9)]
    attrs = {"mode": mode, "padding_mode": padding}
    check("GridSample", {"y": np.float32}, *every, tolerance=TOLERANCE, opset=20, attrs=attrs)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_before_operator_set_20(mode: str) -> None:
    every = [{"x": normal(1, 3, n, n), "g": places(1, n, 5, 2)} for n in (4, 6, 9)]
    attrs = {"mode": mode}
    check("GridSample", {"y": np.float32}, *every, tolerance=TOLERANCE, opset=16, attrs=attrs)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("space", [(4, 5), (3, 4, 6)])
def test_affine_grids(space: tuple[int, ...], corners: int) -> None:
    """Sizes that only the run knows."""
    every = []
    for more in range(3):
        size = [2 + more, 3, *(extent + 2 * more for extent in space)]
        theta = normal(size[0], len(space), len(space) + 1)
        every.append({"t": theta, "s": np.array(size)})
    attrs = {"align_corners": corners}
    check("AffineGrid", {"y": np.float32}, *every, tolerance=1e-5, opset=20, attrs=attrs)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_constant_affine_grids(kind: Any) -> None:
    """They have the type of theta."""
    theta = np.random.default_rng(5).standard_normal((2, 2, 3)).astype(kind)
    feeds, held = {"s": np.array([2, 3, 4, 5])}, {"t": theta}
    options: dict[str, Any] = {"constants": held, "inputs": ["t", "s"], "opset": 20}
    model = model_of(model_with("AffineGrid", feeds, {"y": kind}, **options))
    rows, columns = ((2 * np.arange(count) + 1) / count - 1 for count in (4, 5))
    grid = np.stack(np.broadcast_arrays(columns, rows[:, None], 1.0))
    want = np.einsum("nij,jhw->nhwi", theta.astype(np.float64), grid).astype(kind)
    assert_equal(results_of(model, feeds), {"y": want}, 30 * float(np.finfo(kind).eps))


@every_pair(groups=[1, 2], parts=[1, 2], masked=[False, True])
def test_deformed_convolutions(masked: bool, parts: int, groups: int) -> None:
    every = []
    for size in (5, 7, 9):
        out = ((size + 2 - 3) // 2 + 1, size + 2 - 2)
        feeds: dict[str, Any] = {
            "x": normal(2, 4, size, size),
            "w": normal(6, 4 // groups, 3, 2),
            "o": normal(2, parts * 12, *out),
            "b": normal(6),
        }
        if masked:
            feeds["m"] = places(2, parts * 6, *out)
        every.append(feeds)
    attrs = {"group": groups, "offset_group": parts, "pads": [1, 1, 1, 0], "strides": [2, 1],
             "kernel_shape": [3, 2]}  # fmt: skip
    check(
        "DeformConv", {"y": np.float32}, *every, peer="reference", tolerance=TOLERANCE, opset=19,
        attrs=attrs,
    )  # fmt: skip


def test_whole_places_read_no_neighbours() -> None:
    """A neighbour without weight may be infinite."""
    x = np.array([[[[1, np.inf], [np.nan, 2]]]], np.float32)
    grid = np.array([[[[-1, -1], [1, 1]]]], np.float32)
    feeds = {"x": x, "g": grid}
    proto = model_with("GridSample", feeds, {"y": np.float32}, opset=20, attrs={"align_corners": 1})
    assert results_of(model_of(proto), feeds)["y"].ravel().tolist() == [1, 2]


def test_wrong_sources() -> None:
    feeds = {"x": normal(2, 3, 4, 5), "g": places(2, 3, 4, 3)}
    with pytest.raises(ModelError, match="does not name places"):
        model_of(model_with("GridSample", feeds, {"y": np.float32}, opset=20))(feeds)
    feeds = {"x": normal(2, 3, 4, 5), "g": places(2, 3, 4, 2)}
    proto = model_with("GridSample", feeds, {"y": np.float32}, opset=20, attrs={"mode": "best"})
    with pytest.raises(ModelError, match="unknown"):
        model_of(proto)(feeds)
    feeds = {"x": normal(1, 2, 4, 4), "w": normal(2, 2, 3, 3), "o": normal(1, 9, 2, 2)}
    with pytest.raises(ModelError, match=r"offset .* must be \(1, 18, 2, 2\)"):
        model_of(model_with("DeformConv", feeds, {"y": np.float32}, opset=19))(feeds)
