"""Operators in every type that ONNX allows, for sizes that are open, beside its reference."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from dnnl.errors import Unimplemented
from dnnl.graph.graph import Array, ModelError
from tests.framework.models import make_model, model_of, node

FLOATS = ["float32", "float64", "float16", "bfloat16"]
WHOLE = ["int32", "int64", "uint8", "int16"]
EIGHTS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
OPSET = 25
ROWS = (3, 5, 1, 0, 7)
Sizes = dict[str, list[int | str]]
POWERS: list[Sizes] = [
    {"x": ["r", 4], "n": [4]},
    {"x": [4], "n": ["r", 4]},
    {"x": ["r", 1], "n": [4]},
]
MEANS: list[list[int | str]] = [["r", 6], [6], ["r", 1]]


def code_of(kind: npt.DTypeLike) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


def close(got: Any, want: Array, kind: str, case: object = None) -> None:
    assert isinstance(got, np.ndarray)
    assert (got.dtype, got.shape) == (want.dtype, want.shape), case
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5}.get(kind, 1e-13)
    a, b = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(a, b, tolerance, tolerance, err_msg=str(case))


@pytest.mark.parametrize(("base", "exponent"), [*itertools.product([*FLOATS, *WHOLE], repeat=2)])
def test_powers(base: str, exponent: str) -> None:
    """Whole powers of whole numbers are exact; sources broadcast to each other."""
    rng = np.random.default_rng(1)
    kinds = {"x": base, "n": exponent, "y": base}
    for sizes in POWERS:
        proto = make_model([node("Pow", ["x", "n"], "y")], sizes, ["y"], None, OPSET, kinds)
        model = model_of(proto)
        for rows in ROWS:
            shapes = {k: [rows if n == "r" else int(n) for n in s] for k, s in sizes.items()}
            x = rng.integers(1, 7, shapes["x"]).astype(base)
            n = rng.integers(0, 4, shapes["n"]).astype(exponent)
            if exponent in FLOATS and base in FLOATS:
                n = (n + rng.random(shapes["n"])).astype(exponent)
            want = np.power(x.astype(np.float64), n.astype(np.float64)).astype(base)
            close(model({"x": x, "n": n}), want, base)


def test_an_integer_to_the_power_of_a_float() -> None:
    """The integer before the point, and the nearest one that there is."""
    proto = make_model(
        [node("Pow", ["x", "n"], "y")],
        {"x": ["r"], "n": ["r"]},
        ["y"],
        None,
        OPSET,
        {"x": np.int32, "n": np.float32, "y": np.int32},
    )
    x = np.array([2, 10, 3, -2, 7, 10, 0, -3, 2], np.int32)
    n = np.array([0.5, 2.5, -1, 3, 0, 99, 0, 0.5, 30], np.float32)
    want = [1, 316, 0, -8, 1, 2**31 - 1, 1, 0, 2**30]
    assert list(np.asarray(model_of(proto)({"x": x, "n": n}))) == want


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_means(kind: str, count: int) -> None:
    rng = np.random.default_rng(2)
    names = [f"x{place}" for place in range(count)]
    sizes = {name: MEANS[place % 3] for place, name in enumerate(names)}
    kinds = dict.fromkeys([*names, "y"], kind)
    proto = make_model([node("Mean", names, "y")], sizes, ["y"], None, OPSET, kinds)
    model = model_of(proto)
    for rows in ROWS:
        feeds = {
            name: rng.standard_normal([rows if n == "r" else int(n) for n in sizes[name]]).astype(
                kind
            )
            for name in names
        }
        wide = sum(own.astype(np.float64) for own in feeds.values())
        close(model(feeds), np.asarray(wide / count).astype(kind), kind)


def test_means_of_integers_are_refused() -> None:
    kinds = dict.fromkeys("xy", np.int32)
    proto = make_model([node("Mean", ["x", "x"], "y")], {"x": [3]}, ["y"], None, OPSET, kinds)
    with pytest.raises(Unimplemented, match="Mean of int32 is not computed"):
        model_of(proto)(np.ones(3, np.int32))


@pytest.mark.parametrize("k", [0, 2, -1, 9])
@pytest.mark.parametrize("kind", [None, "float64", "bool", "uint8", "bfloat16"])
def test_ones_on_a_diagonal(kind: str | None, k: int) -> None:
    attrs = {"k": k} | ({"dtype": code_of(kind)} if kind else {})
    kinds = {"x": "int32", "y": kind or "int32"}
    eye = node("EyeLike", ["x"], "y", **attrs)
    model = model_of(make_model([eye], {"x": ["n", "m"]}, ["y"], None, OPSET, kinds))
    for shape in ((3, 4), (5, 2), (1, 6), (0, 3), (7, 7)):
        got = model(np.zeros(shape, np.int32))
        assert isinstance(got, np.ndarray)
        want = np.eye(*shape, k).astype(kinds["y"])
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(got, want)


def test_a_diagonal_needs_a_matrix() -> None:
    proto = make_model([node("EyeLike", ["x"], "y")], {"x": [2, 3, 4]}, ["y"], None, OPSET)
    with pytest.raises(ModelError, match=r"\(2, 3, 4\) is no matrix"):
        model_of(proto)(np.zeros((2, 3, 4), np.float32))


@pytest.mark.parametrize("kind", [*FLOATS, *EIGHTS])
def test_infinite_numbers_and_none(kind: str) -> None:
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -3.0, 440.0]
    with np.errstate(all="ignore"):
        x = np.array(special, np.float32).astype(kind)
    cases: tuple[tuple[str, dict[str, int]], ...] = (
        ("IsNaN", {}),
        ("IsInf", {}),
        ("IsInf", {"detect_negative": 0}),
        ("IsInf", {"detect_positive": 0}),
        ("IsInf", {"detect_positive": 0, "detect_negative": 0}),
    )
    for op, attrs in cases:
        kinds = {"x": kind, "y": "bool"}
        proto = make_model([node(op, ["x"], "y", **attrs)], {"x": ["n"]}, ["y"], None, OPSET, kinds)
        model = model_of(proto)
        for count in (8, 6, 0):
            wide = x[:count].astype(np.float64)
            up, down = (attrs.get(f"detect_{sign}", 1) for sign in ("positive", "negative"))
            infinite = (np.isposinf(wide) & bool(up)) | (np.isneginf(wide) & bool(down))
            want = np.isnan(wide) if op == "IsNaN" else infinite
            np.testing.assert_array_equal(model(x[:count]), want, f"{op} {attrs}")


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("kind", FLOATS)
def test_remainders(kind: str, fmod: int) -> None:
    rng = np.random.default_rng(3)
    kinds = dict.fromkeys("aby", kind)
    mod = node("Mod", ["a", "b"], "y", fmod=fmod)
    model = model_of(make_model([mod], {"a": ["n", 3], "b": [3]}, ["y"], None, OPSET, kinds))
    core = np.float32 if kind == "bfloat16" else np.dtype(kind)
    for rows in ROWS:
        a = (100 * rng.standard_normal((rows, 3))).astype(kind)
        b = (3 * rng.standard_normal(3)).astype(kind)
        peer = np.fmod if fmod else np.mod
        want = peer(a.astype(core), b.astype(core)).astype(kind)
        got = np.asarray(model({"a": a, "b": b}))
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


ALONE = ("Ceil", "Celu", "Erf", "Floor", "Selu", "Softsign", "ThresholdedRelu")


@pytest.mark.parametrize("op", ALONE)
def test_functions_of_f64(op: str) -> None:
    x = 3 * np.random.default_rng(4).standard_normal((7, 5))
    proto = make_model(
        [node(op, ["x"], "y")], {"x": ["n", 5]}, ["y"], None, 20, dict.fromkeys("xy", np.float64)
    )
    model, reference = model_of(proto), ReferenceEvaluator(proto)
    for rows in ROWS:
        (want,) = reference.run(None, {"x": x[:rows]})
        if op == "Erf":  # which the reference computes in f32
            want = np.vectorize(math.erf, otypes=[np.float64])(x[:rows])
        close(model(x[:rows]), want.astype(np.float64), "float32" if op == "Selu" else "float64")


TYPES = [*FLOATS, "bool", "int8", "uint16", "int64", "uint64", "float8_e5m2", "int4"]


@pytest.mark.parametrize("kind", TYPES)
def test_sizes_of_every_type(kind: str) -> None:
    nodes = [
        node("Shape", ["x"], "all"),
        node("Shape", ["x"], "part", start=-2, end=2),
        node("Shape", ["x"], "none", start=2, end=1),
        node("Size", ["x"], "count"),
        node("Identity", ["x"], "same"),
    ]
    outputs = ["all", "part", "none", "count", "same"]
    kinds = {**dict.fromkeys(outputs, "int64"), "x": kind, "same": kind}
    model = model_of(make_model(nodes, {"x": ["a", "b", "c"]}, outputs, None, OPSET, kinds))
    for shape in ((2, 3, 4), (5, 1, 2), (0, 2, 2)):
        x = np.zeros(shape, kind)
        got = model(x)
        assert isinstance(got, dict)
        assert tuple(got["all"]) == shape
        assert tuple(got["part"]) == shape[1:2]
        assert got["none"].shape == (0,)
        assert got["count"] == x.size
        assert (got["same"].dtype, got["same"].shape) == (x.dtype, shape)


@pytest.mark.parametrize("kind", ["float32", "float16", "float64", "int8", "uint64", "bfloat16"])
def test_bounds_that_are_computed(kind: str) -> None:
    """Clip between what another part of the model has found, and Slice up to there."""
    rng = np.random.default_rng(5)
    nodes = [
        node("ReduceMin", ["x"], "least", keepdims=0),
        node("Add", ["least", "one"], "low"),
        node("Clip", ["x", "low", "high"], "y"),
    ]
    constants = {"one": np.ones((), kind)}
    sizes: dict[str, list[int | str]] = {"x": ["n"], "high": []}
    kinds = dict.fromkeys(["x", "y", "high"], kind)
    model = model_of(make_model(nodes, sizes, ["y"], constants, OPSET, kinds))
    for count in (9, 4, 1):
        x = rng.integers(0, 20, count).astype(kind)
        high = np.array(11, kind)
        low = x.min() + np.ones((), kind)
        want = np.minimum(np.maximum(x, low), high).astype(kind)
        np.testing.assert_array_equal(np.asarray(model({"x": x, "high": high})), want)


@pytest.mark.parametrize("size", [0, -1, -7])
def test_a_size_that_is_no_number_of_elements_is_open(size: int) -> None:
    """Some exporters write them for sizes that they do not know; two need not be equal."""
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2, 1])
    for axis in (0, 2):
        x.type.tensor_type.shape.dim[axis].dim_value = size
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([node("Neg", ["x"], "y")], "g", [x], [y])
    opset = [onnx.helper.make_opsetid("", 17)]
    model = model_of(onnx.helper.make_model_gen_version(graph, opset_imports=opset))
    for shape in ((3, 2, 4), (0, 2, 5), (1, 2, 1), (6, 2, 3)):
        got = np.asarray(model(np.ones(shape, np.float32)))
        np.testing.assert_array_equal(got, -np.ones(shape, np.float32))
