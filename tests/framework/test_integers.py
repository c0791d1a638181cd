"""Models of integers and truth values: exact in every type, however the graph gets its values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx.helper import np_dtype_to_tensor_dtype
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidGraph
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_

from dnnl import config
from dnnl.errors import Unimplemented
from dnnl.framework.session import Session
from dnnl.graph.graph import Array
from dnnl.lowering.graphs import LAYOUTS
from dnnl.runtime.engine import Engine
from dnnl.types.dtype import DataType
from tests.framework.models import make_model, model_of, node, run_peer
from tests.primitives.harness import every_isa
from tests.primitives.typed import drawn

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
OPSET = 19
each_type = pytest.mark.parametrize("kind", INTEGERS)


def towards_zero(a: int, b: int) -> int:
    """a / b, 0 by 0."""
    return (abs(a) // abs(b) if (a < 0) == (b < 0) else -(abs(a) // abs(b))) if b else 0


Row = tuple[str, dict[str, Any], Callable[..., int]]
ARITHMETIC: tuple[Row, ...] = (
    ("Add", {}, lambda a, b: a + b),
    ("Sub", {}, lambda a, b: a - b),
    ("Mul", {}, lambda a, b: a * b),
    ("Div", {}, towards_zero),
    ("Mod", {}, lambda a, b: a % b if b else 0),
    ("Mod", {"fmod": 1}, lambda a, b: a - b * towards_zero(a, b) if b else 0),
    ("Max", {}, max),
    ("Min", {}, min),
    ("Sum", {}, lambda a, b: a + b),
    ("BitwiseAnd", {}, lambda a, b: a & b),
    ("BitwiseOr", {}, lambda a, b: a | b),
    ("BitwiseXor", {}, lambda a, b: a ^ b),
    ("BitwiseNot", {}, lambda a: ~a),
    ("Abs", {}, abs),
    ("Neg", {}, lambda a: -a),
    ("Sign", {}, lambda a: (a > 0) - (a < 0)),
    ("Relu", {}, lambda a: max(a, 0)),
    ("Clip", {}, lambda a, low, high: min(max(a, low), high)),
    ("Clip", {}, max),
    ("Equal", {}, lambda a, b: a == b),
    ("Less", {}, lambda a, b: a < b),
    ("LessOrEqual", {}, lambda a, b: a <= b),
    ("Greater", {}, lambda a, b: a > b),
    ("GreaterOrEqual", {}, lambda a, b: a >= b),
    ("BitShift", {"direction": "LEFT"}, lambda a, b: a << b if 0 <= b < 64 else 0),
    ("BitShift", {"direction": "RIGHT"}, lambda a, b: a >> (b if 0 <= b < 64 else 64)),
)


def arity(function: Callable[..., int]) -> int:
    return 2 if function in (max, min) else 1 if function is abs else function.__code__.co_argcount


def wanted(function: Callable[..., int], arrays: list[Array], dtype: np.dtype[Any]) -> Array:
    """The function in integers without limits, of which the lower bits are kept."""
    exact = np.frompyfunc(function, len(arrays), 1)(*(a.astype(object) for a in arrays))
    if dtype == np.bool_:
        return np.asarray(exact).astype(dtype)
    span = 2 ** (8 * dtype.itemsize)
    bits = np.asarray(exact, object) % span
    unsigned: Array = bits.astype(np.uint64).astype(f"u{dtype.itemsize}")
    return unsigned.view(dtype)


def operands(kind: str, count: int, seed: int = 0) -> list[Array]:
    shapes: list[tuple[int, ...]] = [(2, 17, 3, 5), (17, 1, 5), (1,)]
    return [drawn(DataType.from_numpy(kind), shape, seed + n) for n, shape in enumerate(shapes)][
        :count
    ]


def compiled(
    nodes: list[Any],
    feeds: dict[str, Array],
    result: npt.DTypeLike,
    constants: dict[str, Array] | None = None,
    layout: str = "propagate",
) -> Session:
    kinds = {"y": result, **{name: array.dtype for name, array in feeds.items()}}
    shapes = {name: array.shape for name, array in feeds.items()}
    proto = make_model(nodes, shapes, ["y"], constants, OPSET, kinds)
    model = model_of(proto).with_shapes(shapes)  # 0 in a file says that a size is open
    return model.compile(Engine("cpu"), layout=layout, num_threads=2)


@each_type
@pytest.mark.parametrize(("op", "attrs", "function"), ARITHMETIC)
def test_operators(op: str, attrs: dict[str, Any], function: Callable[..., int], kind: str) -> None:
    arrays = operands(kind, arity(function))
    names = ["a", "b", "c"][: len(arrays)]
    feeds = dict(zip(names, arrays, strict=True))
    compares = op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    result = np.dtype(np.bool_ if compares else kind)
    want = wanted(function, arrays, result)
    for fixed in range(len(names) + 1):
        constants = {name: feeds[name] for name in names[len(names) - fixed :]}
        given = {name: feeds[name] for name in names if name not in constants}
        session = compiled([node(op, names, "y", **attrs)], given, result, constants)
        got = session.run(given)["y"]
        assert got.dtype == result
        np.testing.assert_array_equal(got, want, f"{op}, {fixed} constants")


@each_type
@pytest.mark.parametrize("exponent", ["uint8", "int64"])
def test_powers(kind: str, exponent: str) -> None:
    base = drawn(DataType.from_numpy(kind), (7, 13), 1)
    power = drawn(DataType.from_numpy(exponent), (13,), 2)
    feeds = {"a": base, "b": power}
    got = compiled([node("Pow", ["a", "b"], "y")], feeds, kind).run(feeds)["y"]
    folded = compiled([node("Pow", ["a", "b"], "y")], {}, kind, feeds).run({})["y"]
    np.testing.assert_array_equal(got, folded)
    low = {"a": base, "b": np.abs(power) % 5}
    span = 2 ** (8 * base.dtype.itemsize)
    want = wanted(lambda a, b: pow(a, b, span), [base, low["b"]], base.dtype)
    got = compiled([node("Pow", ["a", "b"], "y")], low, kind).run(low)["y"]
    np.testing.assert_array_equal(got, want)


def test_powers_of_floats_are_those_of_integers_where_they_can_be() -> None:
    feeds = {"a": np.array([3, -3, 16777217, 2], np.int64)}
    constants = {"b": np.array([2, 3, 1, -1], np.float32)}
    pow_ = [node("Pow", ["a", "b"], "y")]
    got = compiled(pow_, feeds, "int64", constants).run(feeds)["y"]
    np.testing.assert_array_equal(got, [9, -27, 16777217, 0])
    given: dict[str, Array] = {**feeds, **constants}
    np.testing.assert_array_equal(compiled(pow_, given, "int64").run(given)["y"], got)


@pytest.mark.parametrize(("src", "dst"), list(itertools.permutations([*INTEGERS, "bool"], 2)))
def test_casts_among_integers(src: str, dst: str) -> None:
    feeds = {"a": drawn(DataType.from_numpy(src), (3, 37), 3)}
    to = model_kind(dst)
    want = feeds["a"].astype(dst)
    cast = [node("Cast", ["a"], "y", to=to)]
    np.testing.assert_array_equal(compiled(cast, feeds, dst).run(feeds)["y"], want)
    np.testing.assert_array_equal(compiled(cast, {}, dst, feeds).run({})["y"], want)


def model_kind(dtype: str) -> int:
    return int(np_dtype_to_tensor_dtype(np.dtype(dtype)))


@pytest.mark.parametrize("src", ["float32", "float64", "float16"])
@pytest.mark.parametrize("dst", INTEGERS)
def test_floats_lose_what_is_behind_the_point_and_stop_at_the_ends(src: str, dst: str) -> None:
    feeds = {"a": drawn(DataType.from_numpy(src), (3, 37), 4)}
    cast = [node("Cast", ["a"], "y", to=model_kind(dst))]
    got = compiled(cast, feeds, dst).run(feeds)["y"]
    limits = np.iinfo(dst)
    for value, result in zip(feeds["a"].ravel().tolist(), got.ravel().tolist(), strict=True):
        wide = 0 if math.isnan(value) else max(-(2.0**70), min(2.0**70, value))
        assert result == min(max(int(wide), limits.min), limits.max), value
    # Constants of f64 become f32 when a model is read.
    narrow = {"a": feeds["a"].astype(np.float32).astype(src)}
    got = compiled(cast, narrow, dst).run(narrow)["y"]
    np.testing.assert_array_equal(compiled(cast, {}, dst, narrow).run({})["y"], got)


PEER = ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Clip", "Abs", "Neg", "Sign", "Less",
        "Equal", "Greater", "BitwiseAnd", "BitwiseNot")  # fmt: skip


@each_type
def test_as_onnx_runtime(kind: str) -> None:
    """Where that has a kernel for the type; it ends the process where something is divided by 0."""
    compared = 0
    for op, attrs, function in ARITHMETIC:
        if op not in PEER:
            continue
        arrays = operands(kind, arity(function), seed=5)
        if op in ("Div", "Mod"):
            arrays[1] = np.where((arrays[1] == 0) | (arrays[1] == -1), 3, arrays[1]).astype(kind)
        names = ["a", "b", "c"][: len(arrays)]
        if op == "Clip":
            arrays[1:] = [array.ravel()[:1].reshape(()) for array in arrays[1:]]
        feeds = dict(zip(names, arrays, strict=True))
        result = "bool" if op in ("Less", "Equal", "Greater") else kind
        kinds = {"y": result, **dict.fromkeys(names, kind)}
        shapes = {name: array.shape for name, array in feeds.items()}
        proto = make_model([node(op, names, "y", **attrs)], shapes, ["y"], None, OPSET, kinds)
        try:
            want = run_peer(proto, feeds)["y"]
        except (NotImplemented_, InvalidGraph):
            continue
        got = model_of(proto).compile(Engine("cpu")).run(feeds)["y"]
        np.testing.assert_array_equal(got, want, op)
        compared += 1
    assert compared >= 4


@each_type
@pytest.mark.parametrize("layout", LAYOUTS)
def test_chains_and_what_moves_data(kind: str, layout: str) -> None:
    """Nothing is fused into f32 on the way, and integers are moved as they are."""
    x, z = operands(kind, 1)[0], operands(kind, 1, seed=9)[0]
    nodes = [
        node("Add", ["x", "c"], "a"),
        node("Mul", ["a", "x"], "b"),
        node("Transpose", ["b"], "t", perm=[0, 2, 3, 1]),
        node("Transpose", ["z"], "u", perm=[0, 2, 3, 1]),
        node("Concat", ["t", "u"], "j", axis=1),
        node("Reshape", ["j", "s"], "r"),
        node("Sum", ["r", "r", "r"], "q"),
        node("Relu", ["q"], "y"),
    ]
    constants = {"c": np.array([101], kind), "s": np.array([2, -1], np.int64)}
    feeds = {"x": x, "z": z}
    got = compiled(nodes, feeds, kind, constants, layout).run(feeds)["y"]
    b = (x + constants["c"]) * x
    joined = np.concatenate([b.transpose(0, 2, 3, 1), z.transpose(0, 2, 3, 1)], 1).reshape(2, -1)
    np.testing.assert_array_equal(got, np.maximum(joined + joined + joined, np.array(0, kind)))


@every_isa
@pytest.mark.parametrize("layout", LAYOUTS)
def test_beside_convolutions(layout: str, isa: str) -> None:
    """Integers and truth values take the layouts of the floats that they are made of."""
    rng = np.random.default_rng(3)
    nodes = [
        node("Conv", ["x", "w"], "f"),
        node("Cast", ["f"], "i", to=model_kind("int64")),
        node("Mul", ["i", "i"], "q"),
        node("Less", ["q", "k"], "l"),
        node("Greater", ["f", "z"], "g"),
        node("Xor", ["l", "g"], "e"),
        node("Where", ["e", "f", "z"], "v"),
        node("Cast", ["i"], "n", to=model_kind("float32")),
        node("Add", ["v", "n"], "y"),
    ]
    constants = {
        "w": rng.integers(-3, 4, (20, 3, 3, 3)).astype(np.float32),
        "k": np.array(500, np.int64),
        "z": np.zeros((), np.float32),
    }
    feeds = {"x": rng.integers(-3, 4, (2, 3, 9, 8)).astype(np.float32)}
    shapes = {"x": (2, 3, 9, 8)}
    proto = make_model(nodes, shapes, ["y"], constants, OPSET)
    with config.override("max_cpu_isa", isa):
        got = model_of(proto).compile(Engine("cpu"), layout=layout).run(feeds)
    np.testing.assert_array_equal(got["y"], run_peer(proto, feeds)["y"])


def test_truth_values() -> None:
    a, b = (drawn(DataType.boolean, shape, 1) for shape in ((4, 1, 9), (3, 9)))
    feeds = {"a": a, "b": b}
    for op, want in (("And", a & b), ("Or", a | b), ("Xor", a ^ b), ("Equal", a == b)):
        got = compiled([node(op, ["a", "b"], "y")], feeds, "bool").run(feeds)["y"]
        np.testing.assert_array_equal(got, want, op)
    got = compiled([node("Not", ["a"], "y")], {"a": a}, "bool").run({"a": a})["y"]
    np.testing.assert_array_equal(got, ~a)


@pytest.mark.parametrize("kind", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5, 7), (7, 19)),
        ((7,), (7, 70)),
        ((2, 1, 33, 7), (3, 7, 1)),
        ((3, 0), (0, 2)),
        ((4,), (4,)),
    ],
)
def test_products(a: tuple[int, ...], b: tuple[int, ...], kind: str) -> None:
    feeds = {
        "a": drawn(DataType.from_numpy(kind), a, 1),
        "b": drawn(DataType.from_numpy(kind), b, 2),
    }
    matmul = [node("MatMul", ["a", "b"], "y")]
    want = feeds["a"] @ feeds["b"]
    np.testing.assert_array_equal(compiled(matmul, feeds, kind).run(feeds)["y"], want)
    given = {"a": feeds["a"]}
    got = compiled(matmul, given, kind, {"b": feeds["b"]}).run(given)["y"]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["int32", "uint64"])
def test_gemm(kind: str) -> None:
    shapes = {"a": (7, 5), "b": (19, 7), "c": (19,)}
    feeds = {name: drawn(DataType.from_numpy(kind), shape, 3) for name, shape in shapes.items()}
    attrs: dict[str, Any] = {"transA": 1, "transB": 1, "alpha": 3.0, "beta": 2.0}
    gemm = node("Gemm", ["a", "b", "c"], "y", **attrs)
    three, two = np.array(3, kind), np.array(2, kind)
    want = feeds["a"].T @ feeds["b"].T * three + two * feeds["c"]
    np.testing.assert_array_equal(compiled([gemm], feeds, kind).run(feeds)["y"], want)
    given = {"a": feeds.pop("a")}
    np.testing.assert_array_equal(compiled([gemm], given, kind, feeds).run(given)["y"], want)
    with pytest.raises(Unimplemented, match="factors of integers must be integers"):
        compiled([node("Gemm", ["a", "a"], "y", alpha=0.5, transB=1)], given, kind)


def test_what_would_not_be_exact_is_refused() -> None:
    feeds = {"a": np.arange(6, dtype=np.int32).reshape(2, 3)}
    with pytest.raises(Unimplemented, match="ReduceMean of int32 is not computed; Cast makes"):
        compiled([node("ReduceMean", ["a"], "y", axes=[1])], feeds, "int32")
    byte = {"a": np.ones((3, 3), np.int8)}
    with pytest.raises(Unimplemented, match="MatMul is for integers of 32 and 64 bits"):
        compiled([node("MatMul", ["a", "a"], "y")], byte, "int8")
    for op in ("Exp", "Sqrt", "Softmax"):
        with pytest.raises(Unimplemented):
            compiled([node(op, ["a"], "y")], feeds, "int32")
