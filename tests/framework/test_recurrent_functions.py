"""Functions, clip and input_forget of LSTM, GRU and RNN, against ONNX Runtime and onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from dnnl import Engine, config
from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError
from dnnl.primitives.rnn import RnnDesc
from tests.framework.models import Array, model_of, run_peer
from tests.framework.test_recurrent import layer, sources
from tests.pairs import every_pair
from tests.primitives.harness import every_isa

USUAL: dict[str, tuple[str, ...]] = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}
PARAMETERS: dict[str, tuple[float, ...]] = {
    "Affine": (0.3, 0.1), "Elu": (0.7,), "HardSigmoid": (0.3, 0.4), "LeakyRelu": (0.2,),
    "Relu": (), "ScaledTanh": (0.8, 0.6), "Sigmoid": (), "Softplus": (), "Softsign": (),
    "Tanh": (), "ThresholdedRelu": (0.4,),
}  # fmt: skip
DEFAULTED = ("Elu", "HardSigmoid", "LeakyRelu")
"""Functions whose defaults ONNX Runtime has, too."""


def named(*functions: str, given: bool = True) -> dict[str, Any]:
    """The attributes of functions, with parameters of the tests where they are ``given``."""
    attrs: dict[str, Any] = {"activations": list(functions)}
    if given:
        parameters = [PARAMETERS[name] for name in functions]
        alphas = [own[0] for own in parameters if own]
        betas = [own[1] for own in parameters if len(own) > 1]
        attrs |= {"activation_alpha": alphas} if alphas else {}
        attrs |= {"activation_beta": betas} if betas else {}
    return attrs


def same(got: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=2e-5, atol=1e-5)


def check(op: str, names: Sequence[str], direction: str = "forward", **attrs: Any) -> None:
    """Weights are small enough that functions without bounds do not diverge."""
    given = sources(op, direction, *names)
    given |= {name: given[name] / 4 for name in ("w", "r", "b") if name in given}
    proto, feeds = layer(op, given, direction=direction, **attrs)
    session = model_of(proto).compile(Engine("cpu"), num_threads=1)
    same(session.run(feeds), run_peer(proto, feeds))


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize(("op", "place"), [(op, n) for op in USUAL for n in range(len(USUAL[op]))])
def test_each_function_in_each_place(op: str, place: int, name: str) -> None:
    functions = [*USUAL[op]]
    functions[place] = name
    check(op, ("b", "h"), **named(*functions))
    if op == "GRU":
        check(op, ("b", "h"), linear_before_reset=1, **named(*functions))


@pytest.mark.parametrize("name", DEFAULTED)
def test_parameters_that_are_left_out(name: str) -> None:
    check("GRU", ("b",), **named(name, "Tanh", given=False))
    few = named("HardSigmoid", name) | {"activation_alpha": [0.4], "activation_beta": [0.3]}
    check("GRU", ("b",), **few)


def test_defaults_of_the_operators() -> None:
    """ONNX Runtime has 0 for these, against the text of the operators."""
    given = sources("RNN", "forward", "b", "h")
    for name, alpha, beta in (("Affine", 1.0, 0.0), ("ThresholdedRelu", 1.0, None)):
        proto, feeds = layer("RNN", given, activations=[name])
        want: dict[str, Any] = {"activations": [name], "activation_alpha": [alpha]}
        want |= {} if beta is None else {"activation_beta": [beta]}
        peer, _ = layer("RNN", given, **want)
        same(model_of(proto)(feeds), run_peer(peer, feeds))


BOTH = {
    "RNN": ("Elu", "ScaledTanh"),
    "GRU": ("HardSigmoid", "Softsign", "Sigmoid", "Affine"),
    "LSTM": ("HardSigmoid", "Tanh", "Softsign", "Affine", "LeakyRelu", "ScaledTanh"),
}


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("op", USUAL)
def test_each_direction_has_its_own(op: str, clip: float | None) -> None:
    names = ("b", "lengths", "h", *(("c", "p") if op == "LSTM" else ()))
    attrs = named(*BOTH[op]) | ({} if clip is None else {"clip": clip})
    check(op, names, "bidirectional", **attrs)


@every_pair(
    direction=["forward", "reverse", "bidirectional"],
    clip=[0.1, 0.8],
    cell=[("RNN", ""), ("GRU", ""), ("GRU", "linear_before_reset"), ("LSTM", ""),
          ("LSTM", "input_forget")],
)  # fmt: skip
def test_clip(direction: str, clip: float, cell: tuple[str, str]) -> None:
    """Sums of gates are clipped; the state of an LSTM, which tanh is of, is not."""
    op, flag = cell
    attrs = {flag: 1} if flag else {}
    names = ("b", "h", *(("c", "p") if op == "LSTM" else ()))
    check(op, names, direction, clip=clip, **attrs)


@pytest.mark.parametrize("names", [(), ("b", "lengths", "h", "c", "p")])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_coupled_gates(direction: str, names: tuple[str, ...]) -> None:
    check("LSTM", names, direction, input_forget=1)


@every_isa
@pytest.mark.parametrize("op", USUAL)
def test_instruction_sets(op: str, isa: str) -> None:
    attrs = named(*BOTH[op]) | {"clip": 0.4}
    with config.override("max_cpu_isa", isa):
        check(op, ("b", "h"), "bidirectional", **attrs)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("op", USUAL)
def test_a_batch_that_comes_first(op: str, threads: int) -> None:
    """ONNX Runtime refuses it; the same layer with the steps first has the same numbers."""
    attrs: dict[str, Any] = {"direction": "bidirectional", "clip": 0.5, **named(*BOTH[op])}
    given = sources(op, "bidirectional", "b", "h")
    proto, feeds = layer(op, given, **attrs)
    want = run_peer(proto, feeds)
    swapped = {name: a.swapaxes(0, 1) if name in "xh" else a for name, a in given.items()}
    proto, feeds = layer(op, swapped, layout=1, **attrs)
    got = model_of(proto).compile(Engine("cpu"), num_threads=threads).run(feeds)
    np.testing.assert_allclose(got["y"], want["y"].transpose(2, 0, 1, 3), atol=2e-5)
    np.testing.assert_allclose(got["y_h"], want["y_h"].swapaxes(0, 1), atol=2e-5)


def test_open_sizes() -> None:
    attrs: dict[str, Any] = {"clip": 0.5, "input_forget": 1, **named("HardSigmoid", "Elu", "Relu")}
    given = sources("LSTM", "forward", "b", "h", "c")
    proto, feeds = layer("LSTM", given, open_=True, **attrs)
    model = model_of(proto)
    for steps in (1, 2, 5):
        own = feeds | {"x": feeds["x"][:steps]}
        same(model(own), run_peer(proto, own))


def test_affine_of_onnx() -> None:
    """The only function besides tanh that the package onnx computes itself."""
    attrs: dict[str, Any] = {
        "activations": ["Affine"],
        "activation_alpha": [0.5],
        "activation_beta": [0.2],
    }
    proto, feeds = layer("RNN", sources("RNN", "forward", "b", "h"), **attrs)
    want = dict(zip(("y", "y_h"), ReferenceEvaluator(proto).run(None, feeds), strict=True))
    same(model_of(proto)(feeds), want)


@pytest.mark.parametrize("op", USUAL)
def test_usual_functions_have_no_record(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their names, in any case, are those of the primitive."""
    made, check_desc = list[RnnDesc](), RnnDesc.check

    def recorded(desc: RnnDesc) -> None:
        made.append(desc)
        check_desc(desc)

    monkeypatch.setattr(RnnDesc, "check", recorded)
    spelled = [name.upper() for name in USUAL[op]]
    cases: list[tuple[dict[str, Any], bool]] = [({"activations": spelled}, True)]
    for attrs, usual in (*cases, ({"clip": 1.0}, False)):
        made.clear()
        proto, feeds = layer(op, sources(op, "forward"), **attrs)
        model_of(proto)(feeds)
        assert made
        assert all((desc.functions is None) == usual for desc in made)


@pytest.mark.parametrize(
    ("op", "attrs", "error", "rule"),
    [
        ("LSTM", {"activations": ["Sigmoid", "Sine", "Tanh"]}, Unimplemented,
         "activation 'Sine'; known are Affine, Elu"),
        ("GRU", {"activations": ["Sigmoid"]}, ModelError, r"\('Sigmoid',\) are not 2 names"),
        ("RNN", {"activations": ["ScaledTanh"]}, ModelError,
         "activation_alpha has none for activation 0, ScaledTanh"),
        ("RNN", {"activations": ["ScaledTanh"], "activation_alpha": [1.0]}, ModelError,
         "activation_beta has none"),
        ("RNN", {"activation_alpha": 1.0}, ModelError, "'activation_alpha' = 1.0 must be numbers"),
        ("RNN", {"activations": "Tanh"}, ModelError, "'activations' = b'Tanh' must be texts"),
        ("RNN", {"clip": 1}, ModelError, "'clip' = 1 must be a number"),
        ("RNN", {"clip": -1.0}, ModelError, "clip = -1 is no threshold"),
        ("LSTM", {"clip": float("nan")}, ModelError, "clip = nan is no threshold"),
        ("GRU", {"clip": float("inf")}, ModelError, "clip = inf is no threshold"),
    ],
)  # fmt: skip
def test_what_is_refused(op: str, attrs: dict[str, Any], error: type[Exception], rule: str) -> None:
    proto, feeds = layer(op, sources(op, "forward"), **attrs)
    with pytest.raises(error, match=rule):
        model_of(proto)(feeds)
