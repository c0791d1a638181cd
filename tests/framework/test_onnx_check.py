"""What ONNX Runtime refuses to load is refused here, and what it loads in spite of ONNX is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dnnl.errors import Error, Unimplemented
from dnnl.framework.model import Model, load
from dnnl.graph.graph import ModelError
from tests.framework.models import assert_same, feeds_for, make_model, node, run_peer
from tests.pairs import every_pair

IMAGE = {"x": (1, 4, 6, 6)}


def small() -> Any:
    """Two elementwise nodes."""
    return make_model([node("Relu", ["x"], "a"), node("Neg", ["a"], "y")], IMAGE, ["y"])


def load_proto(proto: Any, folder: Path) -> Model:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return load(path)


def declared(name: str, shape: list[int | str] | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def operator_sets(*versions: int) -> Callable[[Any], None]:
    def change(proto: Any) -> None:
        del proto.opset_import[:]
        proto.opset_import.extend(helper.make_operatorsetid("", v) for v in versions)

    return change


NEWEST = onnx.defs.onnx_opset_version()

DAMAGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "operator set 99": (operator_sets(99), rf"operator set 99: onnx .* knows 1 to {NEWEST}"),
    "operator set 0": (operator_sets(0), rf"expected one version .* from 1 to {NEWEST}"),
    "operator set below 0": (operator_sets(-1), r"expected one version"),
    "two operator sets": (operator_sets(13, 17), r"operator sets \[13, 17\]: expected one"),
    "IR version below 0": (lambda p: setattr(p, "ir_version", -1), "IR version -1; models with"),
    "IR version": (lambda p: setattr(p, "ir_version", 99), "ir_version 99 is higher"),
    "attribute": (
        lambda p: p.graph.node[0].attribute.append(helper.make_attribute("foo", 1)),
        "Unrecognized attribute: foo for operator Relu.*Name: node_a",
    ),
    "type of an output": (
        lambda p: p.graph.output[0].CopyFrom(declared("y", None, TensorProto.INT64)),
        "node name: node_y.*elem type differs",
    ),
    "no type of an output": (
        lambda p: p.graph.output[0].type.tensor_type.ClearField("elem_type"),
        "output 'y' has no element type",
    ),
    "two inputs of one name": (
        lambda p: p.graph.input.append(p.graph.input[0]),
        "two inputs have the same name",
    ),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_refused_on_load(case: str, tmp_path: Path) -> None:
    change, reason = DAMAGES[case]
    proto = small()
    change(proto)
    with pytest.raises(Error, match=reason):
        load_proto(proto, tmp_path)


@every_pair(
    op=["MaxPool", "AveragePool"],
    pads=[[3, 0, 0, 0], [0, 0, 0, 2], [2, 2, 2, 2], [1, 1, 1, 1], [-1, 0, 0, 0]],
    dilation=[1, 2],
)
def test_padding_of_a_pooling(op: str, pads: list[int], dilation: int, tmp_path: Path) -> None:
    attrs = {"kernel_shape": [2, 2], "pads": pads, "dilations": [dilation] * 2}
    proto = make_model([node(op, ["x"], "y", **attrs)], IMAGE, ["y"], opset=19)
    if pads == [1, 1, 1, 1]:
        model = load_proto(proto, tmp_path)
        feeds = feeds_for(model.graph)
        assert_same(model.compile().run(feeds), run_peer(proto, feeds), 1e-5)
        return
    with pytest.raises(Exception, match=r"smaller than kernel|must not contain negative"):
        run_peer(proto, {})
    rule = r"node 'node_y'.*'pads' = .* must be (smaller than the kernel \(2, 2\)|at least 0)"
    with pytest.raises(ModelError, match=rule):
        load_proto(proto, tmp_path).compile()


def test_padding_of_a_convolution_may_be_large(tmp_path: Path) -> None:
    weights = {"w": np.random.default_rng(2).standard_normal((8, 4, 3, 3))}
    proto = make_model([node("Conv", ["x", "w"], "y", pads=[5] * 4)], IMAGE, ["y"], weights)
    model = load_proto(proto, tmp_path)
    feeds = feeds_for(model.graph)
    assert_same(model.compile().run(feeds), run_peer(proto, feeds), 1e-5)
    proto = make_model([node("Conv", ["x", "w"], "y", pads=[-1] * 4)], IMAGE, ["y"], weights)
    with pytest.raises(ModelError, match=r"node 'node_y' \(Conv\).*'pads' = .* at least 0"):
        load_proto(proto, tmp_path)


def test_what_onnx_forbids_and_others_run(tmp_path: Path) -> None:
    proto = small()
    proto.graph.name = ""
    proto.ir_version = 3  # whose initializers must be inputs
    proto.graph.node.append(node("Add", ["y", "w"], "z"))
    proto.graph.output[0].name = "z"
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(6, np.float32), "w"))
    proto.graph.value_info.append(declared("a", [1, 5, 6, 6]))
    model = load_proto(proto, tmp_path)
    feeds = feeds_for(model.graph)
    assert_same(model.compile().run(feeds), run_peer(proto, feeds), 1e-6)


@pytest.mark.parametrize("shape", [[8, 4, 6, 6], [1, 4, 6, 7], [1, 4], ["n", 4, 6, 6], None])
def test_stale_shapes_of_outputs(shape: list[int | str] | None, tmp_path: Path) -> None:
    proto = small()
    proto.graph.output[0].CopyFrom(declared("y", shape))
    model = load_proto(proto, tmp_path)
    feeds = feeds_for(model.graph)
    assert_same(model.compile().run(feeds), run_peer(proto, feeds), 1e-6)


def test_weights_that_no_protobuf_holds_twice(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    constants = {"w": rng.standard_normal((256, 300)), "s": np.array([-1, 3, 100])}
    nodes = [node("MatMul", ["x", "w"], "p"), node("Reshape", ["p", "s"], "y")]
    proto = make_model(nodes, {"x": (4, 256)}, ["y"], constants)
    model = load_proto(proto, tmp_path)
    feeds = feeds_for(model.graph)
    assert_same(model.compile().run(feeds), run_peer(proto, feeds), 1e-5)
    proto.graph.output[0].CopyFrom(declared("y", None, TensorProto.INT64))
    with pytest.raises(ModelError, match="elem type differs"):
        load_proto(proto, tmp_path)


def test_a_model_of_another_domain_lists_its_operators(tmp_path: Path) -> None:
    scaler = helper.make_node("Scaler", ["x"], ["y"], name="scale", domain="ai.onnx.ml")
    proto = make_model([scaler], {"x": (1, 4)}, ["y"])
    del proto.opset_import[:]
    proto.opset_import.append(helper.make_operatorsetid("ai.onnx.ml", 3))
    with pytest.raises(Unimplemented, match=r"operator ai\.onnx\.ml\.Scaler of node 'scale'"):
        load_proto(proto, tmp_path)
    proto.graph.node[0].domain = "com.acme"
    with pytest.raises(Unimplemented, match=r"operator com\.acme\.Scaler of node 'scale'"):
        load_proto(proto, tmp_path)


def test_files_beyond_the_limit_of_protobuf(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(ModelError, match=r"2147483648 bytes.*at most 2 GiB.*external data"):
        load(path)


@pytest.mark.parametrize(
    ("op", "opset"),
    [
        ("SimplifiedLayerNormalization", 13),
        ("SimplifiedLayerNormalization", 21),
        ("LayerNormalization", 13),
    ],
)
def test_operators_that_onnx_runtime_has_in_onnx_own_domain(
    tmp_path: Path, op: str, opset: int
) -> None:
    proto = make_model(
        [node(op, ["x", "w"], "y", epsilon=1e-5)], {"x": ("s", 8), "w": (8,)}, ["y"], opset=opset
    )
    rng = np.random.default_rng(0)
    feeds = {
        name: rng.standard_normal(s).astype(np.float32) for name, s in (("x", (3, 8)), ("w", 8))
    }
    wanted = run_peer(proto, feeds)["y"]
    found = np.asarray(load_proto(proto, tmp_path)(feeds))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
