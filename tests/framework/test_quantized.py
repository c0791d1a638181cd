"""Networks in bytes, as ONNX Runtime's quantizer writes them, against it layer by layer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization.shape_inference import quant_pre_process

from dnnl import config
from dnnl.errors import Unimplemented
from dnnl.framework.compiler import optimize
from dnnl.framework.model import Model, load
from dnnl.lowering.graphs import LAYOUTS
from dnnl.passes.specialize import specialize
from dnnl.runtime.engine import Engine
from dnnl.tools.quantized_difference import compare_layers
from tests.framework.models import LIGHT, Array, make_model, model_of, node, run_peer
from tests.framework.quantizing import dynamically, random_feeds, statically
from tests.framework.test_operators import agree
from tests.primitives.harness import every_isa

FORMS = ("QDQ", "QOperator")


def convolutional() -> Any:
    """A residual block with a shortcut, a depthwise convolution, poolings and a classifier."""
    rng = np.random.default_rng(0)
    nodes = [
        node("Conv", ["x", "w0", "b0"], "c0", pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], "r0"),
        node("MaxPool", ["r0"], "p0", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["p0", "w1", "b1"], "c1"),
        node("Relu", ["c1"], "r1"),
        node("Conv", ["r1", "w2", "b2"], "c2", pads=[1, 1, 1, 1]),
        node("Conv", ["p0", "w3"], "c3"),
        node("Add", ["c2", "c3"], "a0"),
        node("Relu", ["a0"], "r2"),
        node("Conv", ["r2", "w4", "b4"], "c4", pads=[1, 1, 1, 1], group=24),
        node("Clip", ["c4", "zero", "six"], "k0"),
        node("Concat", ["k0", "r2"], "d0", axis=1),
        node("Conv", ["d0", "w5"], "c5"),
        node("LeakyRelu", ["c5"], "l0", alpha=0.1),
        node("GlobalAveragePool", ["l0"], "g0"),
        node("Flatten", ["g0"], "f0"),
        node("Gemm", ["f0", "w6", "b6"], "y", transB=1),
    ]
    shapes = {
        "w0": (16, 3, 3, 3),
        "b0": (16,),
        "w1": (16, 16, 1, 1),
        "b1": (16,),
        "w2": (24, 16, 3, 3),
        "b2": (24,),
        "w3": (24, 16, 1, 1),
        "w4": (24, 1, 3, 3),
        "b4": (24,),
        "w5": (19, 48, 1, 1),
        "w6": (10, 19),
        "b6": (10,),
    }
    constants: dict[str, Any] = {
        name: rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)
        for name, shape in shapes.items()
    }
    bounds = {"zero": np.float32(0), "six": np.float32(2)}
    return make_model(nodes, {"x": [2, 3, 17, 15]}, ["y"], {**constants, **bounds})


def attention() -> Any:
    """Rows that meet matrices, a product of computed values, softmax and a residual."""
    rng = np.random.default_rng(1)
    nodes = [
        node("MatMul", ["x", "wq"], "q"),
        node("Add", ["q", "bq"], "q1"),
        node("MatMul", ["x", "wk"], "k"),
        node("Transpose", ["k"], "kt", perm=[0, 2, 1]),
        node("MatMul", ["q1", "kt"], "s"),
        node("Softmax", ["s"], "p", axis=-1),
        node("MatMul", ["p", "x"], "o"),
        node("Add", ["o", "x"], "r"),
        node("MatMul", ["r", "wu"], "u"),
        node("Sigmoid", ["u"], "g"),
        node("Mul", ["u", "g"], "m"),
        node("MatMul", ["m", "wd"], "y"),
    ]
    constants = {
        name: rng.standard_normal(shape) / 6
        for name, shape in {
            "wq": (36, 36),
            "bq": (36,),
            "wk": (36, 36),
            "wu": (36, 70),
            "wd": (70, 36),
        }.items()
    }
    return make_model(nodes, {"x": [2, 9, 36]}, ["y"], constants)


def check(model: Model, layout: str = LAYOUTS[0], num_threads: int = 1) -> None:
    steps, outputs = compare_layers(model, random_feeds(model), num_threads, layout)
    assert steps.values >= 3
    assert steps.is_equal, str(steps)
    assert all(difference.is_equal for difference in outputs), outputs


def kinds(model: Model) -> Counter[str]:
    session = model.compile(Engine("cpu"))
    return Counter(layer.primitive for layer in session.layers)


def floats_left(model: Model) -> list[str]:
    """Products of floats that no one of bytes has replaced."""
    graph = optimize(specialize(model.graph))
    names = ("Conv", "ConvTranspose", "Gemm", "MatMul")
    return [node.name for node in graph.nodes if node.op in names]


@pytest.mark.parametrize(
    ("form", "src", "per_channel", "layout"),
    [
        ("QDQ", "u8", False, "propagate"),
        ("QDQ", "s8", True, "plain"),
        ("QOperator", "u8", True, "plain"),
        ("QOperator", "s8", False, "propagate"),
    ],
)
def test_convolutions(form: str, src: str, per_channel: bool, layout: str, tmp_path: Path) -> None:
    model = statically(convolutional(), tmp_path, form, src, per_channel=per_channel)
    check(model, layout)
    assert not floats_left(model)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("weights", ["u8", "s8"])
def test_matrix_products(form: str, weights: str, tmp_path: Path) -> None:
    model = statically(attention(), tmp_path, form, "u8", weights)
    check(model, num_threads=2)
    assert not floats_left(model)


@pytest.mark.parametrize(("weights", "per_channel"), [("u8", False), ("s8", True)])
def test_dynamic(weights: str, per_channel: bool, tmp_path: Path) -> None:
    model = dynamically(attention(), tmp_path, weights, per_channel=per_channel)
    check(model)
    assert len(floats_left(model)) == 2  # of computed values, which the quantizer leaves


def test_dynamic_convolutions(tmp_path: Path) -> None:
    model = dynamically(convolutional(), tmp_path)
    check(model, "plain")
    assert not floats_left(model)


@pytest.mark.parametrize("size", ["columns", "one"])
def test_a_constant_factor_goes_into_the_product(size: str) -> None:
    """Scales of columns beside one that is computed, as of activations that are quantized anew."""
    scales = np.array([0.5, 2.0, 0.25, 1.5, 3.0], np.float32)
    constants = {
        "w": np.random.default_rng(2).integers(-9, 9, (6, 5)).astype(np.int8),
        "s": scales if size == "columns" else scales[:1],
    }
    nodes = [
        node("DynamicQuantizeLinear", ["x"], "q", "d", "z"),
        node("MatMulInteger", ["q", "w", "z"], "p"),
        node("Cast", ["p"], "f", to=onnx.TensorProto.FLOAT),
        node("Mul", ["d", "s"], "both"),
        node("Mul", ["f", "both"], "y"),
    ]
    session = agree(make_model(nodes, {"x": (4, 6)}, ["y"], constants), "propagate")
    assert "binary" not in {layer.primitive for layer in session.layers}


def test_a_constant_factor_along_the_width_stays_where_it_is() -> None:
    """As many as outputs, but not along them: convolutions have these in dimension 1."""
    rng = np.random.default_rng(2)
    constants = {
        "w": rng.integers(-9, 9, (5, 3, 1, 1)).astype(np.int8),
        "s": np.array([0.5, 2.0, 0.25, 1.5, 3.0], np.float32),
    }
    nodes = [
        node("DynamicQuantizeLinear", ["x"], "q", "d", "z"),
        node("ConvInteger", ["q", "w", "z"], "p"),
        node("Cast", ["p"], "f", to=onnx.TensorProto.FLOAT),
        node("Mul", ["d", "s"], "both"),
        node("Mul", ["f", "both"], "y"),
    ]
    agree(make_model(nodes, {"x": (2, 3, 4, 5)}, ["y"], constants), "plain")


def test_each_pattern_is_one_step(tmp_path: Path) -> None:
    """A convolution takes in its activation and its residual; what moves bytes needs no others. Two
    concatenations frame the image by its zero point."""
    wanted = {"eltwise": 1, "reorder": 1, "convolution": 6, "pooling": 2, "concat": 3, "matmul": 1}
    for form in FORMS:
        assert kinds(statically(convolutional(), tmp_path, form, "s8")) == wanted
        found = kinds(statically(attention(), tmp_path, form))
        assert found == {"eltwise": 2, "matmul": 6, "softmax": 1}


def test_resnet_in_bytes(tmp_path: Path) -> None:
    """53 convolutions, two poolings, a product and a softmax; the image is quantized, framed by its
    zero point and turned."""
    source = load(LIGHT / "light_resnet50.onnx").with_random_weights(1)
    proto = onnx.load_from_string(source.to_onnx())
    quant_pre_process(proto, str(tmp_path / "folded.onnx"), skip_symbolic_shape=True)
    model = statically(onnx.load(tmp_path / "folded.onnx"), tmp_path, src="s8")
    wanted = {
        "eltwise": 1,
        "reorder": 1,
        "concat": 2,
        "convolution": 53,
        "pooling": 2,
        "matmul": 1,
        "softmax": 1,
    }
    assert kinds(model) == wanted
    assert not floats_left(model)


@pytest.mark.parametrize(
    "pads", [{"pads": [2, 0, 1, 3], "dilations": [1, 2]}, {"auto_pad": "SAME_LOWER"}]
)
@pytest.mark.parametrize("group", [1, 2])
def test_padding_is_written_out_as_the_zero_point(pads: dict[str, Any], group: int) -> None:
    """Where dst is larger than src: exact beside sums that lack what padding has none of."""
    rng = np.random.default_rng(6)
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], "a"),
        node("DequantizeLinear", ["w", "v"], "b"),
        node("Conv", ["a", "b"], "y", group=group, **pads),
    ]
    constants = {
        "s": np.float32(0.5),
        "z": np.uint8(201),
        "v": np.float32(0.25),
        "w": rng.integers(-128, 128, (20, 4 // group, 2, 3)).astype(np.int8),
    }
    proto = single(nodes, constants, (2, 4, 7, 6), "y", "float32")
    model, x = model_of(proto), rng.integers(0, 256, (2, 4, 7, 6)).astype(np.uint8)
    session = model.compile(Engine("cpu"))
    assert "concat" in [layer.primitive for layer in session.layers]
    np.testing.assert_array_equal(session.run({"x": x})["y"], run_peer(proto, {"x": x})["y"])


def single(nodes: Any, constants: dict[str, Any], x: tuple[int, ...], out: str, dtype: str) -> Any:
    return make_model(nodes, {"x": x}, ["y"], constants, opset=19, kinds={"x": "uint8", "y": dtype})


def microsoft(op: str, inputs: list[str], **attrs: Any) -> Any:
    return node(op, inputs, "y", domain="com.microsoft", **attrs)


BINARY = ("x", "s", "z", "c", "t", "q", "u", "p")
UNARY = ("x", "s", "z", "u", "p")
OPERATORS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "QLinearAdd": (BINARY, {}),
    "QLinearMul": (BINARY, {}),
    "QLinearSigmoid": (UNARY, {}),
    "QLinearLeakyRelu": (UNARY, {"alpha": 0.3}),
    "QLinearGlobalAveragePool": (UNARY, {}),
    "QLinearAveragePool": (UNARY, {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1]}),
    "QLinearConcat": (("u", "p", "x", "s", "z", "c", "t", "q"), {"axis": 1}),
    "QLinearSoftmax": (UNARY, {"axis": -1, "opset": 13}),
}


@pytest.mark.parametrize("op", OPERATORS)
def test_operator_of_microsoft(op: str) -> None:
    """Single operators, with an odd zero point: at most one step off, and that rarely."""
    rng = np.random.default_rng(3)
    shape = (2, 5, 6, 7)
    constants = {
        "s": np.float32(0.031),
        "z": np.uint8(77),
        "t": np.float32(0.02),
        "q": np.uint8(131),
        "u": np.float32(1 / 256 if op == "QLinearSoftmax" else 0.043),
        "p": np.uint8(0 if op == "QLinearSoftmax" else 113),
        "c": rng.integers(0, 256, shape).astype(np.uint8),
    }
    inputs, attrs = OPERATORS[op]
    used = {name: constants[name] for name in inputs if name in constants}
    proto = single([microsoft(op, list(inputs), **attrs)], used, shape, "y", "uint8")
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    x = rng.integers(0, 256, shape).astype(np.uint8)
    expected = run_peer(proto, {"x": x})["y"].astype(int)
    for layout in LAYOUTS:
        got = model_of(proto).compile(Engine("cpu"), layout=layout).run({"x": x})["y"]
        difference = np.abs(got.astype(int) - expected)
        assert got.dtype == np.uint8
        assert difference.max() <= 1
        assert np.count_nonzero(difference) <= 0.02 * difference.size, np.count_nonzero(difference)


def exact_model(opset: int, scale: Array, zero: Array, x: Array) -> Any:
    axis = {"axis": 1} if scale.ndim and opset >= 13 else {}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q", **axis),
        node("DequantizeLinear", ["q", "s", "z"], "y", **axis),
    ]
    kinds = {"q": str(zero.dtype)}
    return make_model(nodes, {"x": x.shape}, ["q", "y"], {"s": scale, "z": zero}, opset, kinds)


@pytest.mark.parametrize("opset", [10, 13, 19, 21])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_rounding_is_half_to_even_before_the_zero_point(opset: int, dtype: str) -> None:
    """Every half between the bounds and beyond, with an odd zero point, bit for bit."""
    x = np.arange(-400, 400, dtype=np.float32).reshape(2, 4, 100) / 2
    scales: list[Array] = [np.float32(0.5) * np.ones((), np.float32)]
    if opset >= 13:
        scales.append(np.array([0.25, 1, 2, 0.37], np.float32))
    for scale in scales:
        zero = np.full(scale.shape, 77, dtype)
        proto = exact_model(opset, scale, zero, x)
        expected = run_peer(proto, {"x": x})
        got = model_of(proto).compile(Engine("cpu")).run({"x": x})
        for name, array in expected.items():
            assert got[name].dtype == array.dtype
            np.testing.assert_array_equal(got[name], array, f"{name} {scale}")


def test_channels_last_is_refused() -> None:
    constants = {"s": np.float32(1), "z": np.uint8(0), "u": np.float32(1), "p": np.uint8(0)}
    nodes = [microsoft("QLinearGlobalAveragePool", list(UNARY), channels_last=1)]
    proto = single(nodes, constants, (1, 4, 4, 3), "y", "uint8")
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(Unimplemented, match="channels_last = 1"):
        model_of(proto).compile(Engine("cpu"))


@every_isa
@pytest.mark.parametrize(("zeros", "padded"), [((3, 0), True), ((200, 5), True), ((9, 7), False)])
def test_integer_sums_are_exact(zeros: tuple[int, int], padded: bool, isa: str) -> None:
    """On every instruction set, with bytes at their bounds."""
    rng = np.random.default_rng(4)
    x = rng.choice(np.array([0, 1, 254, 255], np.uint8), (1, 70, 5, 6))
    w = rng.choice(np.array([-128, -127, 126, 127], np.int8), (19, 70, 3, 3))
    nodes = [node("ConvInteger", ["x", "w", "zx", "zw"], "y", pads=[int(padded)] * 4)]
    constants = {"w": w, "zx": np.uint8(zeros[0]), "zw": np.int8(zeros[1])}
    proto = single(nodes, constants, x.shape, "y", "int32")
    expected = run_peer(proto, {"x": x})["y"]
    with config.override("max_cpu_isa", isa):
        got = model_of(proto).compile(Engine("cpu")).run({"x": x})["y"]
    np.testing.assert_array_equal(got, expected)


def quantized_host(op: str, inputs: list[str], **attrs: Any) -> Any:
    rng = np.random.default_rng(0)
    constants = {
        "s": np.float32(0.05),
        "z": np.uint8(77),
        "c": rng.uniform(0.5, 1, 8),
        "l": rng.uniform(0.5, 1, 6),
        "w": rng.standard_normal((8, 8, 3, 3)),
        "m": rng.standard_normal((6, 5)),
        "a": np.array([1]),
        "k": np.array([1.0, 1.0, 2.0, 2.0]),
    }
    nodes = [node(op, inputs, "t", **attrs), node("QuantizeLinear", ["t", "s", "z"], "y")]
    used = {name: constants[name] for name in (*inputs, "s", "z") if name in constants}
    return make_model(nodes, {"x": [2, 8, 5, 6]}, ["y"], used, 17, {"y": "uint8"})


HOSTS: tuple[tuple[str, list[str], dict[str, Any], int], ...] = (
    ("AveragePool", ["x"], {"kernel_shape": [2, 2]}, 1),
    ("BatchNormalization", ["x", "c", "c", "c", "c"], {}, 2),
    ("Conv", ["x", "w"], {}, 1),
    ("ConvTranspose", ["x", "w"], {}, 1),
    ("Erf", ["x"], {}, 1),
    ("LayerNormalization", ["x", "l"], {}, 1),
    ("MatMul", ["x", "m"], {}, 1),
    ("MaxPool", ["x"], {"kernel_shape": [2, 2]}, 2),
    ("ReduceMean", ["x"], {"axes": [1]}, 1),
    ("Resize", ["x", "", "k"], {"mode": "linear"}, 1),
    ("Softmax", ["x"], {}, 1),
)


@pytest.mark.parametrize(("op", "inputs", "attrs", "steps"), HOSTS, ids=[row[0] for row in HOSTS])
def test_floats_are_quantized_where_they_are_computed(
    op: str, inputs: list[str], attrs: dict[str, Any], steps: int
) -> None:
    proto = quantized_host(op, inputs, **attrs)
    model = model_of(proto)
    feeds = random_feeds(model)
    session = model.compile(Engine("cpu"), layout="plain")
    difference = np.abs(
        session.run(feeds)["y"].astype(int) - run_peer(proto, feeds)["y"].astype(int)
    )
    assert len(session.layers) == steps
    assert difference.max() <= 1
    assert np.count_nonzero(difference) <= 1


def test_quantized_behind_several_views() -> None:
    """The floats are quantized before the first of them, and bytes are moved."""
    nodes = [
        node("Concat", ["x", "x"], "a", axis=1),
        node("Transpose", ["a"], "b", perm=[0, 2, 1, 3]),
        node("Reshape", ["b", "shape"], "c"),
        node("QuantizeLinear", ["c", "s", "z"], "y"),
    ]
    constants = {"s": np.float32(0.03), "z": np.uint8(99), "shape": np.array([2, 5, -1])}
    proto = make_model(nodes, {"x": [2, 3, 5, 4]}, ["y"], constants, 17, {"y": "uint8"})
    model = model_of(proto)
    feeds = random_feeds(model)
    got = model.compile(Engine("cpu")).run(feeds)["y"]
    np.testing.assert_array_equal(got, run_peer(proto, feeds)["y"])


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("x", [(5, 33), (2, 3, 33)], ids=str)
def test_weights_that_are_transposed(x: tuple[int, ...], zero: int) -> None:
    """As torch.nn.Linear has them: a row and a scale for each output."""
    rng = np.random.default_rng(7)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q"),
        node("DequantizeLinear", ["q", "s", "z"], "a"),
        node("DequantizeLinear", ["w", "v", "u"], "b", axis=0),
        node("Transpose", ["b"], "t", perm=[1, 0]),
        node("MatMul", ["a", "t"], "y"),
    ]
    constants = {
        "s": np.float32(0.03),
        "z": np.uint8(99),
        "w": rng.integers(-128, 128, (20, 33)).astype(np.int8),
        "v": rng.uniform(0.01, 0.1, 20).astype(np.float32),
        "u": np.full(20, zero, np.int8),
    }
    proto = make_model(nodes, {"x": list(x)}, ["y"], constants, 17)
    model = model_of(proto)
    assert floats_left(model) == []
    feeds = random_feeds(model)
    np.testing.assert_allclose(
        model.compile(Engine("cpu")).run(feeds)["y"],
        run_peer(proto, feeds)["y"],
        rtol=1e-5,
        atol=1e-5,
    )


DYNAMIC: tuple[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ("MatMul", (5, 33), (33, 20), {}),
    ("MatMul", (2, 3, 33), (33, 20), {}),
    ("MatMul", (33,), (33, 20), {}),
    ("Gemm", (5, 33), (33, 20), {"alpha": 0.5, "beta": 2.0}),
    ("Conv", (2, 6, 7, 5), (20, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
    ("Conv", (2, 6, 9), (20, 3, 3), {"group": 2}),
)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("op", "x", "w", "attrs"), DYNAMIC, ids=str)
def test_scales_of_a_run_between_conversions(
    op: str, x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], per_channel: bool
) -> None:
    """The product is one of bytes, and takes in the scale that the run computes."""
    rng = np.random.default_rng(8)
    axis = 0 if op == "Conv" else 1
    bias = ["c"] if op != "MatMul" else []
    nodes = [
        node("DynamicQuantizeLinear", ["x"], "q", "s", "z"),
        node("DequantizeLinear", ["q", "s", "z"], "a"),
        node("DequantizeLinear", ["w", "v"], "b", axis=axis),
        node(op, ["a", "b", *bias], "y", **attrs),
    ]
    constants = {
        "w": rng.integers(-128, 128, w).astype(np.int8),
        "v": rng.uniform(0.01, 0.1, 20 if per_channel else ()).astype(np.float32),
        "c": rng.standard_normal(20).astype(np.float32),
    }
    used = {name: constants[name] for name in ("w", "v", *bias)}
    proto = make_model(nodes, {"x": list(x)}, ["y"], used, 17)
    model = model_of(proto)
    assert floats_left(model) == []
    feeds = random_feeds(model)
    np.testing.assert_allclose(
        model.compile(Engine("cpu")).run(feeds)["y"],
        run_peer(proto, feeds)["y"],
        rtol=1e-4,
        atol=1e-4,
    )
