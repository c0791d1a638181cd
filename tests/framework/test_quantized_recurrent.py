"""DynamicQuantizeLSTM of ONNX Runtime's domain: against it, and against LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError
from tests.framework.contributed import contributed, contributed_model, results
from tests.framework.models import Array, make_model, model_of, node, run_peer
from tests.framework.test_operators import random

STEPS, ROWS, INPUTS, HIDDEN = 5, 3, 10, 19
NAMES = ("x", "w", "r", "b", "lengths", "h", "c", "p", "ws", "wz", "rs", "rz")
CONSTANTS = ("w", "r", "b", "p", "ws", "wz", "rs", "rz")


def sources(
    directions: int, kind: Any = np.int8, *, columns: bool = False, zeros: bool = True
) -> dict[str, Array]:
    """Those of a layer, with weights from -0.5 to 0.5 or so."""
    rng, info = np.random.default_rng(0), np.iinfo(kind)
    state, width = (directions, ROWS, HIDDEN), 4 * HIDDEN
    count = (directions, width) if columns else (directions,)
    middle = (int(info.min) + int(info.max) + 1) // 2
    made: dict[str, Array] = {
        "x": random(STEPS, ROWS, INPUTS),
        "b": random(directions, 2 * width, seed=3),
        "lengths": np.array([STEPS, 1, STEPS - 1], np.int32),
        "h": np.tanh(random(*state, seed=4)),
        "c": random(*state, seed=5),
        "p": random(directions, 3 * HIDDEN, seed=6),
    }
    for name, inputs in (("w", INPUTS), ("r", HIDDEN)):
        shape = (directions, inputs, width)
        made[name] = rng.integers(info.min, info.max + 1, shape).astype(kind)
        made[f"{name}s"] = rng.uniform(0.003, 0.005, count).astype(np.float32)
        spread = 3 if zeros else 0
        made[f"{name}z"] = (middle + rng.integers(-spread, spread + 1, count)).astype(kind)
    return made


def layer(given: dict[str, Array], *absent: str, **attrs: Any) -> tuple[Any, dict[str, Array]]:
    """The model of one layer without some sources, and its feeds."""
    names = ["" if name in absent else name for name in NAMES]
    op = contributed("DynamicQuantizeLSTM", names, "y", "y_h", "y_c", hidden_size=HIDDEN, **attrs)
    feeds = {name: given[name] for name in names if name and name not in CONSTANTS}
    constants = {name: given[name] for name in names if name in CONSTANTS}
    shapes = {name: array.shape for name, array in feeds.items()}
    kinds = {name: array.dtype.type for name, array in feeds.items()}
    outputs = ["y", "y_h", "y_c"]
    return contributed_model([op], shapes, outputs, constants, kinds), feeds


def as_floats(given: dict[str, Array], feeds: dict[str, Array], **attrs: Any) -> Any:
    """The same layer with dequantized weights, as an LSTM."""
    held: dict[str, Array] = {name: given[name] for name in ("b", "p") if name in given}
    for name in ("w", "r"):
        scale, zero = (given[name + letter].astype(np.float32) for letter in "sz")
        wide = (len(scale), 1, -1)
        own = (given[name] - zero.reshape(wide)) * scale.reshape(wide)
        held[name] = own.swapaxes(1, 2).astype(np.float32)
    outputs = ["y", "y_h", "y_c"]
    made = node("LSTM", list(NAMES[:8]), *outputs, hidden_size=HIDDEN, **attrs)
    shapes = {name: array.shape for name, array in feeds.items()}
    kinds = {name: array.dtype for name, array in feeds.items()}
    return make_model([made], shapes, outputs, held, kinds=kinds)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_it_is_an_lstm(kind: Any, columns: bool, direction: str) -> None:
    given = sources(1 + (direction == "bidirectional"), kind, columns=columns)
    proto, feeds = layer(given, direction=direction)
    got = results(model_of(proto), feeds)
    want = run_peer(as_floats(given, feeds, direction=direction), feeds)
    for name, expected in want.items():
        np.testing.assert_allclose(got[name], expected, atol=1e-5)


def test_other_functions() -> None:
    given = sources(1)
    functions = ["HardSigmoid", "Softsign", "Elu"]
    attrs = {"activations": functions, "activation_alpha": [0.3], "clip": 0.4, "input_forget": 1}
    proto, feeds = layer(given, **attrs)
    got, want = results(model_of(proto), feeds), run_peer(as_floats(given, feeds, **attrs), feeds)
    for name, expected in want.items():
        np.testing.assert_allclose(got[name], expected, atol=1e-5)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("absent", [(), ("lengths", "p"), ("h", "c", "lengths", "b", "p")])
def test_it_is_near_what_onnx_runtime_quantizes(absent: tuple[str, ...], kind: Any) -> None:
    given = sources(1, kind, zeros=False)
    proto, feeds = layer(given, *absent)
    got, want = results(model_of(proto), feeds), run_peer(proto, feeds)
    for name, expected in want.items():
        np.testing.assert_allclose(got[name], expected, atol=0.03)


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
@pytest.mark.parametrize("columns", [False, True])
def test_bytes_between_conversions(op: str, columns: bool) -> None:
    """Weights become floats when a model is loaded, and nothing moves or converts them in a run."""
    gates = 4 if op == "LSTM" else 3
    rng, width = np.random.default_rng(0), gates * HIDDEN
    held: dict[str, Array] = {
        "s": np.array(1 / 127, np.float32), "z": np.array(128, np.uint8),
        "bs": np.array(2**-20, np.float32),
        "ws": rng.uniform(0.001, 0.003, width if columns else ()).astype(np.float32),
        "w": rng.integers(-128, 128, (1, width, INPUTS), np.int8),
        "r": rng.integers(-128, 128, (1, width, HIDDEN), np.int8),
        "b": rng.integers(-(2**20), 2**20, (1, 2 * width), np.int32),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "x8"),
        node("DequantizeLinear", ["x8", "s", "z"], "x32"),
        node("DequantizeLinear", ["w", "ws"], "w32", axis=1),
        node("DequantizeLinear", ["r", "ws"], "r32", axis=1),
        node("DequantizeLinear", ["b", "bs"], "b32"),
        node(op, ["x32", "w32", "r32", "b32"], "y", "y_h", hidden_size=HIDDEN),
    ]
    proto = make_model(nodes, {"x": (STEPS, ROWS, INPUTS)}, ["y", "y_h"], held)
    feeds = {"x": np.tanh(random(STEPS, ROWS, INPUTS))}
    model = model_of(proto)
    got, want = results(model, feeds), run_peer(proto, feeds)
    for name, expected in want.items():
        np.testing.assert_allclose(got[name], expected, atol=1e-5)
    assert [own.primitive for own in model.compile().layers] == ["eltwise", "rnn"]


def test_what_is_refused_says_why() -> None:
    given = sources(1)

    def refused(error: type[Exception], rule: str, made: tuple[Any, dict[str, Array]]) -> None:
        proto, feeds = made
        with pytest.raises(error, match=rule):
            results(model_of(proto), feeds)

    sine = ["Sigmoid", "Sine", "Tanh"]
    refused(Unimplemented, "activation 'Sine'; known are", layer(given, activations=sine))
    refused(Unimplemented, "'layout' = 1 is not computed", layer(given, layout=1))
    refused(ModelError, "scales of both weights", layer(given, "rs"))
    narrow = {**given, "ws": np.ones((1, 3), np.float32)}
    refused(ModelError, r"input 8 has shape \(1, 3\), not \(1,\) or \(1, 76\)", layer(narrow))
    wrong = {**given, "w": given["w"][:, :4]}
    refused(ModelError, "input 1 has shape", layer(wrong))
    floats = {**given, "w": given["w"].astype(np.float32), "wz": given["wz"].astype(np.float32)}
    refused(Unimplemented, "weights of float32", layer(floats))
