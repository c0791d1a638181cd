"""Attention with graphs inside, of open sizes, against ONNX's implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import dnnl
from tests.framework.contributed import F16
from tests.framework.models import make_model, model_of, node, plans_of

PREVIEW = "ai.onnx.preview"
SIZES = [(2, 5, 7), (2, 9, 9), (3, 17, 20), (4, 40, 33), (1, 1, 6)]


def graph(name: str, nodes: list[Any], constants: dict[str, Any], kind: int) -> Any:
    """A graph of one input and one output."""
    inside = [helper.make_tensor_value_info("x", kind, ["b", "h", "l", "s"])]
    outside = [helper.make_tensor_value_info("z", kind, ["b", "h", "l", "s"])]
    tensors = [
        helper.make_tensor(key, code, [len(own)] if isinstance(own, list) else [], np.ravel(own))
        for key, (code, own) in constants.items()
    ]
    return helper.make_graph(nodes, name, inside, outside, tensors)


def causal(kind: int) -> Any:
    """Scores of keys behind a row become -inf, by ranges over the sizes."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "two"], ["l"]),
        helper.make_node("Gather", ["shape", "three"], ["s"]),
        helper.make_node("Range", ["zero", "l", "one"], ["rows"]),
        helper.make_node("Range", ["zero", "s", "one"], ["keys"]),
        helper.make_node("Unsqueeze", ["rows", "axis"], ["column"]),
        helper.make_node("LessOrEqual", ["keys", "column"], ["seen"]),
        helper.make_node("Where", ["seen", "x", "low"], ["z"]),
    ]
    integers = {"zero": 0, "one": 1, "two": 2, "three": 3, "axis": [1]}
    constants = {key: (TensorProto.INT64, own) for key, own in integers.items()}
    return graph("score", nodes, {**constants, "low": (kind, -1e4)}, kind)


def scaled(kind: int) -> Any:
    """Probabilities times a number."""
    return graph("prob", [helper.make_node("Mul", ["x", "f"], ["z"])], {"f": (kind, 0.5)}, kind)


def model(heads: int, shared: int, kind: Any = np.float32, **attrs: Any) -> Any:
    inputs: dict[str, Any] = {
        "q": ("b", heads, "l", 8),
        "k": ("b", shared, "s", 8),
        "v": ("b", shared, "s", 6),
    }
    op = node("FlexAttention", ["q", "k", "v"], "y", domain=PREVIEW, **attrs)
    kinds = dict.fromkeys((*inputs, "y"), kind)
    proto = make_model([op], inputs, ["y"], opset=26, kinds=kinds)
    proto.opset_import.append(helper.make_opsetid(PREVIEW, 1))
    return proto


CASES: dict[str, tuple[int, int, Any, dict[str, Any]]] = {
    "plain": (4, 4, np.float32, {}),
    "groups": (6, 2, np.float32, {"scale": 0.3}),
    "changed scores": (6, 2, np.float32, {"score_mod": causal(TensorProto.FLOAT)}),
    "changed probabilities": (4, 4, np.float32, {"prob_mod": scaled(TensorProto.FLOAT)}),
    "both in f16": (
        4,
        2,
        F16,
        {"score_mod": causal(TensorProto.FLOAT), "prob_mod": scaled(TensorProto.FLOAT)},
    ),
    "f64": (4, 2, np.float64, {"score_mod": causal(TensorProto.DOUBLE)}),
    "precision": (4, 4, F16, {"softmax_precision": TensorProto.DOUBLE}),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    heads, shared, kind, attrs = CASES[name]
    proto = model(heads, shared, kind, **attrs)
    own, reference = model_of(proto), ReferenceEvaluator(proto)
    rng, tolerance = np.random.default_rng(0), 5e-3 if kind is F16 else 1e-5
    for place, (b, rows, keys) in enumerate(SIZES):
        if place == 4:
            assert len(plans_of(own).sessions) == 2
        feeds = {
            "q": rng.standard_normal((b, heads, rows, 8)).astype(kind),
            "k": rng.standard_normal((b, shared, keys, 8)).astype(kind),
            "v": rng.standard_normal((b, shared, keys, 6)).astype(kind),
        }
        (wanted,) = reference.run(None, feeds)
        found = np.asarray(own(feeds))
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def test_unknown_operators_inside_are_named() -> None:
    body = graph("score", [helper.make_node("Unheard", ["x"], ["z"])], {}, TensorProto.FLOAT)
    ones = np.ones((1, 2, 3, 8), np.float32)
    with pytest.raises(dnnl.Unimplemented, match="Unheard"):
        model_of(model(2, 2, score_mod=body))({"q": ones, "k": ones, "v": ones[..., :6]})


def test_a_precision_that_is_none_is_refused() -> None:
    ones = np.ones((1, 2, 3, 8), np.float32)
    with pytest.raises(dnnl.Error, match="'softmax_precision' = 7"):
        model_of(model(2, 2, softmax_precision=7))({"q": ones, "k": ones, "v": ones[..., :6]})
