"""Recurrent layers of models whose weights are bytes: DynamicQuantizeLSTM of ONNX Runtime's domain,
and layers behind DequantizeLinear, against ONNX Runtime and against layers of floats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dnnl import Arg, Engine, config, load
from dnnl.errors import Unimplemented
from dnnl.framework.compiler import lower, optimize
from dnnl.graph.graph import ModelError
from dnnl.operators.recurrent_weights import Compressed
from dnnl.passes import recurrent
from dnnl.passes.recurrent import weights_as_floats
from dnnl.passes.specialize import specialize
from dnnl.primitives.primitive_desc import select_isa
from dnnl.primitives.rnn_plans import multiplies_byte_pairs
from tests import processor
from tests.framework.contributed import contributed, contributed_model, results
from tests.framework.models import Array, make_model, model_of, node, run_peer
from tests.framework.test_operators import random
from tests.pairs import every_pair

STEPS, ROWS, INPUTS, HIDDEN = 5, 3, 10, 19
NAMES = ("x", "w", "r", "b", "lengths", "h", "c", "p", "ws", "wz", "rs", "rz")
CONSTANTS = ("w", "r", "b", "p", "ws", "wz", "rs", "rz")


@dataclass(frozen=True)
class Stored:
    """As what a layer reads small weights, and how near its results are to those of floats."""

    kind: str
    near: float


WITHOUT_PAIRS = "avx512_core"
FLOATS, PAIRS = 1e-5, 5e-4
"""How near results are to those of floats: by pairs of bytes states are rounded to 2^-16, and steps
of these layers multiply what differs by 2 or 3."""
_STORED = {
    "pairs": (processor.ISAS[-1], recurrent.CACHED),
    "bytes": (WITHOUT_PAIRS, -1),
    "floats": (WITHOUT_PAIRS, recurrent.CACHED),
}


@pytest.fixture(params=_STORED)
def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stored]:
    """Weights that a layer multiplies by pairs of bytes, those that it converts, and floats."""
    isa, cached = _STORED[request.param]
    monkeypatch.setattr(recurrent, "CACHED", cached)
    with config.override("max_cpu_isa", isa):
        if multiplies_byte_pairs(select_isa(Engine("cpu"))):
            yield Stored("s8", PAIRS)
        else:
            yield Stored("s8" if cached < 0 else "f32", FLOATS)


def types_of_weights(proto: Any) -> list[tuple[str, str]]:
    """Those of W and R of each layer of a model."""
    graph, engine = optimize(specialize(model_of(proto).graph)), Engine("cpu")
    in_pairs = multiplies_byte_pairs(select_isa(engine))
    steps = lower(weights_as_floats(graph, in_pairs=in_pairs), engine).steps
    found = [step.args for step in steps if step.kind == "rnn"]
    places = (Arg.WEIGHTS_LAYER, Arg.WEIGHTS_ITER)
    return [(str(args[a].desc.data_type), str(args[b].desc.data_type)) for args in found
            for a, b in (places,)]  # fmt: skip


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


@every_pair(
    direction=["forward", "reverse", "bidirectional"],
    columns=[False, True],
    kind=[np.int8, np.uint8],
)
def test_it_is_an_lstm(kind: Any, columns: bool, direction: str, stored: Stored) -> None:
    given = sources(1 + (direction == "bidirectional"), kind, columns=columns)
    proto, feeds = layer(given, direction=direction)
    assert types_of_weights(proto) == [(stored.kind, stored.kind)]
    got = results(model_of(proto), feeds)
    want = run_peer(as_floats(given, feeds, direction=direction), feeds)
    for name, expected in want.items():
        np.testing.assert_allclose(got[name], expected, atol=stored.near)


@pytest.mark.usefixtures("stored")
def test_other_functions() -> None:
    """States have no bound, so that layers convert what they do not have as floats."""
    given = sources(1)
    functions = ["HardSigmoid", "Softsign", "Elu"]
    attrs = {"activations": functions, "activation_alpha": [0.3], "clip": 0.4, "input_forget": 1}
    proto, feeds = layer(given, **attrs)
    got, want = results(model_of(proto), feeds), run_peer(as_floats(given, feeds, **attrs), feeds)
    kind = "f32" if recurrent.CACHED > 0 else "s8"
    assert types_of_weights(proto) == [(kind, kind)]
    for name, expected in want.items():
        np.testing.assert_allclose(got[name], expected, atol=FLOATS)


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("absent", [(), ("lengths", "p"), ("h", "c", "lengths", "b", "p")])
def test_it_is_near_what_onnx_runtime_quantizes(absent: tuple[str, ...], kind: Any) -> None:
    given = sources(1, kind, zeros=False)
    proto, feeds = layer(given, *absent)
    got, want = results(model_of(proto), feeds), run_peer(proto, feeds)
    for name, expected in want.items():
        np.testing.assert_allclose(got[name], expected, atol=0.03)


def quantized_layer(
    op: str, held: dict[str, Array], axis: int = 1, *, steps: Any = STEPS, rows: Any = ROWS,
    **attrs: Any,
) -> Any:  # fmt: skip
    """The model of a layer between conversions, as ONNX Runtime's quantizer writes them, whose
    weights are ``held``."""
    given = {
        "s": np.array(1 / 127, np.float32), "z": np.array(128, np.uint8),
        "bs": np.array(2**-20, np.float32), **held,
    }  # fmt: skip
    directions, width, inputs = held["w"].shape
    rng = np.random.default_rng(1)
    given["b"] = rng.integers(-(2**20), 2**20, (directions, 2 * width), np.int32)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "x8"),
        node("DequantizeLinear", ["x8", "s", "z"], "x32"),
        node("DequantizeLinear", ["b", "bs"], "b32"),
        *(
            node("DequantizeLinear", [n, f"{n}s", *[f"{n}z"] * (f"{n}z" in held)], f"{n}32",
                 axis=axis)
            for n in "wr"
        ),
        node(op, ["x32", "w32", "r32", "b32"], "y", "y_h", hidden_size=held["r"].shape[2], **attrs),
    ]  # fmt: skip
    return make_model(nodes, {"x": (steps, rows, inputs)}, ["y", "y_h"], given)


def quantized_weights(
    op: str, directions: int, shape: tuple[int, ...], kind: Any = np.int8, hidden: int = HIDDEN
) -> dict[str, Array]:
    """Weights with scales and zero points of a shape, by direction and column."""
    rng, width = np.random.default_rng(0), {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * hidden
    info, made = np.iinfo(kind), dict[str, Array]()
    middle = (int(info.min) + int(info.max) + 1) // 2
    for name, inputs in (("w", INPUTS), ("r", hidden)):
        size = (directions, width, inputs)
        made[name] = rng.integers(info.min, info.max + 1, size).astype(kind)
        spread = 0.06 / hidden**0.5
        made[f"{name}s"] = rng.uniform(spread / 3, spread, shape).astype(np.float32)
        made[f"{name}z"] = (middle + rng.integers(-5, 6, shape)).astype(kind)
    return made


def check_quantized(
    proto: Any, steps: int = STEPS, rows: int = ROWS, *, near: float = FLOATS
) -> None:
    """Results are those of the conversions and of a layer of floats."""
    feeds = {"x": np.tanh(random(steps, rows, INPUTS))}
    got, want = results(model_of(proto), feeds), run_peer(proto, feeds)
    for name, expected in want.items():
        np.testing.assert_allclose(got[name], expected, atol=near)


@every_pair(op=["LSTM", "GRU", "RNN"], columns=[False, True], kind=[np.int8, np.uint8])
def test_bytes_between_conversions(op: str, columns: bool, kind: Any, stored: Stored) -> None:
    """Nothing moves or converts weights in a run."""
    width = {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * HIDDEN
    held = quantized_weights(op, 1, (width,) if columns else (), kind)
    proto = quantized_layer(op, held)
    check_quantized(proto, near=stored.near)
    assert types_of_weights(proto) == [(stored.kind, stored.kind)]
    assert [own.primitive for own in model_of(proto).compile().layers] == ["eltwise", "rnn"]


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_parameters_of_directions(op: str, direction: str, stored: Stored) -> None:
    directions = 1 + (direction == "bidirectional")
    attrs = {"linear_before_reset": 1} if op == "GRU" else {}
    proto = quantized_layer(
        op, quantized_weights(op, directions, (directions,)), 0, direction=direction, **attrs
    )
    check_quantized(proto, near=stored.near)
    assert types_of_weights(proto) == [(stored.kind, stored.kind)]


def test_scales_along_inputs_make_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then weights of states are converted, on any processor."""
    monkeypatch.setattr(recurrent, "CACHED", -1)
    held = quantized_weights("LSTM", 1, ())
    held |= {"ws": np.linspace(0.001, 0.003, INPUTS, dtype=np.float32),
             "wz": np.zeros(INPUTS, np.int8)}  # fmt: skip
    proto = quantized_layer("LSTM", held, 2)
    check_quantized(proto)
    assert types_of_weights(proto) == [("f32", "s8")]


def test_zero_points_that_no_byte_needs_are_gone() -> None:
    """What u8 with a zero point of 128 stand for has none as s8, which is a step less for each."""
    rng, scale = np.random.default_rng(0), np.full((1, 1, 1), 0.5)
    codes = rng.integers(0, 256, (1, 8, 5)).astype(np.uint8)
    for zero, codes_are_shifted in ((128, True), (100, False)):
        own = Compressed(codes, scale, np.full((1, 1, 1), float(zero)))
        integers, left = own.signed()
        assert bool(left.any()) is not codes_are_shifted
        assert integers.dtype == np.int8
        np.testing.assert_array_equal((integers - left) * scale, (codes - float(zero)) * scale)
    few = Compressed(codes % 100, scale, np.full((1, 1, 1), 50.0))
    assert not few.signed()[1].any()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("hidden", [250, 264])
def test_large_weights_stay_bytes(hidden: int, threads: int) -> None:
    """The floats of 264 units take more than what stays in caches."""
    held = quantized_weights("LSTM", 1, (4 * hidden,), hidden=hidden)
    proto = quantized_layer("LSTM", held)
    feeds = {"x": np.tanh(random(STEPS, ROWS, INPUTS))}
    with config.override("max_cpu_isa", WITHOUT_PAIRS):
        got = model_of(proto).compile(num_threads=threads).run(feeds)
        assert types_of_weights(proto) == [("f32", "s8" if hidden > 256 else "f32")]
    for name, expected in run_peer(proto, feeds).items():
        np.testing.assert_allclose(got[name], expected, atol=FLOATS)


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_open_steps_and_rows(op: str, stored: Stored) -> None:
    """One plan serves them from 2 on."""
    proto = quantized_layer(op, quantized_weights(op, 1, ()), steps="t", rows="n")
    model = model_of(proto)
    for steps, rows in ((4, 3), (2, 9), (7, 2), (1, 1)):
        feeds = {"x": np.tanh(random(steps, rows, INPUTS))}
        got, want = results(model, feeds), run_peer(proto, feeds)
        for name, expected in want.items():
            np.testing.assert_allclose(got[name], expected, atol=stored.near)


def test_layers_above_each_other(stored: Stored) -> None:
    held = {f"{name}{n}": own for n in "01" for name, own in quantized_weights(
        "LSTM", 1, (4 * HIDDEN,)).items()}  # fmt: skip
    held["w1"] = held["r1"]
    nodes, below = [], "x"
    for n in "01":
        nodes += [
            node("DequantizeLinear", [f"w{n}", f"ws{n}", f"wz{n}"], f"w{n}f", axis=1),
            node("DequantizeLinear", [f"r{n}", f"rs{n}", f"rz{n}"], f"r{n}f", axis=1),
            node("LSTM", [below, f"w{n}f", f"r{n}f"], f"y{n}", hidden_size=HIDDEN),
            node("Squeeze", [f"y{n}", "one"], f"x{n}"),
        ]
        below = f"x{n}"
    held["one"] = np.array([1])
    proto = make_model(nodes, {"x": (STEPS, ROWS, INPUTS)}, ["x1"], held)
    feeds = {"x": np.tanh(random(STEPS, ROWS, INPUTS))}
    got, want = results(model_of(proto), feeds), run_peer(proto, feeds)
    np.testing.assert_allclose(got["x1"], want["x1"], atol=stored.near)


def test_bytes_are_saved(tmp_path: Path) -> None:
    hidden = 264
    proto = quantized_layer("LSTM", quantized_weights("LSTM", 1, (4 * hidden,), hidden=hidden))
    model, feeds = model_of(proto), {"x": np.tanh(random(STEPS, ROWS, INPUTS))}
    want, path = results(model, feeds), tmp_path / "layer.dnnl"
    model.save(path, shapes=[{"x": (STEPS, ROWS, INPUTS)}])
    got = results(load(path, compile=False), feeds)
    for name, expected in want.items():
        np.testing.assert_array_equal(got[name], expected)


def test_plans_for_weaker_processors_have_their_own_weights(tmp_path: Path) -> None:
    """Floats, though this processor may multiply bytes."""
    model = model_of(quantized_layer("GRU", quantized_weights("GRU", 1, ())))
    feeds, path = {"x": np.tanh(random(STEPS, ROWS, INPUTS))}, tmp_path / "layer.dnnl"
    model.save(path, shapes=[{"x": (STEPS, ROWS, INPUTS)}], isa=WITHOUT_PAIRS)
    got = results(load(path, compile=False), feeds)
    with config.override("max_cpu_isa", WITHOUT_PAIRS):
        want = results(model, feeds)
    for name, expected in want.items():
        np.testing.assert_array_equal(got[name], expected)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_precisions(precision: str, stored: Stored) -> None:
    proto = quantized_layer("GRU", quantized_weights("GRU", 1, (3 * HIDDEN,)))
    feeds = {"x": np.tanh(random(STEPS, ROWS, INPUTS))}
    got = model_of(proto).compile(precision=precision).run(feeds)
    for name, expected in run_peer(proto, feeds).items():
        near = stored.near if precision == "f32" else 0.01
        np.testing.assert_allclose(got[name], expected, atol=near)
    assert types_of_weights(proto) == [(stored.kind, stored.kind)]


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
    mixed = {**given, "rz": given["rz"].astype(np.uint8)}
    refused(ModelError, "input 11 is a zero point of uint8; the integers are int8", layer(mixed))
    infinite = {**given, "ws": np.full(1, np.inf, np.float32)}
    refused(ModelError, "input 8 has a scale of inf", layer(infinite))
