"""LSTM, GRU and RNN against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dnnl.graph.graph import ModelError
from dnnl.lowering.graphs import LAYOUTS
from tests.framework.models import Array, assert_same, make_model, model_of, node, run_peer
from tests.framework.test_operators import agree, random
from tests.pairs import every_pair

STEPS, ROWS, INPUTS, HIDDEN = 5, 3, 10, 19
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = ("forward", "reverse", "bidirectional")
SOURCES = ("x", "w", "r", "b", "lengths", "h", "c", "p")
WEIGHTS = ("w", "r", "b", "p")


def sources(op: str, direction: str, *names: str, steps: int = STEPS) -> dict[str, Array]:
    """Those of a layer that are named besides x, w and r."""
    directions, gates = 1 + (direction == "bidirectional"), GATES[op]
    state = (directions, ROWS, HIDDEN)
    made = {
        "x": random(steps, ROWS, INPUTS),
        "w": random(directions, gates * HIDDEN, INPUTS, seed=1) / 4,
        "r": random(directions, gates * HIDDEN, HIDDEN, seed=2) / 4,
        "b": random(directions, 2 * gates * HIDDEN, seed=3),
        "lengths": np.array([steps, 1, max(1, steps - 1)], np.int32),
        "h": random(*state, seed=4),
        "c": random(*state, seed=5),
        "p": random(directions, 3 * HIDDEN, seed=6),
    }
    return {name: made[name] for name in ("x", "w", "r", *names)}


def layer(
    op: str, given: dict[str, Array], *, constant: bool = True, open_: bool = False, **attrs: Any
) -> tuple[Any, dict[str, Array]]:
    """The model of one layer, and its feeds; weights are ``constant`` or given too."""
    inputs = [name if name in given else "" for name in SOURCES[: 8 if op == "LSTM" else 6]]
    while not inputs[-1]:
        inputs.pop()
    outputs = ["y", "y_h", *(["y_c"] if op == "LSTM" else [])]
    held = {name: given[name] for name in WEIGHTS if name in given and constant}
    feeds = {name: array for name, array in given.items() if name not in held}
    shapes: dict[str, Sequence[int | str]] = {name: a.shape for name, a in feeds.items()}
    if open_:
        rows: dict[str, Sequence[int | str]] = {
            "x": ["t", "n", INPUTS],
            "h": ["d", "n", HIDDEN],
            "c": ["d", "n", HIDDEN],
        }
        shapes |= {name: rows[name] for name in rows if name in feeds}
    made = node(op, inputs, *outputs, hidden_size=HIDDEN, **attrs)
    kinds = {name: array.dtype for name, array in feeds.items()}
    return make_model([made], shapes, outputs, held, kinds=kinds), feeds


@every_pair(
    pytest.mark.parametrize("direction", DIRECTIONS),
    pytest.mark.parametrize(
        ("op", "names", "attrs"),
        [
            ("LSTM", (), {}),
            ("LSTM", ("b", "h", "c", "p"), {}),
            ("LSTM", ("b", "lengths", "h"), {}),
            ("GRU", ("b", "h"), {}),
            ("GRU", ("b", "lengths"), {"linear_before_reset": 1}),
            ("GRU", (), {"linear_before_reset": 1}),
            ("RNN", ("b", "lengths", "h"), {}),
            ("RNN", ("h",), {"activations": ["Relu"]}),
            ("RNN", ("b",), {"activations": ["Sigmoid"]}),
        ],
    ),
    pytest.mark.parametrize("constant", [True, False], ids=["constant", "given"]),
)
def test_layers(
    op: str, names: tuple[str, ...], attrs: dict[str, Any], direction: str, constant: bool
) -> None:
    if "activations" in attrs and direction == "bidirectional":
        attrs = {"activations": attrs["activations"] * 2}
    given = sources(op, direction, *names)
    proto, feeds = layer(op, given, constant=constant, direction=direction, **attrs)
    agree(proto, "propagate", feeds=feeds)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layers_one_behind_the_other(layout: str) -> None:
    """As PyTorch exports them: Y [T, D, N, H] becomes the source [T, N, D H] of the next layer."""
    both = sources("LSTM", "bidirectional", "b")
    held = {name: both[name] for name in ("w", "r", "b")}
    held |= {"w2": random(1, 3 * HIDDEN, 2 * HIDDEN, seed=8) / 4, "shape": np.array([0, 0, -1])}
    held["r2"] = random(1, 3 * HIDDEN, HIDDEN, seed=9) / 4
    nodes = [
        node("LSTM", ["x", "w", "r", "b"], "y", hidden_size=HIDDEN, direction="bidirectional"),
        node("Transpose", ["y"], "t", perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "shape"], "s"),
        node("GRU", ["s", "w2", "r2"], "z", "z_h", hidden_size=HIDDEN),
        node("Relu", ["z_h"], "last"),
    ]
    proto = make_model(nodes, {"x": both["x"].shape}, ["z", "last"], held)
    agree(proto, layout, feeds={"x": both["x"]})


@pytest.mark.parametrize("op", GATES)
def test_a_batch_that_comes_first(op: str) -> None:
    """ONNX Runtime refuses it; the same layer with the steps first has the same numbers."""
    names = ("b", "h", "c") if op == "LSTM" else ("b", "h")
    given = sources(op, "bidirectional", *names)
    attrs: dict[str, Any] = {"direction": "bidirectional"}
    proto, feeds = layer(op, given, **attrs)
    want = model_of(proto)(feeds)
    swapped = {name: a.swapaxes(0, 1) if name in "xhc" else a for name, a in given.items()}
    proto, feeds = layer(op, swapped, layout=1, **attrs)
    got = model_of(proto)(feeds)
    np.testing.assert_allclose(got["y"], want["y"].transpose(2, 0, 1, 3), atol=1e-6)
    for name in ("y_h", "y_c")[: 1 + (op == "LSTM")]:
        np.testing.assert_allclose(got[name], want[name].swapaxes(0, 1), atol=1e-6)


def test_states_that_go_from_call_to_call() -> None:
    """Open sizes, one step at a time, give what all steps together do."""
    given = sources("LSTM", "forward", "b", "h", "c", steps=6)
    proto, feeds = layer("LSTM", given, open_=True)
    model = model_of(proto)
    whole = model(feeds)
    assert_same(whole, run_peer(proto, feeds), 2e-5)
    state = {"h": feeds["h"], "c": feeds["c"]}
    for step in range(6):
        got = model({"x": feeds["x"][step : step + 1], **state})
        np.testing.assert_allclose(got["y"], whole["y"][step : step + 1], atol=1e-6)
        state = {"h": got["y_h"], "c": got["y_c"]}
    np.testing.assert_allclose(state["c"], whole["y_c"], atol=1e-6)


@pytest.mark.parametrize("op", GATES)
def test_no_kernel_for_new_sizes(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of steps and rows from 2 on, behind the first call with other sizes."""
    names = ("b", "h", "c") if op == "LSTM" else ("b", "h")
    given = sources(op, "reverse", *names)
    proto, feeds = layer(op, given, open_=True, direction="reverse")
    model = model_of(proto)
    for number in range(22):
        steps, rows = 2 + number * 7 % 13, 2 + number * 5 % 17
        feeds["x"] = random(steps, rows, INPUTS, seed=number)
        feeds |= {name: random(1, rows, HIDDEN, seed=number) for name in names if name in "hc"}
        got = model(feeds)
        for name, want in run_peer(proto, feeds).items():
            np.testing.assert_allclose(got[name], want, atol=1e-5)
        if number == 1:
            monkeypatch.setattr("dnnl.codegen.compile.jit.image", _refuse)


def _refuse(_: object) -> None:
    raise AssertionError("a kernel is made")


def test_only_last_states() -> None:
    given = sources("GRU", "forward", "b")
    proto, feeds = layer("GRU", given)
    want = run_peer(proto, feeds)
    held = {name: given[name] for name in ("w", "r", "b")}
    last = node("GRU", ["x", "w", "r", "b"], "", "y_h", hidden_size=HIDDEN)
    proto = make_model([last], {"x": given["x"].shape}, ["y_h"], held)
    np.testing.assert_allclose(model_of(proto)(feeds), want["y_h"], atol=2e-5)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("x", (2, 3)), ("w", (1, 76, 11)), ("r", (2, 76, 19)), ("b", (1, 76)), ("h", (1, 4, 19))],
)
def test_sources_that_do_not_fit(name: str, shape: tuple[int, ...]) -> None:
    given = sources("LSTM", "forward", "b", "h")
    given[name] = random(*shape)
    proto, feeds = layer("LSTM", given)
    with pytest.raises(ModelError, match=r"shape|channels"):
        model_of(proto)(feeds)
