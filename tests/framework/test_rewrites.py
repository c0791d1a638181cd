"""What passes write: names beside those of a model, ends of the range, constants, empty tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.errors import OutOfMemory
from dnnl.graph.graph import JOINT, ModelError
from dnnl.lowering.graphs import LAYOUTS
from dnnl.runtime.engine import Engine
from tests.framework.models import Array, assert_same, make_model, model_of, node, run_peer

W = np.random.default_rng(1).standard_normal((6, 6))


def named(op: str, inputs: list[str], result: str, name: str, **attrs: Any) -> Any:
    made = node(op, inputs, result, **attrs)
    made.name = name
    return made


def sevenths(*shape: int) -> Array:
    return (np.arange(np.prod(shape)).reshape(shape) / 7 - 1).astype(np.float32)


def run(proto: Any, feeds: dict[str, Array], layout: str) -> None:
    model = model_of(proto).with_shapes({name: array.shape for name, array in feeds.items()})
    session = model.compile(Engine("cpu"), layout=layout, num_threads=1)
    for _ in range(2):
        assert_same(session.run(feeds), run_peer(proto, feeds), 1e-5)


Case = tuple[list[Any], dict[str, Array], dict[str, Any], list[str]]
CASES: dict[str, Case] = {
    "a value named as that of a node's part": (
        [named("Gemm", ["n:0", "w"], "g", "n", alpha=0.5), node("Add", ["g", "n:0"], "y")],
        {"n:0": sevenths(6, 6)}, {"w": W}, ["y"],
    ),
    "a result named as its node": (
        [named("MatMul", ["x", "w"], "foo:0", "foo"), node("Relu", ["foo:0"], "y")],
        {"x": sevenths(2, 3, 6)}, {"w": W}, ["y"],
    ),
    "a value named as what a view moves": (
        [
            node("Softmax", ["x"], "y:R"), node("MatMul", ["x", "w"], "m"),
            named("Reshape", ["m", "k"], "r", "R"), node("Relu", ["r"], "y"),
            node("Softmax", ["y:R"], "t", axis=0),
        ],
        {"x": sevenths(4, 6)}, {"w": W, "k": np.array([2, 2, 6])}, ["y", "t"],
    ),
    "a node named as another one without a name would be": (
        [
            named("Neg", ["x"], "a", "Relu_1"), named("Relu", ["a"], "b", ""),
            named("MatMul", ["b", "w"], "y", ""),
        ],
        {"x": sevenths(4, 6)}, {"w": W}, ["y"],
    ),
    "a relu of an infinity": (
        [node("Add", ["x", "m"], "a"), node("Relu", ["a"], "r"), node("Mul", ["r", "r"], "y")],
        {"x": sevenths(2, 6)}, {"m": np.array([0, -np.inf, 0, -np.inf, 1, 2])}, ["y"],
    ),
    "a divisor without an inverse": (
        [node("Div", ["x", "f"], "y")], {"x": np.full((2, 3), 1e-40, np.float32)}, {"f": 1e-40},
        ["y"],
    ),
    "a part of what no element makes": (
        [
            node("ReduceProd", ["x"], "r", axes=[1], keepdims=0),
            node("Slice", ["r", "one", "two"], "s"), node("Relu", ["s"], "y"),
        ],
        {"x": np.zeros((3, 0), np.float32)}, {"one": np.array([1]), "two": np.array([2])},
        ["y", "s"],
    ),
    "a view of what no element makes": (
        [node("ReduceSum", ["x", "one"], "r", keepdims=0), node("Reshape", ["r", "k"], "y")],
        {"x": np.zeros((3, 0), np.float32)}, {"one": np.array([1]), "k": np.array([3, 1])}, ["y"],
    ),
    "a function that ends in a truth": (
        [node("Erf", ["x"], "e"), node("Greater", ["e", "c"], "b"), node("Cast", ["b"], "y", to=1)],
        {"x": sevenths(3, 6)}, {"c": 0.25}, ["y"],
    ),
    "a long chain": (
        [node("Sin", [f"x{n}" if n else "x"], f"x{n + 1}") for n in range(70)],
        {"x": sevenths(3, 6)}, {}, ["x70"],
    ),
    "a whole exponent before a function": (
        [node("Pow", ["x", "two"], "p"), node("Erf", ["p"], "y")],
        {"x": sevenths(3, 6)}, {"two": np.array(2)}, ["y"],
    ),
    "elements of constants": (
        [node("GatherElements", ["c", "i"], "g", axis=0), node("Add", ["x", "g"], "y")],
        {"x": sevenths(1, 2)}, {"c": sevenths(2, 3), "i": np.array([[1, 0]])}, ["y"],
    ),
    "a step behind the end": (
        [node("Slice", ["x", "one", "two", "one", "far"], "y")], {"x": sevenths(4, 6)},
        {"one": np.array([1]), "two": np.array([2]), "far": np.array([2**62])}, ["y"],
    ),
    "nothing backwards": (
        [node("Slice", ["x", "zero", "four", "zero", "back"], "s"), node("Relu", ["s"], "y")],
        {"x": sevenths(4, 6)},
        {"zero": np.array([0]), "four": np.array([4]), "back": np.array([-1])}, ["y"],
    ),
    "nothing repeated": (
        [node("Tile", ["x", "r"], "t"), node("Relu", ["t"], "y")], {"x": sevenths(4, 6)},
        {"r": np.array([0, 2])}, ["y"],
    ),
    "more taken away than there is, and added behind": (
        [node("Pad", ["x", "p"], "y")], {"x": sevenths(4, 6)}, {"p": np.array([-5, 0, 4, 0])},
        ["y"],
    ),
    "cut, then repeated": (
        [node("Pad", ["x", "p"], "y", mode="edge")], {"x": sevenths(4, 6)},
        {"p": np.array([0, 2, 0, -1])}, ["y"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_agrees(name: str, layout: str) -> None:
    nodes, feeds, constants, outputs = CASES[name]
    shapes = {key: array.shape for key, array in feeds.items()}
    run(make_model(nodes, shapes, outputs, constants), feeds, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("factor", "size"), [(0.0, 1e30), (1e-20, 1e20), (1e-38, 1e20)])
def test_a_factor_stays_where_products_without_it_are_infinite(
    factor: float, size: float, layout: str
) -> None:
    """ONNX Runtime moves it, and gives NaN and infinities."""
    nodes = [node("Mul", ["x", "f"], "a"), node("MatMul", ["a", "z"], "y")]
    proto = make_model(nodes, {"x": (2, 3), "z": (3, 2)}, ["y"], {"f": factor})
    feeds = {"x": np.full((2, 3), size, np.float32), "z": np.full((3, 2), size, np.float32)}
    got = model_of(proto).compile(Engine("cpu"), layout=layout).run(feeds)["y"]
    want = (feeds["x"] * np.float32(factor)) @ feeds["z"]
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_joint_of_names_is_refused() -> None:
    proto = make_model([node("Relu", [f"x{JOINT}0"], "y")], {f"x{JOINT}0": (2,)}, ["y"])
    with pytest.raises(ModelError, match=f"has a {JOINT}"):
        model_of(proto)


@pytest.mark.parametrize(
    ("op", "constants"),
    [
        ("Tile", {"a": [10**12]}),
        ("Pad", {"a": [0, 10**12]}),
        ("Pad edge", {"a": [10**12, 0]}),
        ("Expand", {"a": [10**12, 4]}),
    ],
)
def test_sizes_of_a_stranger(op: str, constants: dict[str, list[int]]) -> None:
    """They are refused before memory is asked for."""
    kind, _, mode = op.partition(" ")
    made = node(kind, ["x", "a"], "y", **({"mode": mode} if mode else {}))
    arrays = {name: np.array(value) for name, value in constants.items()}
    proto = make_model([made], {"x": (4,)}, ["y"], arrays)
    with pytest.raises(OutOfMemory):
        model_of(proto).compile(Engine("cpu"))
