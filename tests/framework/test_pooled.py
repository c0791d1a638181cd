"""Norms of windows, places of maxima and back, columns, statistics of batches; open sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import ModelError
from tests.framework.models import Array, model_of, run_peer
from tests.framework.one_operator import assert_equal, check, model_with, results_of

SHAPES = [(2, 3, 8, 9), (3, 5, 11, 6), (1, 20, 7, 12)]
TOLERANCE = 1e-5


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


WINDOWS: list[dict[str, Any]] = [
    {"kernel_shape": [3, 2]},
    {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 2]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "dilations": [2, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [2, 3], "strides": [3, 3], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "dilations": [2, 1], "pads": [1, 0, 0, 1],
     "ceil_mode": 1},
]  # fmt: skip


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("attrs", WINDOWS)
def test_norms_of_windows(attrs: dict[str, Any], power: int) -> None:
    every = [{"x": normal(*shape)} for shape in SHAPES]
    named = {**attrs, "p": power}
    check("LpPool", {"y": np.float32}, *every, tolerance=TOLERANCE, attrs=named)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_norms_of_images(power: int) -> None:
    every = [{"x": normal(*shape)} for shape in SHAPES]
    check("GlobalLpPool", {"y": np.float32}, *every, tolerance=TOLERANCE, attrs={"p": power})


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    "attrs", [*WINDOWS, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}]
)
def test_places_of_maxima(attrs: dict[str, Any], order: int) -> None:
    every = [{"x": normal(*shape)} for shape in SHAPES]
    kinds = {"y": np.float32, "i": np.int64}
    check("MaxPool", kinds, *every, attrs={**attrs, "storage_order": order})


@pytest.mark.parametrize("shape", [(2, 3, 9), (1, 2, 5, 6, 7)])
def test_places_of_maxima_along_lines_and_in_volumes(shape: tuple[int, ...]) -> None:
    attrs = {"kernel_shape": [2] * (len(shape) - 2), "strides": [2] * (len(shape) - 2)}
    check("MaxPool", {"y": np.float32, "i": np.int64}, {"x": normal(*shape)}, attrs=attrs)


def test_maxima_where_they_were() -> None:
    """What MaxPool says, in an image of the same size; the rest is 0."""
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2]}
    every = []
    for batch, height, width in ((2, 8, 6), (3, 4, 10), (1, 12, 14)):
        feeds = {"x": normal(batch, 3, height, width)}
        kinds = {"y": np.float32, "i": np.int64}
        pooled = run_peer(model_with("MaxPool", feeds, kinds, attrs=attrs), feeds)
        every.append({"x": pooled["y"], "i": pooled["i"]})
    check("MaxUnpool", {"y": np.float32}, *every, attrs=attrs)
    larger = [{**own, "s": np.array([*own["x"].shape[:2], 17, 15])} for own in every[:1]]
    check("MaxUnpool", {"y": np.float32}, *larger, peer="reference", attrs=attrs)


def test_places_outside_are_refused() -> None:
    feeds = {"x": normal(1, 1, 2, 2), "i": np.full((1, 1, 2, 2), 16)}
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2]}
    model = model_of(model_with("MaxUnpool", feeds, {"y": np.float32}, attrs=attrs))
    with pytest.raises(InvalidArguments, match=r"indices of node 'MaxUnpool_0.* = 16: .*-16..15"):
        model(feeds)


@pytest.mark.parametrize(
    "attrs", [{}, {"pads": [0, 1, 2, 1]}, {"strides": [2, 1]}, {"dilations": [1, 2]}]
)
def test_columns(attrs: dict[str, Any]) -> None:
    """Blocks that overlap add up, and what is in the padding is lost."""
    every = []
    for batch, channels, height, width in ((2, 3, 6, 7), (1, 2, 8, 9)):
        block = (2, 3)
        pads, strides = attrs.get("pads", [0] * 4), attrs.get("strides", [1, 1])
        reach = [
            (k - 1) * d + 1 for k, d in zip(block, attrs.get("dilations", [1, 1]), strict=True)
        ]
        out = [
            (size + pads[d] + pads[d + 2] - reach[d]) // strides[d] + 1
            for d, size in enumerate((height, width))
        ]
        columns = np.random.default_rng(0).integers(-4, 5, (batch, channels * 6, out[0] * out[1]))
        every.append({"x": columns.astype(np.float32), "image": np.array([height, width]),
                      "block": np.array(block)})  # fmt: skip
    check("Col2Im", {"y": np.float32}, *every, peer="reference", attrs=attrs)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_norms_of_rows(axis: int, power: int) -> None:
    every = [{"x": normal(*shape)} for shape in SHAPES]
    attrs = {"axis": axis, "p": power}
    check("LpNormalization", {"y": np.float32}, *every, tolerance=TOLERANCE, attrs=attrs)


def test_norms_of_zeros_are_zeros() -> None:
    feeds = {"x": np.array([[0, 0], [3, -4]], np.float32)}
    got = results_of(model_of(model_with("LpNormalization", feeds, {"y": np.float32})), feeds)
    np.testing.assert_allclose(got["y"], np.array([[0, 0], [0.6, -0.8]]), rtol=1e-6)


@pytest.mark.parametrize("axes", [None, [1], [0, -1], [0, 1, 2, 3]])
def test_mean_and_variance(axes: list[int] | None) -> None:
    every = [{"x": normal(*shape)} for shape in SHAPES]
    attrs = {} if axes is None else {"axes": axes}
    check("MeanVarianceNormalization", {"y": np.float32}, *every, tolerance=1e-4, attrs=attrs)


@pytest.mark.parametrize("results", [1, 3])
def test_statistics_of_batches(results: int) -> None:
    every = []
    for shape in SHAPES:
        channel = [normal(shape[1]) for _ in range(3)]
        every.append({"x": normal(*shape), "s": channel[0], "b": channel[1], "m": channel[2],
                      "v": np.abs(channel[0]) + 1})  # fmt: skip
    kinds = dict.fromkeys(["y", "mean", "variance"][:results], np.float32)
    attrs = {"training_mode": 1, "momentum": 0.8}
    check(
        "BatchNormalization", kinds, *every, peer="reference", tolerance=1e-4, opset=15,
        attrs=attrs,
    )  # fmt: skip


def test_everything_stays_in_inference() -> None:
    every = [{"x": normal(*shape)} for shape in SHAPES]
    want = [{"y": own["x"], "mask": np.ones(own["x"].shape, np.bool_)} for own in every]
    kinds = {"y": np.float32, "mask": np.bool_}
    check("Dropout", kinds, *every, wanted=want, opset=13)
    proto = model_with("Dropout", every[0], kinds, opset=13)
    assert_equal(results_of(model_of(proto), every[0]), want[0], 0)


def test_wrong_sources() -> None:
    feeds = {"x": normal(1, 1, 2, 2), "i": np.zeros((1, 1, 2, 3), np.int64)}
    attrs: dict[str, Any] = {"kernel_shape": [2, 2]}
    with pytest.raises(ModelError, match="are not one for each"):
        model_of(model_with("MaxUnpool", feeds, {"y": np.float32}, attrs=attrs))(feeds)
    feeds = {"x": normal(1, 5, 4), "a": np.array([4, 4]), "b": np.array([2, 2])}
    with pytest.raises(ModelError, match="are not 9 blocks"):
        model_of(model_with("Col2Im", feeds, {"y": np.float32}))(feeds)
    feeds = {"x": normal(3, 4)}
    with pytest.raises(ModelError, match="neither 1 nor 2"):
        model_of(model_with("LpNormalization", feeds, {"y": np.float32}, attrs={"p": 3}))(feeds)
