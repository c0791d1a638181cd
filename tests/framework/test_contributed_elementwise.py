"""Activations of ONNX Runtime's domain, of open sizes, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import dnnl
from tests.framework.contributed import F16, check_calls, contributed, contributed_model
from tests.framework.models import Array, make_model, model_of, node

CALLS = [(2, 5), (2, 9), (3, 17), (1, 40), (1, 1)]
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "Gelu": ("Gelu", {}, {}),
    "QuickGelu": ("QuickGelu", {}, {}),
    "QuickGelu of a factor": ("QuickGelu", {}, {"alpha": 0.7}),
    "FastGelu": ("FastGelu", {}, {}),
    "FastGelu of a sum": ("FastGelu", {"bias": (12,)}, {}),
    "BiasGelu": ("BiasGelu", {"bias": (12,)}, {}),
}


def arrays(rng: np.random.Generator, shapes: dict[str, Any], b: int, s: int) -> dict[str, Array]:
    """Random floats of shapes of names."""
    sizes = {"b": b, "s": s}
    return {
        name: rng.standard_normal([sizes.get(n, n) for n in shape]).astype(np.float32)
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, np.float32) for name in CASES), ("FastGelu", F16)]
)
def test_as_the_peer(name: str, dtype: Any) -> None:
    op, others, attrs = CASES[name]
    shapes = {"x": ("b", "s", 12), **others}
    kinds = dict.fromkeys((*shapes, "y"), dtype)
    proto = contributed_model(
        [contributed(op, list(shapes), "y", **attrs)], shapes, ["y"], kinds=kinds
    )
    rng = np.random.default_rng(0)
    calls = [
        {key: own.astype(dtype) for key, own in arrays(rng, shapes, b, s).items()} for b, s in CALLS
    ]
    check_calls(proto, calls, 2e-6 if dtype is np.float32 else 4e-3, 3)


def erf(x: Array) -> Array:
    from math import erf as of_one

    found: Array = np.vectorize(of_one)(x)
    return found


def gelu(x: Array) -> Array:
    found: Array = x * 0.5 * (1 + erf(x / np.sqrt(2)))
    return found


def test_sums_and_halves() -> None:
    shapes = {"x": ("b", "s", 12), "bias": (12,), "skip": ("b", "s", 12)}
    nodes = [
        contributed("BiasAdd", ["x", "bias", "skip"], "sum"),
        contributed("BiasSplitGelu", ["x", "bias"], "split"),
    ]
    model = model_of(contributed_model(nodes, shapes, ["sum", "split"]))
    rng = np.random.default_rng(1)
    for b, s in CALLS:
        feeds = arrays(rng, shapes, b, s)
        found, biased = model(feeds), feeds["x"].astype(np.float64) + feeds["bias"]
        assert isinstance(found, dict)
        np.testing.assert_allclose(found["sum"], biased + feeds["skip"], rtol=1e-6, atol=1e-6)
        wanted = biased[..., :6] * gelu(biased[..., 6:])
        np.testing.assert_allclose(found["split"], wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("limit", [0.0, 0.8])
def test_gates(joined: bool, limit: float) -> None:
    names = ["g"] if joined else ["g", "u"]
    shapes = dict.fromkeys(names, ("b", "s", 24 if joined else 12))
    attrs = {"limit": limit, "activation_alpha": 1.3, "activation_beta": 0.5}
    model = model_of(contributed_model([contributed("SwiGLU", names, "y", **attrs)], shapes, ["y"]))
    rng = np.random.default_rng(2)
    for b, s in CALLS:
        feeds = arrays(rng, shapes, b, s)
        gate = feeds["g"].astype(np.float64)[..., :12]
        up = (feeds["g"][..., 12:] if joined else feeds["u"]).astype(np.float64)
        if limit:
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        wanted = gate / (1 + np.exp(-1.3 * gate)) * (up + 0.5)
        np.testing.assert_allclose(np.asarray(model(feeds)), wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(("op", "opset"), [("Swish", 24), ("SwiGLU", 28)])
def test_what_onnx_has_since(op: str, opset: int) -> None:
    names = ["x"] if op == "Swish" else ["x", "u"]
    shapes = dict.fromkeys(names, ("b", "s", 12))
    proto = make_model([node(op, names, "y", alpha=1.3)], shapes, ["y"], opset=opset)
    model, reference = model_of(proto), ReferenceEvaluator(proto)
    rng = np.random.default_rng(4)
    for b, s in CALLS:
        feeds = arrays(rng, shapes, b, s)
        (wanted,) = reference.run(None, feeds)
        np.testing.assert_allclose(np.asarray(model(feeds)), wanted, rtol=2e-6, atol=2e-6)


def test_softmax_of_a_sum() -> None:
    shapes: dict[str, Any] = {"x": ("b", "s", 12), "bias": ("b", 1, 12)}
    op = contributed("BiasSoftmax", list(shapes), "y", axis=2, is_inner_broadcast=1)
    model = model_of(contributed_model([op], shapes, ["y"]))
    rng = np.random.default_rng(3)
    for b, s in CALLS:
        feeds = arrays(rng, shapes, b, s)
        wanted = np.exp(feeds["x"].astype(np.float64) + feeds["bias"])
        wanted /= wanted.sum(-1, keepdims=True)
        np.testing.assert_allclose(np.asarray(model(feeds)), wanted, rtol=2e-6, atol=1e-6)


def test_one_step() -> None:
    nodes = [contributed("BiasGelu", ["x", "bias"], "y")]
    shapes = {"x": (2, 5, 12), "bias": (12,)}
    session = model_of(contributed_model(nodes, shapes, ["y"])).compile()
    assert len(session.layers) == 1


def test_other_attributes_are_refused() -> None:
    nodes = [contributed("QuickGelu", ["x"], "y", beta=1.0)]
    model = model_of(contributed_model(nodes, {"x": (3,)}, ["y"]))
    with pytest.raises(dnnl.Unimplemented, match=r"attribute 'beta' = 1\.0 is not computed"):
        model(np.ones(3, np.float32))
