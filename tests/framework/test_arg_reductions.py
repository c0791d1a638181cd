"""Places of extremes and of classes, cumulative sums: open sizes, types, axes, NaN, nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.graph.graph import ModelError
from tests.framework.models import Array, model_of
from tests.framework.one_operator import check, model_with, results_of
from tests.pairs import every_pair

SHAPES = [(3, 5, 4), (2, 37, 9), (4, 21, 19)]


def drawn(kind: Any, shape: tuple[int, ...], most: int = 6) -> Array:
    """Few different numbers, so that some are equal."""
    rng = np.random.default_rng(sum(shape))
    return rng.integers(0, most, shape).astype(kind)


@every_pair(
    kind=[np.float32, np.float64, np.int32, np.int8, np.uint8],
    axis=[0, 1, -1],
    op=["ArgMax", "ArgMin"],
)
def test_places_of_extremes(op: str, axis: int, kind: Any) -> None:
    feeds = [{"x": drawn(kind, shape)} for shape in SHAPES]
    for last in (0, 1):
        attrs = {"axis": axis, "keepdims": last, "select_last_index": last}
        check(op, {"y": np.int64}, *feeds, attrs=attrs)


@pytest.mark.parametrize("kind", [np.float16, np.int64, np.uint64])
def test_places_in_types_that_onnx_runtime_lacks(kind: Any) -> None:
    feeds = [{"x": drawn(kind, shape)} for shape in SHAPES]
    check("ArgMax", {"y": np.int64}, *feeds, peer="reference", attrs={"axis": 1})


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_nan_is_before_all_numbers(op: str) -> None:
    """As NumPy has it, and with it ONNX's own implementation."""
    every = []
    for shape in SHAPES:
        array = drawn(np.float32, shape)
        array[np.random.default_rng(1).random(shape) < 0.05] = np.nan
        every.append({"x": array})
    check(op, {"y": np.int64}, *every, peer="reference", attrs={"axis": 1})


def test_nothing_to_compare() -> None:
    proto = model_with("ArgMax", {"x": np.zeros((2, 3), np.float32)}, {"y": np.int64},
                       attrs={"axis": 1})  # fmt: skip
    with pytest.raises(ModelError, match="nothing to compare along axis 1"):
        model_of(proto)(np.zeros((2, 0), np.float32))
    nothing = {"x": np.zeros((0, 3), np.float32)}
    assert results_of(model_of(proto), nothing)["y"].shape == (0, 1)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_hardmax(axis: int, opset: int) -> None:
    feeds = [{"x": drawn(np.float32, shape, 50)} for shape in SHAPES]
    check("Hardmax", {"y": np.float32}, *feeds, opset=opset, attrs={"axis": axis})


@pytest.mark.parametrize(
    ("indices", "depths", "values"),
    [
        (np.int64, np.int64, np.float32),
        (np.int64, np.int64, np.int64),
        (np.int32, np.int32, np.float32),
        (np.float32, np.float32, np.float32),
    ],
)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int, indices: Any, depths: Any, values: Any) -> None:
    """Indices from both ends and outside, a depth that only the run knows."""
    rng = np.random.default_rng(2)
    every = [
        {
            "i": rng.integers(-depth - 2, depth + 2, shape[:2]).astype(indices),
            "d": np.array(depth, depths),
            "v": np.array([-3, 7], values),
        }
        for depth, shape in zip((5, 9, 4), SHAPES, strict=True)
    ]
    check("OneHot", {"y": values}, *every, attrs={"axis": axis})


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumulative_sums(axis: int, kind: Any) -> None:
    constants = {"axis": np.array(axis, np.int64)}
    for options in ({}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}):
        feeds = [{"x": drawn(kind, shape)} for shape in SHAPES]
        check("CumSum", {"y": kind}, *feeds, tolerance=1e-6, constants=constants, attrs=options)


def test_cumulative_sum_along_an_axis_that_is_an_input() -> None:
    every = [
        {"x": drawn(np.float32, shape), "axis": np.array(axis, np.int64)}
        for axis, shape in zip((0, -1, 1), SHAPES, strict=True)
    ]
    check("CumSum", {"y": np.float32}, *every, tolerance=1e-6)


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_cumulative_products(kind: Any) -> None:
    """ONNX Runtime has none yet."""
    every = [{"x": drawn(kind, shape, 2) + kind(1)} for shape in SHAPES]
    for axis in (0, -1):
        want = [{"y": np.cumprod(feeds["x"], axis, kind)} for feeds in every]
        constants = {"axis": np.array(axis, np.int64)}
        check("CumProd", {"y": kind}, *every, wanted=want, opset=26, constants=constants)


def test_cumulative_sum_of_nothing() -> None:
    constants = {"axis": np.array(1, np.int64)}
    check("CumSum", {"y": np.float32}, {"x": np.zeros((3, 0), np.float32)}, constants=constants)


def test_wrong_attributes() -> None:
    feeds = {"i": np.zeros((2, 3), np.int64), "d": np.array(0), "v": np.zeros(2, np.float32)}
    proto = model_with("OneHot", feeds, {"y": np.float32})
    with pytest.raises(ModelError, match="depth 0 must be at least 1"):
        model_of(proto)(feeds)
    proto = model_with("CumSum", {"x": np.zeros((2, 3), np.float32)}, {"y": np.float32},
                       constants={"axis": np.array(2)})  # fmt: skip
    with pytest.raises((ModelError, InvalidArguments, Unimplemented), match="axis 2 is outside"):
        model_of(proto)(np.zeros((2, 3), np.float32))
