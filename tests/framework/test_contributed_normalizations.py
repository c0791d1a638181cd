"""Normalizations of ONNX Runtime's domain, of open sizes, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dnnl
from tests.framework.contributed import F16, check_calls, contributed, contributed_model
from tests.framework.models import Array, make_model, model_of, node
from tests.pairs import every_pair

CALLS = [(2, 5), (2, 9), (3, 17), (4, 40)]
ENDS = [(1, 7), (1, 1), (2, 1)]


def arrays(
    rng: np.random.Generator, shapes: dict[str, Any], b: int, s: int, dtype: Any = np.float32
) -> dict[str, Array]:
    """Random floats of shapes of names."""
    sizes = {"b": b, "s": s}
    return {
        name: rng.standard_normal([sizes.get(n, n) for n in shape]).astype(dtype)
        for name, shape in shapes.items()
    }


SKIPS = {
    "SkipLayerNormalization": (
        ["x", "skip", "scale", "shift", "bias"],
        [5, 4, 3],
    ),
    "SkipSimplifiedLayerNormalization": (["x", "skip", "scale", "bias"], [4, 3]),
}


@pytest.mark.parametrize("op", SKIPS)
@pytest.mark.parametrize(
    ("skip", "dtype"),
    [
        (("b", "s", 24), np.float32),
        (("s", 24), np.float32),
        ((1, "s", 24), np.float32),
        (("b", "s", 24), F16),
    ],
)
def test_sums(op: str, skip: Any, dtype: Any) -> None:
    names, counts = SKIPS[op]
    for count in counts:
        given = names[:count]
        shapes: dict[str, Any] = {**dict.fromkeys(given, (24,)), "x": ("b", "s", 24), "skip": skip}
        kinds = dict.fromkeys((*given, "y", "sum"), dtype)
        op_node = contributed(op, given, "y", "", "", "sum", epsilon=1e-5)
        proto = contributed_model([op_node], shapes, ["y", "sum"], kinds=kinds)
        rng = np.random.default_rng(0)
        calls = [arrays(rng, shapes, b, s, dtype) for b, s in CALLS]
        check_calls(proto, calls, 1e-5 if dtype is np.float32 else 1e-2)


def test_single_rows() -> None:
    shapes = {"x": ("b", "s", 24), "skip": ("b", "s", 24), "scale": (24,), "shift": (24,)}
    proto = contributed_model(
        [contributed("SkipLayerNormalization", list(shapes), "y")], shapes, ["y"]
    )
    rng = np.random.default_rng(1)
    check_calls(proto, [arrays(rng, shapes, b, s) for b, s in ENDS], 1e-5, None)


def test_two_steps() -> None:
    shapes = {"x": (2, 5, 24), "skip": (2, 5, 24), "scale": (24,)}
    op = contributed("SkipSimplifiedLayerNormalization", list(shapes), "y", "", "", "sum")
    session = model_of(contributed_model([op], shapes, ["y", "sum"])).compile()
    assert [layer.primitive for layer in session.layers] == ["binary", "layer_normalization"]


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_simplified(domain: str) -> None:
    op = node("SimplifiedLayerNormalization", ["x", "scale"], "y", axis=-1, epsilon=1e-6)
    shapes = {"x": ("b", "s", 24), "scale": (24,)}
    if domain:
        own = contributed("SkipSimplifiedLayerNormalization", ["x", "x", "scale"], "y")
        proto = contributed_model([own], shapes, ["y"])
    else:
        proto = make_model([op], shapes, ["y"])
    rng = np.random.default_rng(2)
    check_calls(proto, [arrays(rng, shapes, b, s) for b, s in CALLS], 1e-5)


@every_pair(segments=[False, True], mask=[False, True], places=[False, True])
def test_embeddings(segments: bool, mask: bool, places: bool) -> None:
    rng = np.random.default_rng(3)
    tables = {"words": (50, 24), "positions": (64, 24), "segment_rows": (2, 24)}
    constants = {name: rng.standard_normal(shape) for name, shape in tables.items()}
    constants |= {"scale": rng.standard_normal(24), "shift": rng.standard_normal(24)}
    names = ["ids", "segments", "words", "positions", "segment_rows", "scale", "shift"]
    names += ["mask", "places"]
    missing = {
        *(() if segments else ("segments", "segment_rows")),
        *(() if mask else ("mask",)),
        *(() if places else ("places",)),
    }
    given = ["" if name in missing else name for name in names]
    op = contributed("EmbedLayerNormalization", given, "y", "count", "sum", epsilon=1e-5)
    inputs = {n: ("b", "s") for n in ("ids", "segments", "mask", "places") if n not in missing}
    kinds = dict.fromkeys((*inputs, "count"), np.int32)
    constants = {name: own for name, own in constants.items() if name not in missing}
    proto = contributed_model([op], inputs, ["y", "count", "sum"], constants, kinds)
    most = {"ids": 50, "segments": 2, "mask": 2, "places": 64}
    calls = [
        {name: rng.integers(0, most[name], (b, s)).astype(np.int32) for name in inputs}
        for b, s in CALLS
    ]
    check_calls(proto, calls, 1e-5)


@every_pair(last=[0, 1], activation=[0, 1], opset=[17, 21])
def test_groups(last: int, activation: int, opset: int) -> None:
    image = ("b", "s", 6, 8) if last else ("b", 8, "s", 6)
    shapes = {"x": image, "scale": (8,), "shift": (8,), "skip": ("b", 8), "bias": (8,)}
    attrs = {"groups": 4, "activation": activation, "channels_last": last, "epsilon": 1e-5}
    op = contributed("SkipGroupNorm", list(shapes), "y", "sum", **attrs)
    plain = contributed("GroupNorm", list(shapes)[:3], "z", **attrs)
    proto = contributed_model([op, plain], shapes, ["y", "sum", "z"])
    proto.opset_import[0].CopyFrom(onnx.helper.make_opsetid("", opset))
    model, rng = model_of(proto), np.random.default_rng(4)
    for b, s in CALLS:
        feeds = arrays(rng, shapes, b, s)
        found = model(feeds)
        assert isinstance(found, dict)
        x = feeds["x"].transpose(0, 3, 1, 2) if last else feeds["x"]
        total = x + (feeds["skip"] + feeds["bias"])[:, :, None, None]
        wanted = {"sum": total, "y": grouped(total, feeds, activation)}
        wanted["z"] = grouped(x, feeds, activation)
        for name, right in wanted.items():
            right = right.transpose(0, 2, 3, 1) if last else right  # noqa: PLW2901
            np.testing.assert_allclose(found[name], right, rtol=1e-5, atol=1e-5, err_msg=name)


def grouped(x: Array, feeds: dict[str, Array], activation: int) -> Array:
    parts = x.astype(np.float64).reshape(len(x), 4, -1)
    mean, variance = parts.mean(-1, keepdims=True), parts.var(-1, keepdims=True)
    found = ((parts - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
    found = found * feeds["scale"][:, None, None] + feeds["shift"][:, None, None]
    result: Array = found / (1 + np.exp(-found)) if activation else found
    return result


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_rows(activation: str) -> None:
    shapes = {"x": ("b", "s", 24), "scale": (8,), "gate": ("b", "s", 24)}
    op = contributed("GatedRMSNorm", list(shapes), "y", activation=activation, epsilon=1e-6)
    model = model_of(contributed_model([op], shapes, ["y"]))
    rng = np.random.default_rng(5)
    for b, s in CALLS:
        feeds = arrays(rng, shapes, b, s)
        parts = feeds["x"].astype(np.float64).reshape(b, s, 3, 8)
        parts = parts / np.sqrt((parts**2).mean(-1, keepdims=True) + 1e-6) * feeds["scale"]
        gate = feeds["gate"].astype(np.float64)
        gate = (gate if activation == "silu" else 1) / (1 + np.exp(-gate))
        wanted = parts.reshape(b, s, 24) * gate
        np.testing.assert_allclose(np.asarray(model(feeds)), wanted, rtol=1e-5, atol=1e-5)


def test_statistics_are_refused() -> None:
    shapes = {"x": (2, 5, 24), "skip": (2, 5, 24), "scale": (24,), "shift": (24,)}
    op = contributed("SkipLayerNormalization", list(shapes), "y", "mean")
    model = model_of(contributed_model([op], shapes, ["y", "mean"]))
    with pytest.raises(dnnl.Unimplemented, match="result 'mean': statistics"):
        model(arrays(np.random.default_rng(0), shapes, 1, 1))
