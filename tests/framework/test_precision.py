"""Models of f32 in bf16: what is stored in which type, and how far results are from f32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from ml_dtypes import bfloat16
from onnx import TensorProto

from dnnl.framework.compiler import optimize
from dnnl.framework.session import Session
from dnnl.graph.rounding import Rounding
from dnnl.lowering.graphs import LAYOUTS
from dnnl.passes.specialize import specialize
from dnnl.runtime.engine import Engine
from dnnl.tools.difference import GROWTH, PEAK, Tolerance, compare
from dnnl.types.dtype import DataType
from tests.framework.models import (
    feeds_for,
    graph_of,
    make_model,
    model_of,
    node,
    run_peer,
)
from tests.framework.random_graphs import STEPS, Builder
from tests.framework.rounded import beyond_rounding, rounded

BF16, F32 = np.dtype(bfloat16), np.dtype(np.float32)
RNG = np.random.default_rng(0)
FLOATS = [name for name in STEPS if "Int" not in name]


def check_beside_peer(proto: Any, layout: str, threads: int, precision: str = "bf16") -> None:
    """Results in bf16 are no further from those in f32 than rounding takes ONNX Runtime's."""
    model = model_of(proto)
    feeds = feeds_for(model.graph)
    session = model.compile(Engine("cpu"), precision, threads, layout=layout)
    exact, rough = run_peer(proto, feeds), run_peer(rounded(proto), feeds)
    for _ in range(2):
        results = session.run(feeds)
        for name, array in exact.items():
            assert results[name].dtype == array.dtype
            assert beyond_rounding(results[name], array, rough[name]) < 1.5, name


@pytest.mark.parametrize("seed", range(8))
def test_random_graph(seed: int) -> None:
    builder, rng = Builder(seed), np.random.default_rng(seed)
    for _ in range(10):
        builder.step(str(rng.choice(FLOATS)), [int(back) for back in rng.exponential(2.0, 3)])
    proto = builder.proto(also=[str(rng.choice(builder.values[2:]))])
    check_beside_peer(proto, LAYOUTS[seed % 2], 1 + seed // 2 % 2)


@pytest.mark.parametrize("name", FLOATS)
def test_each_step(name: str) -> None:
    builder = Builder(1)
    builder.step(name, (0, 1, 0))
    builder.step(name, (0, 1, 2))
    check_beside_peer(builder.proto(), "propagate", 1)


@pytest.mark.parametrize("name", ["Conv", "Attention", "Classify", "WithoutMean"])
def test_f16(name: str) -> None:
    """It has more digits, so that the same bound holds."""
    builder = Builder(1)
    builder.step("Conv", (0,))
    builder.step(name, (0, 1, 2))
    check_beside_peer(builder.proto(), "propagate", 1, "f16")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_residual_network(layout: str) -> None:
    """Half of the memory, and the steps of f32 with one that converts the image."""
    model = model_of(_residual())
    session = model.compile(Engine("cpu"), "bf16", layout=layout)
    whole = model.compile(Engine("cpu"), layout=layout)
    feeds = feeds_for(model.graph)
    expected = run_peer(_residual(), feeds)["y"]
    assert is_near(session, feeds, expected)
    assert np.abs(session.run(feeds)["y"] - expected).max() > 1e-5  # it was computed in bf16
    assert session.activation_nbytes <= 0.6 * whole.activation_nbytes
    assert session.nbytes < 0.6 * whole.nbytes
    steps = [layer.primitive for layer in session.layers]
    assert steps == ["reorder", *(layer.primitive for layer in whole.layers)]


def _residual() -> Any:
    rng = np.random.default_rng(3)
    constants = {"w1": rng.standard_normal((32, 3, 3, 3)) / 5, "b1": rng.standard_normal(32)}
    constants["w2"] = rng.standard_normal((32, 32, 3, 3)) / 17
    constants |= {"w3": rng.standard_normal((32, 10)) / 5, "b3": rng.standard_normal(10)}
    nodes = [
        node("Conv", ["x", "w1", "b1"], "a", pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["a"], "b"),
        node("MaxPool", ["b"], "c", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["c", "w2"], "d", pads=[1] * 4),
        node("Add", ["d", "c"], "e"),
        node("Relu", ["e"], "f"),
        node("GlobalAveragePool", ["f"], "g"),
        node("Flatten", ["g"], "h"),
        node("Gemm", ["h", "w3", "b3"], "i"),
        node("Softmax", ["i"], "y"),
    ]
    return make_model(nodes, {"x": (2, 3, 28, 28)}, ["y"], constants)


def optimized(
    nodes: list[Any],
    inputs: Mapping[str, Any],
    outputs: list[str],
    constants: Mapping[str, Any] | None = None,
    kinds: Mapping[str, Any] | None = None,
) -> Any:
    """The optimized graph of a model in bf16."""
    proto = make_model(nodes, inputs, outputs, constants, kinds=kinds)
    return optimize(specialize(graph_of(proto)), DataType.bf16)


def types_of(graph: Any) -> dict[str, np.dtype[Any]]:
    """The type in which each node's result is stored, by the first result's name."""
    return {n.output: graph.type_of(n.output).dtype for n in graph.nodes}


def is_near(session: Session, feeds: Mapping[str, Any], expected: Any) -> bool:
    """Whether result y of a session is within the tolerance of its roundings."""
    tolerance = Tolerance.of(session.rounding)
    return compare("y", session.run(feeds)["y"], expected, tolerance).is_equal


def weights(*shape: int) -> Any:
    """Random numbers that keep the size of what is multiplied by them."""
    return (RNG.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)


def test_products_and_what_follows_are_stored_in_bf16() -> None:
    nodes = [
        node("MatMul", ["x", "w"], "a"),
        node("LayerNormalization", ["a", "g"], "b"),
        node("Softmax", ["b"], "c"),
        node("MatMul", ["c", "v"], "y"),
    ]
    constants = {"w": weights(8, 16), "v": weights(16, 4), "g": weights(2, 16)[0]}
    graph = optimized(nodes, {"x": (3, 8)}, ["y"], constants)
    types = types_of(graph)
    assert {name: types[name] for name in "abc"} == dict.fromkeys("abc", BF16)
    assert [n.op for n in graph.nodes].count("Cast") == 1  # of x: the last product writes f32
    (last,) = (n for n in graph.nodes if n.output in graph.outputs.values())
    assert last.op == "MatMul"
    assert graph.type_of(last.output).dtype == F32
    kept = {
        n.inputs[1]: graph.constants[n.inputs[1]].dtype
        for n in graph.nodes
        if n.op != "Cast" and len(n.inputs) > 1
    }
    assert sorted(map(str, kept.values())) == ["bfloat16", "bfloat16", "float32"]


def test_masks_and_positions_stay() -> None:
    """What comes from integers alone, as angles of positions do, keeps its digits."""
    nodes = [
        node("Cast", ["p"], "f", to=TensorProto.FLOAT),
        node("MatMul", ["f", "rates"], "angles"),
        node("Cos", ["angles"], "turns"),
        node("MatMul", ["x", "w"], "a"),
        node("Mul", ["a", "turns"], "y"),
    ]
    constants = {"rates": weights(1, 8), "w": weights(8, 8)}
    inputs = {"p": (5, 1), "x": (5, 8)}
    graph = optimized(nodes, inputs, ["y"], constants, {"p": np.int64})
    assert types_of(graph)["turns"] == F32
    proto = make_model(nodes, inputs, ["y"], constants, kinds={"p": np.int64})
    model = model_of(proto)
    feeds = {"p": np.arange(5)[:, None] * 4001, "x": weights(5, 8)}
    expected = run_peer(proto, feeds)["y"]
    session = model.compile(precision="bf16")
    assert is_near(session, feeds, expected)


def test_angles_of_data_stay() -> None:
    """A time of 999 is no number of bf16, nor is its angle."""
    nodes = [
        node("MatMul", ["t", "rates"], "angles"),
        node("Sin", ["angles"], "s"),
        node("MatMul", ["s", "w"], "y"),
    ]
    constants = {"rates": np.linspace(1e-3, 1, 8)[None], "w": weights(8, 4)}
    proto = make_model(nodes, {"t": (2, 1)}, ["y"], constants)
    feeds = {"t": np.array([[999.0], [501.0]], np.float32)}
    session = model_of(proto).compile(precision="bf16")
    expected = run_peer(proto, feeds)["y"]
    assert is_near(session, feeds, expected)


def test_statistics_stay() -> None:
    """Rows far from zero are normalized by parts, as older exporters write it."""
    nodes = [
        node("Add", ["x", "far"], "a"),
        node("ReduceMean", ["a"], "m", axes=[-1]),
        node("Sub", ["a", "m"], "d"),
        node("Pow", ["d", "two"], "s"),
        node("ReduceMean", ["s"], "v", axes=[-1]),
        node("Add", ["v", "eps"], "e"),
        node("Sqrt", ["e"], "r"),
        node("Div", ["d", "r"], "n"),
        node("MatMul", ["n", "w"], "y"),
    ]
    constants = {"far": np.array(3.0), "two": np.array(2.0), "eps": np.array(1e-5)}
    constants["w"] = weights(64, 4)
    graph = optimized(nodes, {"x": (3, 64)}, ["y"], constants)
    types = types_of(graph)
    assert types["m"] == F32
    assert [types[n.output] for n in graph.nodes if n.op == "ReduceMean"] == [F32, F32]
    assert types["n"] == BF16


def test_what_is_compared_stays() -> None:
    nodes = [
        node("Mul", ["x", "third"], "a"),
        node("Greater", ["a", "z"], "b"),
        node("MatMul", ["a", "w"], "y"),
    ]
    constants = {"third": np.array(1 / 3), "w": weights(8, 4)}
    inputs = {"x": (5, 8), "z": (5, 8)}
    graph = optimized(nodes, inputs, ["y", "b"], constants)
    assert types_of(graph)["a"] == F32
    proto = make_model(nodes, inputs, ["y", "b"], constants, kinds={"b": np.bool_})
    feeds = {"x": weights(5, 8)}
    feeds["z"] = feeds["x"] * np.float32(1 / 3) * np.float32(1 - 1e-3)
    session = model_of(proto).compile(precision="bf16")
    np.testing.assert_array_equal(session.run(feeds)["b"], run_peer(proto, feeds)["b"])


def test_embeddings_are_stored_in_bf16() -> None:
    nodes = [node("Gather", ["table", "i"], "a"), node("MatMul", ["a", "w"], "y")]
    constants = {"table": weights(50, 8), "w": weights(8, 4)}
    graph = optimized(nodes, {"i": (6,)}, ["y"], constants, {"i": np.int64})
    assert types_of(graph)["a"] == BF16
    assert {array.dtype for array in graph.constants.values()} == {BF16}
    assert [n.op for n in graph.nodes] == ["Gather", "MatMul"]


def test_least_float_of_a_mask_is_no_infinity() -> None:
    """A row in which everything is masked has equal weights, as it has in f32."""
    least = np.finfo(np.float32).min
    nodes = [
        node("MatMul", ["x", "w"], "s"),
        node("Where", ["keep", "zero", "least"], "mask"),
        node("Add", ["s", "mask"], "m"),
        node("Softmax", ["m"], "p", axis=-1),
        node("MatMul", ["p", "v"], "y"),
    ]
    constants = {"w": weights(8, 6), "v": weights(6, 4), "zero": np.array(0.0)}
    constants["least"] = np.array(least)
    inputs = {"x": (3, 8), "keep": (3, 6)}
    proto = make_model(nodes, inputs, ["y"], constants, kinds={"keep": np.bool_})
    feeds = {"x": weights(3, 8), "keep": np.arange(18).reshape(3, 6) % 4 > 1}
    feeds["keep"][1] = False
    session = model_of(proto).compile(precision="bf16")
    expected = run_peer(proto, feeds)["y"]
    assert is_near(session, feeds, expected)


def test_a_result_with_other_readers_is_converted_once() -> None:
    nodes = [
        node("MatMul", ["x", "w"], "a"),
        node("Relu", ["a"], "b"),
        node("MatMul", ["b", "v"], "y"),
    ]
    constants = {"w": weights(8, 16), "v": weights(16, 4)}
    proto = make_model(nodes, {"x": (3, 8)}, ["b", "y"], constants)
    session = model_of(proto).compile(precision="bf16")
    assert [layer.primitive for layer in session.layers] == [
        "reorder",
        "matmul",
        "matmul",
        "reorder",
    ]
    feeds = {"x": weights(3, 8)}
    for name, array in run_peer(proto, feeds).items():
        given = session.run(feeds)[name]
        assert given.dtype == F32
        assert compare(name, given, array, Tolerance.of(session.rounding)).is_equal


@pytest.mark.parametrize("kind", [np.dtype(np.float16), BF16])
@pytest.mark.parametrize("moved", [False, True])
def test_a_model_that_rounds_gets_rounded_numbers(kind: np.dtype, moved: bool) -> None:
    small = onnx.helper.np_dtype_to_tensor_dtype(kind)
    nodes = [
        node("Mul", ["x", "three"], "a"),
        *([node("Unsqueeze", ["a", "axes"], "b")] if moved else []),
        node("Cast", ["b" if moved else "a"], "c", to=small),
        node("Cast", ["c"], "d", to=TensorProto.FLOAT),
        node("Add", ["d", "three"], "y"),
    ]
    constants = {"three": np.array(3, np.float32), "axes": np.array([1])}
    proto = make_model(nodes, {"x": (5, 40)}, ["y"], constants)
    x = weights(5, 40)
    expected = (x * 3).astype(kind).astype(np.float32) + 3
    found = model_of(proto).compile()({"x": x})
    np.testing.assert_array_equal(found, expected[:, None] if moved else expected)


def test_a_model_without_data_of_floats_is_as_it_is() -> None:
    nodes = [node("Cast", ["i"], "f", to=TensorProto.FLOAT), node("Sqrt", ["f"], "y")]
    proto = make_model(nodes, {"i": (5,)}, ["y"], kinds={"i": np.int32})
    session = model_of(proto).compile(precision="bf16")
    assert session.rounding is None
    feeds = {"i": np.arange(5, dtype=np.int32)}
    np.testing.assert_array_equal(session(feeds), run_peer(proto, feeds)["y"])


def _model_in(kind: Any) -> Any:
    """An attention of one head with a GELU by parts and a norm, in a type of floats."""
    rng = np.random.default_rng(1)
    number = {"root": 2**-0.5, "one": 1.0, "half": 0.5}
    constants = {key: np.array(value, kind) for key, value in number.items()}
    for key, shape in {"w": (16, 16), "k": (16, 16), "g": (16,), "h": (16,)}.items():
        constants[key] = (rng.standard_normal(shape) / 4).astype(kind)
    nodes = [
        node("MatMul", ["x", "w"], "q"),
        node("Mul", ["q", "root"], "e"),
        node("Erf", ["e"], "f"),
        node("Add", ["f", "one"], "i"),
        node("Mul", ["q", "i"], "j"),
        node("Mul", ["j", "half"], "u"),
        node("LayerNormalization", ["u", "g", "h"], "n"),
        node("Transpose", ["n"], "t", perm=[0, 2, 1]),
        node("MatMul", ["n", "t"], "s"),
        node("Softmax", ["s"], "p", axis=-1),
        node("MatMul", ["p", "n"], "o"),
        node("Gemm", ["flat", "k"], "z"),
        node("Cast", ["z"], "y", to=TensorProto.FLOAT),
    ]
    nodes.insert(11, node("Reshape", ["o", "shape"], "flat"))
    constants["shape"] = np.array([10, 16])
    return make_model(nodes, {"x": (2, 5, 16)}, ["y"], constants, kinds={"x": kind})


@pytest.mark.parametrize("kind", [bfloat16, np.float16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_in_smaller_types(kind: Any, layout: str) -> None:
    """They run as they are, with the fusions of f32, and near what the same numbers give in f32."""
    proto = _model_in(kind)
    x = (np.random.default_rng(2).standard_normal((2, 5, 16))).astype(kind)
    session = model_of(proto).compile(layout=layout)
    whole = _model_in(np.float32)
    for tensor, short in zip(whole.graph.initializer, proto.graph.initializer, strict=True):
        array = onnx.numpy_helper.to_array(short)
        if array.dtype == kind:
            tensor.CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float32), tensor.name))
    expected = run_peer(whole, {"x": x.astype(np.float32)})["y"]
    assert session.rounding is not None
    assert session.rounding.eps == DataType.from_numpy(kind).eps
    assert is_near(session, {"x": x}, expected)
    assert _steps(session) == _steps(model_of(whole).compile(layout=layout))


def _steps(session: Any) -> list[str]:
    """The steps that are no reorders. Where bf16 has fast products, its attention is three
    steps and that of f32 one."""
    steps = " ".join(layer.primitive for layer in session.layers if layer.primitive != "reorder")
    return steps.replace("attention", "matmul softmax matmul").split()


def test_as_near_as_torch_in_bf16() -> None:
    """A block of a transformer: no further from f32 than PyTorch, whose modules round as well."""
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    block.eval()
    rows = torch.randn(2, 12, 32)
    with torch.no_grad():
        exact = block.double()(rows.double()).numpy()
        theirs = block.bfloat16()(rows.bfloat16()).float().numpy()
    block.float()
    ours = model_of(_encoder(block.state_dict())).compile(precision="bf16")(rows.numpy())
    errors = [np.linalg.norm(array - exact) / np.linalg.norm(exact) for array in (ours, theirs)]
    assert errors[0] < 1.25 * errors[1]


def _encoder(state: Mapping[str, Any]) -> Any:
    """torch.nn.TransformerEncoderLayer of 32 features and 4 heads on [2, 12, 32]."""
    get = {key: value.float().numpy() for key, value in state.items()}
    joined = get["self_attn.in_proj_weight"].T, get["self_attn.in_proj_bias"]
    constants = {"heads": np.array([2, 12, 4, 8]), "rows": np.array([2, 12, 32])}
    constants["root"] = np.array(8**-0.5)
    nodes = []
    for n, (name, perm) in enumerate(
        (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
    ):
        part = slice(32 * n, 32 * n + 32)
        constants[f"w{name}"], constants[f"b{name}"] = joined[0][:, part], joined[1][part]
        nodes += [
            node("MatMul", ["x", f"w{name}"], f"{name}0"),
            node("Add", [f"{name}0", f"b{name}"], f"{name}1"),
            node("Reshape", [f"{name}1", "heads"], f"{name}2"),
            node("Transpose", [f"{name}2"], name, perm=perm),
        ]
    dense = {"o": "self_attn.out_proj", "m": "linear1", "r": "linear2"}
    for name, of in dense.items():
        constants[f"w{name}"], constants[f"b{name}"] = get[f"{of}.weight"].T, get[f"{of}.bias"]
    for n in (1, 2):
        constants[f"g{n}"], constants[f"h{n}"] = get[f"norm{n}.weight"], get[f"norm{n}.bias"]
    nodes += [
        node("MatMul", ["q", "k"], "s0"),
        node("Mul", ["s0", "root"], "s1"),
        node("Softmax", ["s1"], "p", axis=-1),
        node("MatMul", ["p", "v"], "c0"),
        node("Transpose", ["c0"], "c1", perm=[0, 2, 1, 3]),
        node("Reshape", ["c1", "rows"], "c2"),
        node("MatMul", ["c2", "wo"], "o0"),
        node("Add", ["o0", "bo"], "o1"),
        node("Add", ["x", "o1"], "a"),
        node("LayerNormalization", ["a", "g1", "h1"], "n1"),
        node("MatMul", ["n1", "wm"], "m0"),
        node("Add", ["m0", "bm"], "m1"),
        node("Gelu", ["m1"], "m2"),
        node("MatMul", ["m2", "wr"], "r0"),
        node("Add", ["r0", "br"], "r1"),
        node("Add", ["n1", "r1"], "e"),
        node("LayerNormalization", ["e", "g2", "h2"], "y"),
    ]
    return make_model(nodes, {"x": (2, 12, 32)}, ["y"], constants, opset=20)


def test_tolerance_follows_from_epsilon_and_depth() -> None:
    tolerance = Tolerance.of(Rounding(2.0**-7, 64))
    assert tolerance.norm == GROWTH * 2.0**-5
    assert tolerance.element == PEAK * tolerance.norm
    want = np.array([1.0, -1.0, 1.0, 1e-3])
    assert compare("y", want * (1 + 2.0**-4), want, tolerance).is_equal
    far = compare("y", want * (1 + 2.0**-2), want, tolerance)
    assert not far.is_equal
    assert "the norm by 0.25, more than 0.125" in str(far)
    one = compare("y", np.array([*want[:3], 0.8]), want, tolerance)
    assert one.exceeding == 1  # measured at the root mean square
    assert Tolerance.of(None) == Tolerance()
