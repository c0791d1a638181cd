"""Causal convolutions and linear attention with states, against ONNX's implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import dnnl
from tests.framework.contributed import (
    F16,
    check_calls,
    contributed,
    contributed_model,
    results,
)
from tests.framework.models import Array, make_model, model_of, node, plans_of
from tests.pairs import every_pair

SIZES = [(2, 5), (2, 9), (3, 17), (1, 1), (2, 2), (4, 40)]


def close(found: dict[str, Array], wanted: list[Any], names: list[str], tolerance: float) -> None:
    for name, right in zip(names, wanted, strict=True):
        assert (found[name].dtype, found[name].shape) == (right.dtype, right.shape), name
        np.testing.assert_allclose(
            found[name].astype(np.float64),
            right.astype(np.float64),
            rtol=tolerance,
            atol=tolerance,
            err_msg=name,
        )


@every_pair(past=[False, True], bias=[False, True], taps=[1, 4], dtype=[np.float32, F16])
def test_convolutions(past: bool, bias: bool, taps: int, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {"x": ("b", 6, "s"), "w": (6, 1, taps)}
    inputs |= {"c": (6,)} if bias else {}
    inputs |= {"state": ("b", 6, taps - 1)} if past else {}
    names = [name if name in inputs else "" for name in ("x", "w", "c", "state")]
    op = node("CausalConvWithState", names, "y", "next", activation="silu")
    kinds = dict.fromkeys((*inputs, "y", "next"), dtype)
    proto = make_model([op], inputs, ["y", "next"], opset=27, kinds=kinds)
    model, reference = model_of(proto), ReferenceEvaluator(proto)
    for b, s in SIZES:
        sizes = {"b": b, "s": s}
        feeds = {
            name: rng.standard_normal([sizes.get(n, n) for n in shape]).astype(dtype)
            for name, shape in inputs.items()
        }
        tolerance = 1e-5 if dtype is np.float32 else 1e-2
        close(results(model, feeds), reference.run(None, feeds), ["y", "next"], tolerance)


def test_dilated_convolutions() -> None:
    rng, inputs = np.random.default_rng(1), {"x": ("b", 6, "s"), "w": (6, 1, 3)}
    names = ["x", "w", "", "state"]
    op = contributed("CausalConvWithState", names, "y", "next", dilation=2)
    shapes: dict[str, Any] = {**inputs, "state": ("b", 6, 4)}
    model = model_of(contributed_model([op], shapes, ["y", "next"]))
    for b, s in SIZES:
        sizes = {"b": b, "s": s}
        feeds = {
            name: rng.standard_normal([sizes.get(n, n) for n in shape]).astype(np.float32)
            for name, shape in shapes.items()
        }
        found, whole = results(model, feeds), np.concatenate((feeds["state"], feeds["x"]), 2)
        wanted = sum(whole[:, :, 2 * t : 2 * t + s] * feeds["w"][:, :, t] for t in range(3))
        np.testing.assert_allclose(found["y"], wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found["next"], whole[:, :, s:])


RULES = {
    "linear": (),
    "gated": ("decay",),
    "delta": ("beta",),
    "gated_delta": ("decay", "beta"),
}
HEADS, SHARED, DEPTH, WIDTH = 4, 2, 6, 5


def attention(rule: str, *, past: bool, vectors: bool, dtype: Any = np.float32) -> Any:
    inputs: dict[str, Any] = {"q": ("b", "s", HEADS * DEPTH), "k": ("b", "s", SHARED * DEPTH)}
    inputs["v"] = ("b", "s", SHARED * WIDTH)
    if past:
        inputs["state"] = ("b", SHARED, DEPTH, WIDTH)
    if "decay" in RULES[rule]:
        inputs["decay"] = ("b", "s", SHARED * (DEPTH if vectors else 1))
    if "beta" in RULES[rule]:
        inputs["beta"] = ("b", "s", SHARED)
    names = [n if n in inputs else "" for n in ("q", "k", "v", "state", "decay", "beta")]
    attrs = {"update_rule": rule, "q_num_heads": HEADS, "kv_num_heads": SHARED}
    op = node("LinearAttention", names, "y", "next", **attrs)
    kinds = dict.fromkeys((*inputs, "y", "next"), dtype)
    return make_model([op], inputs, ["y", "next"], opset=27, kinds=kinds), inputs


def arrays(
    rng: np.random.Generator, inputs: dict[str, Any], b: int, s: int, dtype: Any = np.float32
) -> dict[str, Array]:
    sizes, feeds = {"b": b, "s": s}, {}
    for name, shape in inputs.items():
        own = rng.standard_normal([sizes.get(n, n) for n in shape])
        if name == "decay":
            own = -np.abs(own)
        elif name == "beta":
            own = 1 / (1 + np.exp(-own))
        elif name == "k":
            own /= np.linalg.norm(own, axis=-1, keepdims=True)
        feeds[name] = own.astype(dtype)
    return feeds


@every_pair(rule=RULES, past=[False, True], vectors=[False, True])
def test_linear_attention(rule: str, past: bool, vectors: bool) -> None:
    proto, inputs = attention(rule, past=past, vectors=vectors)
    model, reference = model_of(proto), ReferenceEvaluator(proto)
    rng = np.random.default_rng(2)
    for b, s in SIZES[:5]:
        feeds = arrays(rng, inputs, b, s)
        close(results(model, feeds), reference.run(None, feeds), ["y", "next"], 1e-5)


@pytest.mark.parametrize("rule", ["linear", "gated"])
def test_rows_at_once_share_a_plan(rule: str) -> None:
    proto, inputs = attention(rule, past=True, vectors=False)
    model, reference = model_of(proto), ReferenceEvaluator(proto)
    rng = np.random.default_rng(3)
    for s in (5, 9, 100, 300):
        feeds = arrays(rng, inputs, 2, s)
        close(results(model, feeds), reference.run(None, feeds), ["y", "next"], 1e-4)
    assert len(plans_of(model).sessions) == 2


def test_smaller_floats_with_states_of_f32() -> None:
    proto, inputs = attention("gated_delta", past=True, vectors=False, dtype=F16)
    rng = np.random.default_rng(4)
    feeds = arrays(rng, inputs, 2, 6, F16)
    wanted = ReferenceEvaluator(proto).run(None, feeds)
    close(results(model_of(proto), feeds), wanted, ["y", "next"], 5e-3)


def test_as_the_peer() -> None:
    inputs: dict[str, Any] = {"q": ("b", "s", 24), "k": ("b", "s", 24), "v": ("b", "s", 20)}
    inputs |= {"state": ("b", 4, 6, 5), "decay": ("b", "s", 4), "beta": ("b", "s", 4)}
    attrs = {"q_num_heads": 4, "kv_num_heads": 4, "update_rule": "gated_delta"}
    op = contributed("LinearAttention", list(inputs), "y", "next", **attrs)
    proto = contributed_model([op], inputs, ["y", "next"])
    rng = np.random.default_rng(5)
    check_calls(proto, [arrays(rng, inputs, b, s) for b, s in SIZES[:4]], 1e-5, None)


def test_many_rows_of_other_rules_are_refused() -> None:
    proto, inputs = attention("delta", past=False, vectors=False)
    feeds = arrays(np.random.default_rng(6), inputs, 1, 65)
    with pytest.raises(dnnl.Unimplemented, match="65 rows by update_rule 'delta': at most 64"):
        model_of(proto)(feeds)


@pytest.mark.parametrize("name", ["channels_last", "state_window"])
def test_other_forms_are_refused(name: str) -> None:
    op = contributed("CausalConvWithState", ["x", "w"], "y", "next", **{name: 1})
    shapes = {"x": (1, 6, 5), "w": (6, 1, 3)}
    model = model_of(contributed_model([op], shapes, ["y", "next"]))
    feeds = arrays(np.random.default_rng(7), shapes, 1, 5)
    with pytest.raises(dnnl.Unimplemented, match=f"{name} = 1"):
        model(feeds)
