"""Regions of elementwise nodes, views and factors: how many steps are left of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.framework.session import Session
from dnnl.lowering.graphs import LAYOUTS
from dnnl.runtime.engine import Engine
from tests.framework.models import assert_same, feeds_for, make_model, model_of, node, run_peer
from tests.pairs import every_pair

ROWS, WIDTH = 6, 24


def random(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(proto: Any, layout: str = "propagate") -> Session:
    """The session of a model, whose outputs are those of ONNX Runtime."""
    model = model_of(proto)
    session = model.compile(Engine("cpu"), layout=layout, num_threads=1)
    feeds = feeds_for(model.graph)
    for _ in range(2):
        assert_same(session.run(feeds), run_peer(proto, feeds), 1e-4)
    return session


def kinds(session: Session) -> list[str]:
    return [layer.primitive for layer in session.layers]


def gelu(source: str, result: str, name: str = "") -> list[Any]:
    """As exporters write it; ``name`` tells one from another."""
    d, e, s, m = (f"{name}{letter}" for letter in "desm")
    return [
        node("Div", [source, "root"], d),
        node("Erf", [d], e),
        node("Add", [e, "one"], s),
        node("Mul", [source, s], m),
        node("Mul", [m, "half"], result),
    ]


NUMBERS = {"root": np.sqrt(2.0), "one": 1.0, "half": 0.5}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_function_of_a_product_is_a_post_op(layout: str) -> None:
    nodes = [node("MatMul", ["x", "w"], "p"), *gelu("p", "y")]
    constants = {"w": random(WIDTH, 40), **NUMBERS}
    assert kinds(run(make_model(nodes, {"x": (ROWS, WIDTH)}, ["y"], constants), layout)) == [
        "matmul"
    ]


def test_a_part_that_others_read_stays() -> None:
    """What lies between is computed once, and what comes of it is a function of that."""
    nodes = [*gelu("x", "y"), node("Neg", ["e"], "z")]
    session = run(make_model(nodes, {"x": (ROWS, WIDTH)}, ["y", "z"], NUMBERS))
    assert sorted(kinds(session)) == ["binary", "eltwise", "eltwise"]


def test_a_part_that_is_a_result_stays() -> None:
    nodes = [node("Sigmoid", ["x"], "s"), node("Mul", ["x", "s"], "y")]
    assert len(kinds(run(make_model(nodes, {"x": (ROWS, WIDTH)}, ["y", "s"])))) == 2
    assert kinds(run(make_model(nodes, {"x": (ROWS, WIDTH)}, ["y"]))) == ["eltwise"]


def test_truth_values_within() -> None:
    nodes = [
        node("Greater", ["x", "half"], "g"),
        node("Less", ["x", "one"], "l"),
        node("And", ["g", "l"], "a"),
        node("Not", ["a"], "n"),
        node("Exp", ["x"], "e"),
        node("Where", ["n", "e", "x"], "y"),
    ]
    assert kinds(run(make_model(nodes, {"x": (ROWS, WIDTH)}, ["y"], NUMBERS))) == ["eltwise"]


def test_truth_values_that_are_constants() -> None:
    nodes = [
        node("Greater", ["x", "half"], "g"),
        node("And", ["g", "yes"], "a"),
        node("Where", ["a", "x", "one"], "w"),
        node("Where", ["no", "one", "w"], "y"),
    ]
    constants = {**NUMBERS, "yes": np.array([True]), "no": np.array(False)}
    assert kinds(run(make_model(nodes, {"x": (ROWS, WIDTH)}, ["y"], constants))) == ["eltwise"]


def test_truth_values_that_others_read_are_computed() -> None:
    nodes = [node("Greater", ["x", "half"], "g"), node("Where", ["g", "x", "one"], "y")]
    proto = make_model(nodes, {"x": (ROWS, WIDTH)}, ["y", "g"], NUMBERS, kinds={"g": np.bool_})
    assert kinds(run(proto)) == ["exact", "exact"]


GATES = [node("Sigmoid", ["x"], "s"), node("Tanh", ["z"], "t"), node("Mul", ["s", "t"], "y")]
SHAPE = (2, 16, 5, 3)
JOINED: dict[str, tuple[list[Any], dict[str, Any], list[str]]] = {
    "gates": (GATES, {}, ["eltwise"]),
    "what a chain of post-ops does": (
        [node("Sigmoid", ["x"], "s"), node("Mul", ["s", "z"], "y")], {}, ["eltwise"],
    ),
    "constants of many elements": (
        [
            node("Mul", ["x", "a"], "p"), node("Mul", ["z", "b"], "q"),
            node("Add", ["p", "q"], "r"), node("Relu", ["r"], "y"),
        ],
        {"a": random(5, 3), "b": random(16, 1, 1, seed=2)}, ["eltwise"],
    ),
    "functions": ([*gelu("x", "g"), *gelu("z", "h", "other"), node("Mul", ["g", "h"], "y")],
        NUMBERS, ["eltwise"]),
    "truth values": (
        [
            node("Greater", ["x", "z"], "g"), node("Exp", ["x"], "e"), node("Abs", ["z"], "a"),
            node("Where", ["g", "e", "a"], "y"),
        ],
        {}, ["eltwise"],
    ),
    "truth values that others read": (
        [
            node("Greater", ["x", "z"], "g"), node("Where", ["g", "x", "z"], "w"),
            node("Cast", ["g"], "f", to=1), node("Mul", ["f", "w"], "y"),
        ],
        {}, ["exact", "exact", "exact", "binary"],
    ),
    "parts of a product": (
        [
            node("Conv", ["x", "w"], "c"), node("Add", ["c", "z"], "a"),
            node("Sigmoid", ["a"], "s"), node("Mul", ["s", "c"], "y"),
        ],
        {"w": random(16, 16, 1, 1)}, ["convolution"],
    ),
    "products with gates of their own": (
        [
            node("Conv", ["x", "w"], "c"), node("Conv", ["z", "w"], "d"),
            node("Sigmoid", ["c"], "s"), node("Tanh", ["d"], "t"), node("Mul", ["s", "t"], "y"),
        ],
        {"w": random(16, 16, 1, 1)}, ["convolution", "convolution"],
    ),
    "a product that others read": (
        [
            node("Conv", ["x", "w"], "c"), node("Conv", ["z", "w"], "d"),
            node("Sigmoid", ["c"], "s"), node("Tanh", ["d"], "t"), node("Mul", ["s", "t"], "m"),
            node("Concat", ["c", "m"], "y", axis=1),
        ],
        {"w": random(16, 16, 1, 1)}, ["convolution", "convolution", "concat"],
    ),
    "a power by a product": (
        [
            node("Exp", ["z"], "b"),
            node("Conv", ["x", "w"], "c"), node("Pow", ["b", "c"], "y"),
        ],
        {"w": random(16, 16, 1, 1) / 4}, ["convolution"],
    ),
    "parts that others read": (
        [*GATES[:2], node("Mul", ["s", "t"], "m"), node("Neg", ["s"], "n"),
            node("Concat", ["m", "n"], "y", axis=1)],
        {}, ["eltwise", "eltwise", "eltwise", "concat"],
    ),
    "parts that are smaller": (
        [node("ReduceMax", ["z"], "m", axes=[2]), node("Tanh", ["m"], "t"), node("Sin", ["x"], "s"),
            node("Mul", ["s", "t"], "y")],
        {}, ["reduction", "eltwise"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", JOINED)
def test_functions_of_several_values(case: str, layout: str) -> None:
    nodes, constants, wanted = JOINED[case]
    proto = make_model(nodes, {"x": SHAPE, "z": SHAPE}, ["y"], constants)
    found = kinds(run(proto, layout))
    assert [kind for kind in found if kind != "reorder"] == wanted


@pytest.mark.parametrize("layout", LAYOUTS)
def test_signs(layout: str) -> None:
    x = random(3, 40)
    x.flat[:5] = np.inf, -np.inf, 0.0, -0.0, 1e-45
    proto = make_model([node("Sign", ["x"], "y")], {"x": x.shape}, ["y"])
    session = model_of(proto).compile(Engine("cpu"), layout=layout)
    assert kinds(session) == ["eltwise"]
    np.testing.assert_array_equal(session.run({"x": x})["y"], np.sign(x))
    x[:] = np.nan
    assert np.isnan(session.run({"x": x})["y"]).all()


POWERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], type]] = {
    "one of each": ((3, 5, 7), (3, 5, 7), np.float32),
    "one of a row": ((3, 5, 7), (5, 1), np.float32),
    "a smaller base": ((7,), (3, 5, 7), np.float32),
    "both are smaller": ((3, 1, 7), (5, 1), np.float32),
    "integers": ((3, 5, 7), (1, 7), np.int64),
    "an integer with more dimensions": ((5,), (1, 1), np.int32),
}


@every_pair(layout=LAYOUTS, case=POWERS, known=[False, True])
def test_powers(known: bool, case: str, layout: str) -> None:
    """Of both signs, as a step and behind another one."""
    base, exponents, kind = POWERS[case]
    exponent: Any = np.random.default_rng(2).integers(-3, 5, exponents).astype(kind)
    x = random(*base)
    constants, feeds = ({"e": exponent}, {"x": x}) if known else ({}, {"x": x, "e": exponent})
    nodes = [node("Pow", ["x", "e"], "p"), node("Neg", ["x"], "n"), node("Pow", ["n", "e"], "q")]
    inputs = {name: array.shape for name, array in feeds.items()}
    proto = make_model(nodes, inputs, ["p", "q"], constants, kinds={"e": kind})
    session = model_of(proto).compile(Engine("cpu"), layout=layout, num_threads=1)
    assert_same(session.run(feeds), run_peer(proto, feeds), 1e-5)


@pytest.mark.parametrize("count", [16, 17])
def test_as_many_values_as_there_is_room_for(count: int) -> None:
    """A sum of as many sines as an entry has operands, and one more."""
    names = [f"x{place}" for place in range(count)]
    nodes = [node("Sin", [name], f"s{name}") for name in names]
    for place in range(1, count):
        before = f"a{place - 1}" if place > 1 else "sx0"
        nodes.append(node("Add", [before, f"sx{place}"], f"a{place}"))
    proto = make_model(nodes, dict.fromkeys(names, (3, 40)), [f"a{count - 1}"])
    assert len(run(proto).layers) == (1 if count == 16 else 2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_go_behind_what_follows(layout: str) -> None:
    """A residual connection around a product of rows, which exporters reshape."""
    nodes = [
        node("Reshape", ["x", "flat"], "f"),
        node("Gemm", ["f", "w", "b"], "g"),
        node("Reshape", ["g", "back"], "r"),
        node("Transpose", ["r"], "t", perm=[1, 0, 2]),
        node("Transpose", ["x"], "u", perm=[1, 0, 2]),
        node("Add", ["t", "u"], "a"),
        node("Relu", ["a"], "y"),
    ]
    constants = {
        "flat": np.array([-1, WIDTH]),
        "back": np.array([2, ROWS, WIDTH]),
        "w": random(WIDTH, WIDTH),
        "b": random(WIDTH),
    }
    session = run(make_model(nodes, {"x": (2, ROWS, WIDTH)}, ["y"], constants), layout)
    assert kinds(session) == ["inner_product", "reorder"]  # the output is row-major


@pytest.mark.parametrize("layout", LAYOUTS)
def test_attention(layout: str) -> None:
    """Products, one step between them, and nothing that moves data."""
    heads = np.array([2, ROWS, 3, WIDTH // 3])
    nodes: list[Any] = []
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            node("MatMul", ["x", f"w{name}"], f"{name}0"),
            node("Add", [f"{name}0", f"b{name}"], f"{name}1"),
            node("Reshape", [f"{name}1", "heads"], f"{name}2"),
            node("Transpose", [f"{name}2"], name, perm=perm),
        ]
    nodes += [
        node("Mul", ["q", "scale"], "qs"),
        node("Mul", ["k", "scale"], "ks"),
        node("MatMul", ["qs", "ks"], "s"),
        node("Add", ["s", "mask"], "m"),
        node("Softmax", ["m"], "p", axis=-1),
        node("IsNaN", ["p"], "n"),
        node("Where", ["n", "zero", "p"], "c"),
        node("MatMul", ["c", "v"], "o"),
        node("Transpose", ["o"], "t", perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "rows"], "r"),
        node("MatMul", ["r", "wo"], "y0"),
        node("Add", ["x", "y0"], "y"),
    ]
    constants = {
        "heads": heads,
        "rows": np.array([2, ROWS, WIDTH]),
        "scale": 0.6,
        "zero": 0.0,
        "mask": np.where(np.tri(ROWS), 0.0, -np.inf),
        **{f"w{name}": random(WIDTH, WIDTH, seed=ord(name)) for name in "qkvo"},
        **{f"b{name}": random(WIDTH, seed=ord(name)) for name in "qkv"},
    }
    session = run(make_model(nodes, {"x": (2, ROWS, WIDTH)}, ["y"], constants), layout)
    assert kinds(session) == ["matmul"] * 3 + ["attention", "matmul"]


def test_rows_without_anything_to_attend_to() -> None:
    """They are NaN, as in ONNX Runtime."""
    nodes = [node("Add", ["x", "mask"], "m"), node("Softmax", ["m"], "y", axis=-1)]
    mask = np.where(np.arange(ROWS)[:, np.newaxis] == 2, -np.inf, np.zeros((ROWS, WIDTH)))
    proto = make_model(nodes, {"x": (ROWS, WIDTH)}, ["y"], {"mask": mask})
    model = model_of(proto)
    feeds = feeds_for(model.graph)
    got = model.compile(Engine("cpu")).run(feeds)["y"]
    want = run_peer(proto, feeds)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert np.isnan(got[2]).all()
