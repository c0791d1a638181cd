"""Reading models: what is no usable model is refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.framework.model import Model, load
from dnnl.graph.graph import JOINT, ModelError
from dnnl.onnx.read import read_tensor
from dnnl.onnx.write import graph_to_proto
from dnnl.passes.specialize import specialize
from tests.framework.models import LIGHT, graph_of, make_model, model_of, node

RESNET = LIGHT / "light_resnet50.onnx"


def relu() -> object:
    return make_model([node("Relu", ["x"], "y")], {"x": [1, 2]}, ["y"])


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.onnx: no such file"):
        load(tmp_path / "none.onnx")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"# a text file\n", "not an ONNX model"),
        (bytes(range(256)), "not an ONNX model"),
        (b"\x93NUMPY\x01\x00", "not an ONNX model"),
    ],
)
def test_not_a_model(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "file.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=reason):
        load(path)


@pytest.mark.parametrize("kept", [1, 2, 10, 100, 5000, 79000, -1, -2, -3])
def test_truncated_model(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(RESNET.read_bytes()[:kept])
    with pytest.raises(ModelError, match=r"cut\.onnx: truncated or damaged"):
        load(path)


def test_unknown_operators_are_named_with_their_nodes() -> None:
    proto = make_model(
        [
            node("Frobnicate", ["x"], "a"),
            node("Twiddle", ["a"], "b"),
            node("Frobnicate", ["b"], "y"),
        ],
        {"x": [1, 2]},
        ["y"],
    )
    with pytest.raises(Unimplemented) as caught:
        specialize(graph_of(proto))
    assert caught.value.reasons == (
        "operator Frobnicate of 2 nodes, the first is node 'node_a'",
        "operator Twiddle of node 'node_b'",
    )


def test_operator_of_another_domain_is_unknown() -> None:
    proto = make_model([node("Relu", ["x"], "y", domain="com.acme")], {"x": [1, 2]}, ["y"])
    with pytest.raises(Unimplemented, match=r"operator com\.acme\.Relu of node 'node_y'"):
        specialize(graph_of(proto))


def test_value_that_nothing_produces(tmp_path: Path) -> None:
    proto = make_model([node("Relu", ["nothing"], "y")], {"x": [1, 2]}, ["y"])
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=r"'node_y' \(Relu\) reads 'nothing'"):
        load(path)


def test_old_operator_sets_are_converted() -> None:
    add = node("Add", ["x", "z"], "y", broadcast=1)
    graph = graph_of(make_model([add], {"x": [2, 3, 4], "z": [4]}, ["y"], opset=6))
    assert graph.opset == 9
    assert specialize(graph).shape_of("y") == (2, 3, 4)
    unknown = make_model([node("Frobnicate", ["x"], "y")], {"x": [1]}, ["y"], opset=6)
    with pytest.raises(ModelError, match="operator set 6 cannot be converted"):
        graph_of(unknown)


def test_sizes_that_do_not_fit_name_the_node() -> None:
    proto = make_model(
        [node("Conv", ["x", "w"], "y")], {"x": [1, 3, 8, 8]}, ["y"], {"w": np.ones((4, 5, 3, 3))}
    )
    with pytest.raises(ModelError, match=r"node 'node_y' \(Conv\): source .* disagree"):
        specialize(graph_of(proto))


def test_nodes_without_names_get_their_own() -> None:
    nodes = [onnx.helper.make_node("Relu", [a], [b]) for a, b in ("xa", "ab", "by")]
    names = [n.name for n in graph_of(make_model(nodes, {"x": [1]}, ["y"])).nodes]
    assert len(set(names)) == 3


def test_open_batch_must_be_given() -> None:
    model = model_of(make_model([node("Relu", ["x"], "y")], {"x": ["n", 4]}, ["y"]))
    with pytest.raises(InvalidArguments, match=r"leaves n of float32 \[n, 4\] open.*batch=1"):
        model.compile()
    assert specialize(model.graph, {"x": (3, 4)}).shape_of("y") == (3, 4)
    assert specialize(model.with_batch(5).graph).shape_of("y") == (5, 4)
    with pytest.raises(InvalidArguments, match=r"input 'x'.*wrong shape"):
        specialize(model.graph, {"x": (3, 5)})


@pytest.mark.parametrize("batch", [0, -1, "4", 4.0, True, [1]])
def test_batch_is_a_positive_integer(batch: Any) -> None:
    model = model_of(make_model([node("Relu", ["x"], "y")], {"x": ["n", 4]}, ["y"]))
    with pytest.raises(InvalidArguments, match=r"batch = .*expected an integer of at least 1"):
        model.compile(batch=batch)


@pytest.mark.parametrize("sizes", [(-1, 4), (2.0, 4), (True, 4)])
def test_sizes_are_integers(sizes: Any) -> None:
    model = model_of(make_model([node("Relu", ["x"], "y")], {"x": ["n", 4]}, ["y"]))
    with pytest.raises(InvalidArguments, match="integers of at least 0"):
        model.with_shapes({"x": sizes})


def test_other_open_dimension_needs_its_size() -> None:
    model = model_of(make_model([node("Relu", ["x"], "y")], {"x": ["n", "width"]}, ["y"]))
    with pytest.raises(InvalidArguments, match=r"leaves n, width of .*with_shapes\({'x': \(1, 1\)"):
        specialize(model.graph)
    with pytest.raises(InvalidArguments, match=r"leaves width of .*with_shapes"):
        model.compile(batch=3)
    assert specialize(model.graph, {"x": (2, 7)}).shape_of("y") == (2, 7)


def test_sizes_may_be_of_numpy() -> None:
    model = model_of(make_model([node("Relu", ["x"], "y")], {"x": ["n", 4]}, ["y"]))
    two: Any = np.int64(2)
    for graph in (
        model.with_shapes({"x": (two, 4)}).graph,
        specialize(model.with_batch(two).graph),
    ):
        assert graph.shape_of("y") == (2, 4)
        assert all(type(size) is int for size in graph.shape_of("y"))


def with_a_window(batch: int | str) -> Model:
    """A convolution of 3x3 that no image of 1x1 holds, and a Reshape that spells a batch of 4."""
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("GlobalAveragePool", ["c"], "p"),
        node("Reshape", ["p", "s"], "y"),
    ]
    weights = np.random.default_rng(1).standard_normal((8, 3, 3, 3))
    constants = {"w": weights, "s": np.array([4, 8])}
    return model_of(make_model(nodes, {"x": [batch, 3, "h", "w"]}, ["y"], constants))


def test_batch_of_a_model_with_other_open_sizes() -> None:
    model = with_a_window("n")
    with pytest.raises(InvalidArguments, match=r"leaves h, w of .*with_shapes"):
        model.compile(batch=4)
    graph = model.with_batch(4).with_shapes({"x": (4, 3, 8, 8)}).graph
    assert graph.shape_of("y") == (4, 8)


def test_other_open_sizes_come_before_another_batch() -> None:
    model = with_a_window(4)
    with pytest.raises(InvalidArguments, match=r"leaves h, w of .*with_shapes\({'x': \(4, 3,"):
        model.with_batch(2)
    graph = specialize(model.with_shapes({"x": (4, 3, 8, 8)}).with_batch(2).graph)
    assert graph.shape_of("y") == (2, 8)


def test_batch_reaches_constant_reshape_targets() -> None:
    model = load(RESNET).with_batch(3)
    graph = specialize(model.graph)
    assert graph.shape_of("gpu_0/softmax_1") == (3, 1000)


def test_exported_graph_is_a_valid_model() -> None:
    graph = specialize(load(RESNET).graph)
    proto = graph_to_proto(graph)
    onnx.checker.check_model(proto)
    assert len(graph_of(proto).nodes) == len(graph.nodes) == 176


@pytest.mark.parametrize("name", ["array.npy", "array.pb"])
def test_tensor_files(tmp_path: Path, name: str) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = tmp_path / name
    if path.suffix == ".npy":
        np.save(path, array)
    else:
        path.write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())
    np.testing.assert_array_equal(read_tensor(path), array)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"truncated|damaged"):
        read_tensor(path)
    path.unlink()
    with pytest.raises(ModelError, match="no such file"):
        read_tensor(path)


def test_names_of_passes_are_none_of_a_file() -> None:
    """What passes name is named anew, apart from what there is; graphs inside too."""
    branch = make_model([node("Add", ["x", "s"], "inner")], {"x": (1, 4)}, ["inner"]).graph
    del branch.input[:]
    nodes = [
        node("Reshape", ["x", "shape"], "r"),
        node("Relu", ["r"], "r.shape"),
        node("Neg", ["r.shape"], "s"),
        node("If", ["flag"], "y", then_branch=branch, else_branch=branch),
    ]
    constants = {"shape": np.array([1, -1])}
    inputs = {"x": (1, 4), "flag": ()}
    graph = graph_of(make_model(nodes, inputs, ["y"], constants, kinds={"flag": np.bool_}))
    names = {"r": f"r{JOINT}shape"}
    renamed = replace(
        graph,
        nodes=tuple(
            replace(
                own,
                inputs=tuple(names.get(value, value) for value in own.inputs),
                outputs=tuple(names.get(value, value) for value in own.outputs),
            )
            for own in graph.nodes
        ),
    )
    proto = onnx.ModelProto()
    proto.ParseFromString(Model(renamed).to_onnx())
    x, flag = np.array([[1, -2, 3, -4]], np.float32), np.array(True)
    again = model_of(proto)
    assert "r.shape_" in {value for own in again.graph.nodes for value in own.outputs}
    np.testing.assert_array_equal(again(x, flag), Model(graph)(x, flag))
