"""What a model computes of sizes and mixes with data, while only a run knows the sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from dnnl.framework.model import Model
from tests.framework.models import graph_of, make_model, node, plans_of, run_peer

Array = np.ndarray
RNG = np.random.default_rng(37)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def causal_mask() -> Any:
    """As torch.full(...).triu() is exported: the places before a row are open to it."""
    less = numpy_helper.from_array(np.array([-3.0], np.float32))
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "zero"], "rows"),
        node("Sub", ["columns", "rows"], "ahead"),
        node("Gather", ["shape", "one"], "columns"),
        node("Add", ["ahead", "one"], "diagonal"),
        node("ConstantOfShape", ["shape"], "full", value=less),
        node("Trilu", ["full", "diagonal"], "upper", upper=1),
        node("Trilu", ["x", "ahead"], "lower", upper=0),
        node("Add", ["upper", "lower"], "y"),
    ]
    nodes[2], nodes[3] = nodes[3], nodes[2]
    constants = {"zero": np.array(0, np.int64), "one": np.array(1, np.int64)}
    return make_model(nodes, {"x": ("n", "l")}, ["y"], constants)


def places() -> Any:
    """Numbers of a length as data: a mean by it, what is below it, several of them at once."""
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "one"], "columns"),
        node("Cast", ["columns"], "count", to=TensorProto.FLOAT),
        node("ReduceSum", ["x"], "sums", keepdims=0),
        node("Div", ["sums", "count"], "mean"),
        node("Add", ["x", "mean"], "shifted"),
        node("Less", ["i", "columns"], "below"),
        node("Where", ["below", "i", "columns"], "least"),
        node("Gather", ["x", "last"], "row"),
        node("Mul", ["i", "shape"], "scaled"),
        node("Cast", ["scaled"], "scaled_numbers", to=TensorProto.FLOAT),
        node("Cast", ["least"], "least_numbers", to=TensorProto.FLOAT),
        node("ReduceSum", ["scaled_numbers"], "s1", keepdims=0),
        node("ReduceSum", ["least_numbers"], "s2", keepdims=0),
        node("Sum", ["shifted", "s1", "s2"], "y"),
    ]
    constants = {"one": np.array(1, np.int64), "last": np.array(-1, np.int64)}
    inputs: Mapping[str, Sequence[int | str]] = {"x": ("n", "l"), "i": (2,)}
    return make_model(nodes, inputs, ["y"], constants, kinds={"i": np.int64})


def repeated() -> Any:
    """Tile, Pad and a Resize to sizes that pass through floats, all of open sizes."""
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Slice", ["shape", "two", "four"], "image"),
        node("Cast", ["image"], "floats", to=TensorProto.FLOAT),
        node("Mul", ["floats", "factor"], "larger"),
        node("Floor", ["larger"], "whole"),
        node("Cast", ["whole"], "sizes", to=TensorProto.INT64),
        node("Slice", ["shape", "none", "two"], "outer"),
        node("Concat", ["outer", "sizes"], "target", axis=0),
        node("Resize", ["x", "", "", "target"], "wide", mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
        node("Tile", ["x", "repeats"], "tiled"),
        node("Pad", ["x", "pads", "number"], "padded"),
        node("Slice", ["padded", "three", "ends", "last"], "cut"),
        node("Add", ["wide", "tiled"], "y"),
    ]  # fmt: skip
    constants = {
        "none": ints(0), "two": ints(2), "four": ints(4), "repeats": ints(1, 1, 2, 2),
        "factor": np.array(2, np.float32), "pads": ints(0, 0, 1, 3, 0, 0, 2, 0),
        "number": np.array(0.5, np.float32), "three": ints(3), "ends": ints(99), "last": ints(3),
    }  # fmt: skip
    return make_model(nodes, {"x": ("n", 2, "h", "w")}, ["y", "cut"], constants)


def filled() -> Any:
    """Padding to a multiple of 7, as functional.pad is exported: by pairs of which the last axis is
    first."""
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Slice", ["shape", "one", "three"], "image"),
        node("Neg", ["image"], "negative"),
        node("Mod", ["negative", "seven"], "behind"),
        node("Slice", ["behind", "last", "far", "none", "last"], "reversed"),
        node("Unsqueeze", ["reversed", "one"], "column"),
        node("Concat", ["nothing", "column"], "pairs", axis=1),
        node("Slice", ["pairs", "last", "far", "none", "last"], "forward"),
        node("Transpose", ["forward"], "transposed", perm=[1, 0]),
        node("Reshape", ["transposed", "last"], "pads"),
        node("Pad", ["x", "pads", "", "axes"], "y"),
    ]
    constants = {
        "none": ints(0), "one": ints(1), "three": ints(3), "seven": ints(7), "last": ints(-1),
        "far": ints(-(2**40)), "axes": ints(1, 2), "nothing": np.zeros((2, 1), np.int64),
    }  # fmt: skip
    return make_model(nodes, {"x": ("n", "h", "w", 5)}, ["y"], constants, opset=18)


MODELS: Mapping[str, tuple[Any, Sequence[tuple[int, ...]]]] = {
    "causal_mask": (causal_mask(), [(2, 3), (3, 8), (4, 5), (9, 9), (3, 17), (17, 16), (7, 2)]),
    "places": (places(), [(2, 3), (3, 8), (4, 5), (9, 9), (3, 17), (17, 16)]),
    "filled": (filled(), [(2, 3, 4, 5), (3, 9, 11, 5), (2, 5, 16, 5), (4, 18, 3, 5)]),
    "repeated": (repeated(), [(2, 2, 4, 4), (3, 2, 8, 9), (2, 2, 5, 3), (4, 2, 17, 2)]),
}


@pytest.mark.parametrize("name", MODELS)
def test_one_plan_for_all_sizes(name: str) -> None:
    proto, shapes = MODELS[name]
    model = Model(graph_of(proto))
    for shape in (*shapes, shapes[1]):
        feeds: dict[str, Array] = {"x": RNG.standard_normal(shape).astype(np.float32)}
        if "i" in model.inputs:
            feeds["i"] = RNG.integers(0, 20, 2)
        got, want = model(feeds), run_peer(proto, feeds)
        for key, array in want.items():
            own = got[key] if isinstance(got, dict) else got
            np.testing.assert_allclose(own, array, 1e-5, 1e-4)
    assert (len(plans_of(model)._special.sessions), len(plans_of(model)._open)) == (1, 1)


def test_where_has_the_type_of_what_it_chooses() -> None:
    """Not that of its condition, also where the result is known for all sizes of a plan."""
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Greater", ["shape", "most"], "beyond"),
        node("Where", ["beyond", "shape", "number"], "y"),
    ]
    constants = {"most": ints(4), "number": ints(7)}
    proto = make_model(nodes, {"x": ("n", "l")}, ["y"], constants, kinds={"y": np.int64})
    model = Model(graph_of(proto))
    for shape in ((2, 3), (3, 8), (9, 9), (3, 3)):
        got = model(np.zeros(shape, np.float32))
        want = np.where(np.array(shape) > 4, shape, 7)
        np.testing.assert_array_equal(got, want, strict=True)


def test_range_as_output() -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "zero"], "rows"),
        node("Range", ["zero", "rows", "one"], "y"),
    ]
    constants = {"zero": np.array(0, np.int64), "one": np.array(1, np.int64)}
    proto = make_model(nodes, {"x": ("n", 2)}, ["y"], constants, kinds={"y": np.int64})
    model = Model(graph_of(proto))
    for rows in (3, 5, 17, 4):
        got = model(np.zeros((rows, 2), np.float32))
        np.testing.assert_array_equal(got, np.arange(rows))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.INT32])
def test_numbers_that_a_type_does_not_hold(kind: int) -> None:
    """Floats are rounded, and integers of 32 bits wrap around."""
    whole = kind == TensorProto.INT32
    factor = np.array([12291, 1 << 30], np.int32) if whole else np.array([12291, 3], np.float32)
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Cast", ["shape"], "sizes", to=kind),
        node("Mul", ["sizes", "factor"], "product"),
        node("Cast", ["product"], "y", to=TensorProto.INT64),
    ]
    if whole:
        nodes[-1] = node("Identity", ["product"], "y")
    kinds = {"y": np.int32 if whole else np.int64}
    proto = make_model(nodes, {"x": ("n", "l")}, ["y"], {"factor": factor}, kinds=kinds)
    model = Model(graph_of(proto))
    for shape in ((2, 3), (5001, 3), (4099, 2), (3, 7)):
        feeds = {"x": np.zeros(shape, np.float32)}
        np.testing.assert_array_equal(model(feeds), run_peer(proto, feeds)["y"], strict=True)
