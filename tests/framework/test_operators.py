"""Every operator and fusion, compiled both ways, against ONNX Runtime and ONNX's own cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from dnnl import config
from dnnl.errors import Unimplemented
from dnnl.framework.model import load
from dnnl.framework.session import Session
from dnnl.lowering.graphs import LAYOUTS
from dnnl.onnx.read import read_tensor
from dnnl.operators.algorithms import ELTWISE
from dnnl.runtime.engine import Engine
from tests.framework.models import (
    Array,
    assert_same,
    feeds_for,
    make_model,
    model_of,
    node,
    run_peer,
)
from tests.pairs import every_pair

Case = tuple[list[Any], dict[str, tuple[int, ...]], dict[str, Any]]
DATA = Path(onnx.__file__).parent / "backend/test/data"
IMAGE = {"x": (2, 20, 7, 6)}


def random(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agree(
    proto: Any, layout: str, tolerance: float = 2e-5, feeds: dict[str, Array] | None = None
) -> Session:
    """Compile and run a model, and hold it against ONNX Runtime."""
    model = model_of(proto)
    session = model.compile(Engine("cpu"), layout=layout, num_threads=1)
    feeds = feeds or feeds_for(model.graph)
    assert_same(session.run(feeds), run_peer(proto, feeds), tolerance)
    return session


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1d": ((2, 5, 9), (7, 5, 3), {}),
    "3d": ((1, 4, 5, 6, 7), (8, 4, 3, 2, 3), {"strides": [1, 2, 1]}),
    "strided": ((2, 16, 9, 8), (32, 16, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "asymmetric": ((1, 3, 8, 8), (16, 3, 5, 3), {"pads": [2, 0, 1, 3]}),
    "dilated": ((1, 8, 11, 12), (8, 8, 3, 3), {"dilations": [2, 3]}),
    "grouped": ((2, 12, 6, 6), (24, 3, 3, 3), {"group": 4}),
    "depthwise": ((1, 20, 6, 5), (20, 1, 3, 3), {"group": 20, "pads": [1, 1, 1, 1]}),
    "same_upper": ((1, 4, 7, 8), (6, 4, 4, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    "same_lower": ((1, 4, 7, 8), (6, 4, 4, 3), {"auto_pad": "SAME_LOWER"}),
    "valid": ((1, 4, 7, 8), (6, 4, 3, 3), {"auto_pad": "VALID"}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str, layout: str) -> None:
    source, weights, attrs = CONVOLUTIONS[name]
    proto = make_model(
        [node("Conv", ["x", "w", "b"], "y", **attrs)],
        {"x": source},
        ["y"],
        {"w": random(*weights), "b": random(weights[0], seed=2)},
    )
    agree(proto, layout)


def test_weights_that_the_model_computes() -> None:
    nodes = [node("Relu", ["z"], "w"), node("Conv", ["x", "w"], "y")]
    agree(make_model(nodes, {"x": (1, 4, 5, 5), "z": (6, 4, 3, 3)}, ["y"]), "propagate")


POOLINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "max": ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    "max_dilated": ("MaxPool", {"kernel_shape": [2, 2], "dilations": [2, 3]}),
    "max_ceil": ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "max_same": ("MaxPool", {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
    "average": ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "average_ceil": ("AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "average_include": (
        "AveragePool",
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "global_average": ("GlobalAveragePool", {}),
    "global_max": ("GlobalMaxPool", {}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", POOLINGS)
def test_pooling(name: str, layout: str) -> None:
    op, attrs = POOLINGS[name]
    agree(make_model([node(op, ["x"], "y", **attrs)], IMAGE, ["y"]), layout)


@pytest.mark.parametrize("axes", [[2, 3], [1], [-1], [0, 1, 2, 3]])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_mean(axes: list[int], keepdims: int) -> None:
    mean = node("ReduceMean", ["x"], "y", axes=axes, keepdims=keepdims)
    agree(make_model([mean], IMAGE, ["y"]), "propagate")


SLOPES = ((2, 20, 7, 6), (20, 1, 1), (1,), (6,), (7, 1), (2, 1, 1, 1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("slopes", SLOPES)
def test_prelu(slopes: tuple[int, ...], layout: str) -> None:
    """Behind a convolution, whose layout stays; with slopes that the model computes as well."""
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("PRelu", ["c", "s"], "p"),
        node("PRelu", ["p", "z"], "y"),
    ]
    constants = {"w": random(20, 20, 1, 1), "s": random(*slopes)}
    agree(make_model(nodes, {**IMAGE, "z": slopes}, ["y"], constants), layout)


def test_prelu_of_integers_is_exact() -> None:
    whole = np.array([[2**30, -5, 7, -(2**31)], [-3, 0, 2**31 - 1, -(2**24) - 1]], np.int32)
    slopes = np.array([3, -1, 2, 1], np.int32)
    kinds = dict.fromkeys("xy", "int32")
    proto = make_model(
        [node("PRelu", ["x", "s"], "y")], {"x": whole.shape}, ["y"], {"s": slopes}, kinds=kinds
    )
    got = model_of(proto).compile(Engine("cpu")).run({"x": whole})["y"]
    np.testing.assert_array_equal(got, np.where(whole < 0, whole * slopes, whole))


ATTRIBUTES: dict[str, dict[str, Any]] = {
    "LeakyRelu": {"alpha": 0.2},
    "Elu": {"alpha": 0.7},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
}
POSITIVE = ("Log", "Sqrt", "Reciprocal")


@pytest.mark.parametrize("op", sorted(ELTWISE.keys() - {"Gelu", "Clip", "Swish"}))
def test_functions_of_one_source(op: str) -> None:
    proto = make_model(
        [node(op, ["x"], "y", **ATTRIBUTES.get(op, {}))], {"x": (3, 41)}, ["y"], {}, 18
    )
    feeds = {"x": random(3, 41)}
    if op in POSITIVE:
        feeds["x"] = np.abs(feeds["x"]) + 0.1
    agree(proto, "propagate", 1e-4, feeds)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    gelu = node("Gelu", ["x"], "y", approximate=approximate)
    agree(make_model([gelu], {"x": (3, 41)}, ["y"], {}, 20), "propagate", 1e-4)


@pytest.mark.parametrize(
    ("inputs", "constants"),
    [
        (["x", "low", "high"], {"low": np.float32(-0.5), "high": np.float32(0.25)}),
        (["x", "low"], {"low": np.float32(0.0)}),
        (["x", "", "high"], {"high": np.float32(0.0)}),
    ],
)
def test_clip(inputs: list[str], constants: dict[str, Any]) -> None:
    agree(make_model([node("Clip", inputs, "y")], {"x": (3, 41)}, ["y"], constants), "propagate")


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
@pytest.mark.parametrize("shape", [(2, 20, 7, 6), (20, 1, 1), (6,), (1,), (2, 1, 7, 1)])
def test_functions_of_two_sources(op: str, shape: tuple[int, ...]) -> None:
    agree(make_model([node(op, ["x", "z"], "y")], {**IMAGE, "z": shape}, ["y"]), "propagate", 1e-4)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow"])
def test_scalar_constants(op: str) -> None:
    constants = {"c": np.float32(2.0)}
    feeds = {"x": np.abs(random(3, 41)) + 0.1}
    for inputs in (["x", "c"], ["c", "x"]):
        if op == "Pow" and inputs[0] == "c":
            continue
        proto = make_model([node(op, inputs, "y")], {"x": (3, 41)}, ["y"], constants)
        agree(proto, "propagate", 1e-4, feeds)


@pytest.mark.parametrize("op", ["Sum", "Pow", "Add", "Max", "Sqrt", "Softmax", "MaxPool", "Concat"])
def test_what_follows_is_fused_only_where_the_primitive_takes_it(op: str) -> None:
    sources = {"Sum": ["x", "z", "x"], "Pow": ["x", "two"], "Add": ["x", "two"], "Max": ["x", "z"]}
    known: dict[str, dict[str, Any]] = {"MaxPool": {"kernel_shape": [1, 1]}, "Concat": {"axis": 1}}
    nodes = [
        node("Abs", ["x"], "p"),
        node(op, [s.replace("x", "p") for s in sources.get(op, ["x"])], "a", **known.get(op, {})),
        node("Mul", ["a", "z"], "b"),
        node("Relu", ["b"], "c"),
        node("Add", ["c", "x"], "y"),
    ]
    inputs = {"x": (2, 3, 4, 5), "z": (2, 3, 4, 5)}
    agree(make_model(nodes, inputs, ["y"], {"two": np.float32(2.0)}), "propagate", 1e-4)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_sum(count: int) -> None:
    inputs = dict.fromkeys("xzu"[:count], (2, 20, 5))
    agree(make_model([node("Sum", list(inputs), "y")], inputs, ["y"]), "propagate")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_concat(axis: int, layout: str) -> None:
    shapes = {name: [2, 20, 7, 6] for name in "xzu"}
    for extra, name in enumerate("xzu"):
        shapes[name][axis] += extra
    concat = node("Concat", list(shapes), "y", axis=axis)
    agree(make_model([concat], {n: tuple(s) for n, s in shapes.items()}, ["y"]), layout)


@every_pair(op=["Softmax", "LogSoftmax"], opset=[11, 13], axis=[0, 1, -1, None])
def test_softmax(op: str, opset: int, axis: int | None) -> None:
    attrs = {} if axis is None else {"axis": axis}
    proto = make_model([node(op, ["x"], "y", **attrs)], IMAGE, ["y"], {}, opset)
    agree(proto, "propagate", 1e-4)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_masked_row_is_not_a_number(op: str) -> None:
    """As exporters write attention: the mask is added, and a row of NaN becomes zeros."""
    nodes = [
        node("Add", ["x", "mask"], "s"),
        node(op, ["s"], "p", axis=-1),
        node("IsNaN", ["p"], "n"),
        node("Where", ["n", "zero", "p"], "y"),
    ]
    mask = np.where(np.arange(7)[:, np.newaxis] == 3, np.float32(-np.inf), random(7, 6))
    constants = {"mask": mask, "zero": np.zeros(1, np.float32)}
    session = agree(make_model(nodes, IMAGE, ["p", "y"], constants), "propagate", 1e-5)
    found = session.run({"x": random(*IMAGE["x"])})["p"]
    assert np.isnan(found[:, :, 3]).all()
    assert np.isnan(found).sum() == found.size // 7


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batch_normalization_alone(layout: str) -> None:
    constants = {n: random(20, seed=i) for i, n in enumerate(("s", "b", "m"))}
    constants["v"] = np.abs(random(20)) + 0.5
    nodes = [
        node("BatchNormalization", ["x", "s", "b", "m", "v"], "n", epsilon=1e-2),
        node("Relu", ["n"], "y"),
    ]
    assert len(agree(make_model(nodes, IMAGE, ["y"], constants), layout).layers) == 1


@pytest.mark.parametrize("behind_a_convolution", [True, False])
def test_batch_normalization_with_a_value_per_element_is_refused(
    behind_a_convolution: bool,
) -> None:
    constants = {n: np.abs(random(20, seed=i)) + 0.5 for i, n in enumerate("sbmv")}
    source = "a" if behind_a_convolution else "x"
    nodes = [
        node("Conv", ["x", "w"], "a"),
        node("BatchNormalization", [source, *"sbmv"], "y", spatial=0),
    ]
    proto = make_model(nodes, IMAGE, ["y"], {"w": random(20, 20, 1, 1), **constants}, 7)
    with pytest.raises(Unimplemented, match=r"node 'node_y' \(BatchNormalization\)"):
        model_of(proto).compile(Engine("cpu"))


def test_batch_normalization_with_results_of_training_is_refused() -> None:
    constants = {n: np.abs(random(20, seed=i)) + 0.5 for i, n in enumerate("sbmv")}
    normalization = node("BatchNormalization", [*"xsbmv"], "y", *"tuqr")
    proto = make_model([normalization], IMAGE, ["y"], constants, 9)
    with pytest.raises(Unimplemented, match="training before operator set 14"):
        model_of(proto).compile(Engine("cpu"))


@every_pair(
    trans_a=[0, 1],
    trans_b=[0, 1],
    constant=[True, False],
    bias=[None, (17,), (1,), (), (5, 17), (5, 1)],
)
def test_gemm(trans_a: int, trans_b: int, constant: bool, bias: tuple[int, ...] | None) -> None:
    a, b = (9, 5) if trans_a else (5, 9), (17, 9) if trans_b else (9, 17)
    inputs, constants = {"x": a}, {}
    if constant:
        constants["w"] = random(*b)
    else:
        inputs["w"] = b
    names = ["x", "w"]
    if bias is not None:
        names.append("c")
        constants["c"] = random(*bias, seed=2)
    gemm = node("Gemm", names, "y", transA=trans_a, transB=trans_b, alpha=0.5, beta=2.0)
    agree(make_model([gemm], inputs, ["y"], constants), "propagate")


def test_gemm_with_an_addend_that_the_model_computes() -> None:
    gemm = node("Gemm", ["x", "w", "c"], "y", beta=2.0)
    inputs = {"x": (5, 9), "c": (5, 17)}
    agree(make_model([gemm], inputs, ["y"], {"w": random(9, 17)}), "propagate")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5, 9), (9, 17)),
        ((2, 3, 5, 9), (9, 17)),
        ((2, 3, 5, 9), (2, 1, 9, 4)),
        ((9,), (9, 4)),
        ((5, 9), (9,)),
        ((9,), (9,)),
    ],
)
@pytest.mark.parametrize("constant", [True, False])
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], constant: bool) -> None:
    inputs = {"x": a} if constant else {"x": a, "w": b}
    constants = {"w": random(*b)} if constant else {}
    agree(make_model([node("MatMul", ["x", "w"], "y")], inputs, ["y"], constants), "propagate")


def test_transposed_source_of_a_product() -> None:
    nodes = [node("Transpose", ["x"], "t", perm=[0, 2, 1]), node("MatMul", ["t", "z"], "y")]
    proto = make_model(nodes, {"x": (2, 9, 5), "z": (2, 9, 4)}, ["y"])
    session = agree(proto, "propagate")
    assert [layer.primitive for layer in session.layers] == ["matmul"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_channel_shuffle(layout: str) -> None:
    nodes = [
        node("Conv", ["x", "w"], "a"),
        node("Reshape", ["a", "split"], "b"),
        node("Transpose", ["b"], "c", perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["c", "merged"], "d"),
        node("Conv", ["d", "v"], "y", group=4),
    ]
    constants = {
        "w": random(24, 20, 1, 1),
        "v": random(24, 6, 1, 1),
        "split": np.array([2, 4, 6, 7, 6]),
        "merged": np.array([2, 24, 7, 6]),
    }
    agree(make_model(nodes, IMAGE, ["y"], constants), layout)


def test_each_step_of_a_run_prints_one_verbose_line(capsys: pytest.CaptureFixture[str]) -> None:
    proto = make_model([node("Conv", ["x", "w"], "y")], IMAGE, ["y"], {"w": random(20, 20, 1, 1)})
    model = model_of(proto)
    with config.override("verbose", "profile_exec"):
        session = model.compile(Engine("cpu"), layout="plain")
        capsys.readouterr()
        session.run(feeds_for(model.graph))
    lines = capsys.readouterr().out.splitlines()
    assert sum(",exec," in line for line in lines) == len(session.layers)


def test_only_outputs_move_views() -> None:
    nodes = [
        node("Flatten", ["x"], "a"),
        node("Unsqueeze", ["a", "axes"], "b"),
        node("Squeeze", ["b", "axes"], "c"),
        node("Transpose", ["c"], "d"),
        node("Relu", ["d"], "y"),
    ]
    proto = make_model(nodes, IMAGE, ["y", "d"], {"axes": np.array([1])})
    session = agree(proto, "propagate")
    # Outputs are row-major.
    assert [layer.primitive for layer in session.layers] == ["eltwise", "reorder", "reorder"]


def test_local_response_normalization() -> None:
    lrn = node("LRN", ["x"], "y", size=5, alpha=0.5, beta=0.75, bias=1.5)
    agree(make_model([lrn], IMAGE, ["y"]), "propagate", 1e-4)
    defaults = node("LRN", ["x"], "y", size=3)
    agree(make_model([defaults], IMAGE, ["y"]), "plain", 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("read_again", [True, False])
def test_residual_is_added_in_place_only_where_nothing_reads_it_again(
    read_again: bool, layout: str
) -> None:
    nodes = [
        node("Conv", ["x", "w"], "a"),
        node("Relu", ["a"], "r"),
        node("Conv", ["r", "v"], "b"),
        node("Add", ["b", "r"], "c"),
        node("Relu", ["c"], "y"),
    ]
    outputs = ["y", "r"] if read_again else ["y"]
    constants = {"w": random(32, 20, 1, 1), "v": random(32, 32, 1, 1)}
    session = agree(make_model(nodes, IMAGE, outputs, constants), layout)
    assert [layer.primitive for layer in session.layers if layer.flops] == ["convolution"] * 2


def test_residual_that_is_the_source_too() -> None:
    nodes = [node("Conv", ["x", "w"], "a"), node("Add", ["a", "x"], "y")]
    agree(make_model(nodes, IMAGE, ["y"], {"w": random(20, 20, 1, 1)}), "propagate")


def test_two_residuals() -> None:
    nodes = [
        node("Conv", ["x", "w"], "a"),
        node("Conv", ["x", "v"], "b"),
        node("Conv", ["b", "w"], "c"),
        node("Add", ["c", "a"], "d"),
        node("Mul", ["d", "b"], "e"),
        node("Add", ["e", "b"], "y"),
    ]
    constants = {"w": random(20, 20, 1, 1), "v": random(20, 20, 1, 1, seed=2)}
    agree(make_model(nodes, IMAGE, ["y"], constants), "propagate")


def test_outputs_that_are_inputs_constants_or_shared() -> None:
    nodes = [
        node("Identity", ["x"], "same"),
        node("Constant", [], "fixed", value_floats=[1.0, 2.0]),
        node("Relu", ["x"], "r"),
        node("Identity", ["r"], "again"),
    ]
    agree(make_model(nodes, IMAGE, ["same", "fixed", "r", "again"]), "propagate")


def test_runs_do_not_disturb_each_other() -> None:
    nodes = [node("Conv", ["x", "w"], "a"), node("Relu", ["a"], "y")]
    model = model_of(make_model(nodes, IMAGE, ["y"], {"w": random(20, 20, 1, 1)}))
    session = model.compile(Engine("cpu"))
    first, second = feeds_for(model.graph, 1), feeds_for(model.graph, 2)
    kept = session.run(first)
    copy = kept["y"].copy()
    session.run(second)
    np.testing.assert_array_equal(kept["y"], copy)
    timed, spans = session.run_timed(first)
    np.testing.assert_array_equal(timed["y"], copy)
    assert len(spans) == len(session.layers)
    assert all(span.start <= span.stop for span in spans)


# ONNX's own cases with recorded data, and why some of them are refused.
ONNX_CASES = sorted(
    path
    for kind in ("pytorch-converted", "pytorch-operator", "simple")
    for path in (DATA / kind).iterdir()
    if (path / "test_data_set_0").is_dir()
)
NOT_RUN = (
    *("ConcatFromSequence", "Expand", "Gradient", "slopes of channels"),
    *("SequenceAt", "SequenceLength", "Shrink", "Split", "StringNormalizer"),
)


@pytest.mark.parametrize("path", ONNX_CASES, ids=lambda path: path.name)
def test_onnx_case(path: Path) -> None:
    folder = path / "test_data_set_0"
    refusal = ""
    try:
        model = load(path / "model.onnx")
        arrays = [read_tensor(folder / f"input_{i}.pb") for i in range(len(model.inputs))]
        feeds = dict(zip(model.inputs, arrays, strict=True))
        model = model.with_shapes({name: array.shape for name, array in feeds.items()})
        session = model.compile(Engine("cpu"), num_threads=1)
    except Unimplemented as error:
        refusal = str(error)
    if refusal:
        assert any(reason in refusal for reason in NOT_RUN), refusal
        return
    expected = {
        name: read_tensor(folder / f"output_{i}.pb") for i, name in enumerate(session.outputs)
    }
    assert_same(session.run(feeds), expected, 1e-3)
