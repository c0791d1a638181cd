"""Reading models: what is no usable model is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.framework.graph import ModelError
from dnnl.framework.model import load
from dnnl.framework.onnx_model import graph_to_proto, read_tensor
from dnnl.framework.specialize import specialize
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
        [node("Relu", ["x"], "a"), node("Frobnicate", ["a"], "b"), node("NonZero", ["b"], "y")],
        {"x": [1, 2]},
        ["y"],
    )
    with pytest.raises(Unimplemented) as caught:
        specialize(graph_of(proto))
    assert caught.value.reasons == (
        "operator Frobnicate of node 'node_b'",
        "operator NonZero of node 'node_y'",
    )


def test_operator_of_another_domain_is_unknown() -> None:
    proto = make_model([node("Relu", ["x"], "y", domain="com.acme")], {"x": [1, 2]}, ["y"])
    with pytest.raises(Unimplemented, match=r"operator com\.acme\.Relu of node 'node_y'"):
        specialize(graph_of(proto))


def test_missing_external_data(tmp_path: Path) -> None:
    proto = make_model(
        [node("Add", ["x", "w"], "y")], {"x": [100]}, ["y"], {"w": np.ones(100, np.float32)}
    )
    path = tmp_path / "model.onnx"
    onnx.save_model(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    assert np.array_equal(load(path).graph.constants["w"], np.ones(100))
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"tensor 'w' lies in the external file 'w\.bin'"):
        load(path)


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


def test_open_batch_is_one_unless_given() -> None:
    model = model_of(make_model([node("Relu", ["x"], "y")], {"x": ["n", 4]}, ["y"]))
    assert specialize(model.graph).shape_of("y") == (1, 4)
    assert specialize(model.graph, {"x": (3, 4)}).shape_of("y") == (3, 4)
    assert specialize(model.with_batch(5).graph).shape_of("y") == (5, 4)
    with pytest.raises(InvalidArguments, match=r"input 'x'.*wrong shape"):
        specialize(model.graph, {"x": (3, 5)})
    with pytest.raises(InvalidArguments, match="batch = 0"):
        model.with_batch(0)


def test_other_open_dimension_needs_an_array() -> None:
    model = model_of(make_model([node("Relu", ["x"], "y")], {"x": ["n", "width"]}, ["y"]))
    with pytest.raises(InvalidArguments, match=r"'width'.*give an array"):
        specialize(model.graph)
    assert specialize(model.graph, {"x": (2, 7)}).shape_of("y") == (2, 7)


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
