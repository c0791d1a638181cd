"""Products and convolutions that ONNX Runtime's optimizer writes, of open sizes, against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import dnnl
from tests.framework.contributed import check_calls, contributed, contributed_model
from tests.framework.models import Array, make_model, model_of, node
from tests.pairs import every_pair

CALLS = [(2, 5), (2, 9), (3, 17), (4, 12)]


def arrays(rng: np.random.Generator, shapes: dict[str, Any], b: int, s: int) -> dict[str, Array]:
    """Random floats of shapes of names."""
    sizes = {"b": b, "s": s}
    return {
        name: rng.standard_normal([sizes.get(n, n) for n in shape]).astype(np.float32)
        for name, shape in shapes.items()
    }


def check(op: str, shapes: dict[str, Any], attrs: dict[str, Any], plans: int | None = 1) -> None:
    proto = contributed_model([contributed(op, list(shapes), "y", **attrs)], shapes, ["y"])
    rng = np.random.default_rng(0)
    check_calls(proto, [arrays(rng, shapes, b, s) for b, s in CALLS], 1e-5, plans)


ACTIVATIONS: list[tuple[str, list[float]]] = [
    ("", []),
    ("Relu", []),
    ("Tanh", []),
    ("Sigmoid", []),
    ("LeakyRelu", [0.2]),
    ("Clip", [-0.5, 0.7]),
    ("HardSigmoid", [0.3, 0.4]),
]


@pytest.mark.parametrize(("activation", "given"), ACTIVATIONS)
@pytest.mark.covers
def test_convolutions(activation: str, given: list[float]) -> None:
    attrs: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    if activation:
        attrs |= {"activation": activation}
    if given:
        attrs |= {"activation_params": given}
    shapes = {"x": ("b", 4, "s", 9), "w": (8, 4, 3, 3), "bias": (8,), "z": ("b", 8, "s", 9)}
    check("FusedConv", shapes, attrs)
    del shapes["z"]
    check("FusedConv", shapes, attrs)


def test_convolutions_with_channels_last() -> None:
    rng = np.random.default_rng(1)
    shapes: dict[str, Any] = {
        "x": ("b", "s", 9, 4),
        "w": (8, 4, 3, 3),
        "bias": (8,),
        "z": ("b", "s", 9, 8),
    }
    attrs = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "activation": "Relu"}
    op = contributed("NhwcFusedConv", list(shapes), "y", **attrs)
    own = model_of(contributed_model([op], shapes, ["y"]))
    first = {**shapes, "x": ("b", 4, "s", 9), "z": ("b", 8, "s", 9)}
    op = contributed("FusedConv", list(first), "y", **attrs)
    other = model_of(contributed_model([op], first, ["y"]))
    for b, s in CALLS:
        feeds = arrays(rng, shapes, b, s)
        moved = {**feeds, **{n: feeds[n].transpose(0, 3, 1, 2) for n in ("x", "z")}}
        wanted = np.asarray(other(moved)).transpose(0, 2, 3, 1)
        np.testing.assert_allclose(np.asarray(own(feeds)), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_maxima_with_channels_last(kind: Any) -> None:
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    op = contributed("NhwcMaxPool", ["x"], "y", **attrs)
    kinds = {"x": kind, "y": kind}
    proto = contributed_model([op], {"x": ("b", "s", 9, 4)}, ["y"], kinds=kinds)
    rng = np.random.default_rng(2)
    info = np.iinfo(kind)
    feeds = [{"x": rng.integers(info.min, info.max, (b, s, 9, 4)).astype(kind)} for b, s in CALLS]
    check_calls(proto, feeds, 0, 8)


@every_pair(first=[False, True], second=[False, True], batches=[(0, 0), (1, 0), (0, 1)])
def test_products(first: bool, second: bool, batches: tuple[int, int]) -> None:
    a: Any = ("b", 3, 7, "s") if first else ("b", 3, "s", 7)
    b: Any = ("b", 3, 6, 7) if second else ("b", 3, 7, 6)
    if batches[0]:
        a = (a[2], a[0], a[1], a[3])
    if batches[1]:
        b = (b[2], b[0], b[1], b[3])
    attrs = {"transA": int(first), "transB": int(second), "alpha": 0.5}
    attrs |= {"transBatchA": batches[0], "transBatchB": batches[1]}
    check("FusedMatMul", {"a": a, "b": b}, attrs)


@pytest.mark.parametrize(("activation", "given"), ACTIVATIONS[:5])
def test_matrices(activation: str, given: list[float]) -> None:
    attrs: dict[str, Any] = {"transB": 1, "alpha": 0.5, "beta": 2.0, "activation": activation}
    if given:
        attrs |= {"activation_alpha": given[0], "activation_beta": 0.0, "activation_gamma": 0.0}
    if activation:
        check("FusedGemm", {"a": ("s", 7), "b": (6, 7), "c": (6,)}, attrs)


def test_what_the_optimizer_writes(tmp_path: Any) -> None:
    """A convolution with a residual and an activation, and a scaled product by a transposition."""
    rng = np.random.default_rng(3)
    nodes = [
        node("Conv", ["x", "w"], "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Add", ["c", "x"], "a"),
        node("Relu", ["a"], "r"),
        node("Transpose", ["r"], "t", perm=[0, 1, 3, 2]),
        node("MatMul", ["r", "t"], "m"),
        node("Mul", ["m", "half"], "y"),
    ]
    weights = rng.standard_normal((4, 4, 3, 3))
    proto = make_model(nodes, {"x": ("b", 4, "s", 9)}, ["y"], {"w": weights, "half": 0.5})
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    peer = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    optimized = onnx.load(tmp_path / "optimized.onnx")
    assert {"FusedConv", "FusedMatMul"} & {own.op_type for own in optimized.graph.node}
    model = model_of(optimized)
    for b, s in CALLS:
        x = rng.standard_normal((b, 4, s, 9)).astype(np.float32)
        (wanted,) = peer.run(None, {"x": x})
        np.testing.assert_allclose(np.asarray(model(x)), wanted, rtol=1e-5, atol=1e-4)


def test_other_activations_are_refused() -> None:
    shapes = {"x": (1, 4, 5, 5), "w": (8, 4, 3, 3)}
    op = contributed("FusedConv", list(shapes), "y", kernel_shape=[3, 3], activation="Softsign")
    model = model_of(contributed_model([op], shapes, ["y"]))
    with pytest.raises(dnnl.Unimplemented, match="activation 'Softsign'"):
        model(arrays(np.random.default_rng(0), shapes, 1, 1))
