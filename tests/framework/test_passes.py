"""What the passes make of a graph, and that it still computes the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dnnl.framework.compiler import optimize
from dnnl.framework.model import load
from dnnl.graph.graph import FUNCTION, Graph, Pass
from dnnl.onnx.write import graph_to_proto
from dnnl.passes.affine import fold_affine
from dnnl.passes.expand import expand
from dnnl.passes.fusion import fuse_post_ops
from dnnl.passes.identities import drop_identities, split_variadic
from dnnl.passes.specialize import specialize
from tests.framework.models import (
    LIGHT,
    Array,
    assert_same,
    feeds_for,
    graph_of,
    make_model,
    node,
    run_peer,
)

IMAGE = {"x": (2, 4, 6, 5)}


def random(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def normalization(channels: int) -> dict[str, Array]:
    values = {name: random(channels, seed=i) for i, name in enumerate(("s", "b", "m"))}
    return {**values, "v": np.abs(random(channels)) + 0.5}


def unchanged_by(proto: Any, passes: Sequence[Pass], tolerance: float = 1e-5) -> Graph:
    """The rewritten graph, after a check that it computes what the model does."""
    graph = specialize(graph_of(proto))
    for rewrite in passes:
        graph = rewrite(graph)
    feeds = feeds_for(graph)
    assert_same(run_peer(graph_to_proto(graph), feeds), run_peer(proto, feeds), tolerance)
    return graph


def test_identities_go() -> None:
    nodes = [
        node("Identity", ["x"], "a"),
        node("Dropout", ["a"], "b", "mask"),
        node("Reshape", ["b", "shape"], "c"),
        node("Transpose", ["c"], "d", perm=[0, 1, 2, 3]),
        node("Relu", ["d"], "e"),
        node("Identity", ["e"], "y"),
    ]
    proto = make_model(nodes, IMAGE, ["y"], {"shape": np.array([0, 0, -1, 5])})
    graph = drop_identities(specialize(graph_of(proto)))
    assert [n.op for n in graph.nodes] == ["Relu"]
    assert graph.outputs == {"y": "e"}
    assert graph.nodes[0].inputs == ("x",)


def test_a_mask_that_is_read_keeps_its_node() -> None:
    proto = make_model([node("Dropout", ["x"], "y", "mask")], IMAGE, ["y", "mask"])
    graph = drop_identities(specialize(graph_of(proto)))
    assert [n.op for n in graph.nodes] == ["Dropout"]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("group", [1, 2])
def test_normalization_goes_into_convolution(bias: bool, group: int) -> None:
    constants = {"w": random(8, 4 // group, 3, 3), "c": random(8), **normalization(8)}
    inputs = ["x", "w", "c"] if bias else ["x", "w"]
    nodes = [
        node("Conv", inputs, "a", group=group),
        node("BatchNormalization", ["a", "s", "b", "m", "v"], "n", epsilon=1e-3),
        node("Mul", ["n", "factor"], "f"),
        node("Sub", ["f", "shift"], "y"),
    ]
    constants["factor"], constants["shift"] = random(8, 1, 1), random(1, 8, 1, 1)
    graph = unchanged_by(make_model(nodes, IMAGE, ["y"], constants), [fold_affine])
    assert [n.op for n in graph.nodes] == ["Conv"]
    assert graph.nodes[0].fused == ("node_n", "node_f", "node_y")


@pytest.mark.parametrize("group", [1, 2])
def test_normalization_goes_into_deconvolution(group: int) -> None:
    constants = {"w": random(4, 6, 3, 3), "c": random(6 * group), **normalization(6 * group)}
    nodes = [
        node("ConvTranspose", ["x", "w", "c"], "a", group=group, strides=[2, 2]),
        node("BatchNormalization", ["a", "s", "b", "m", "v"], "y"),
    ]
    graph = unchanged_by(make_model(nodes, IMAGE, ["y"], constants), [fold_affine])
    assert [n.op for n in graph.nodes] == ["ConvTranspose"]


@pytest.mark.parametrize("trans_b", [0, 1])
def test_arithmetic_goes_into_matrix_products(trans_b: int) -> None:
    constants = {"w": random(6, 5) if trans_b else random(5, 6), "c": random(6), "d": random(6)}
    nodes = [
        node("Gemm", ["x", "w", "c"], "g", transB=trans_b, alpha=0.5, beta=3.0),
        node("Div", ["g", "d"], "y"),
    ]
    graph = unchanged_by(make_model(nodes, {"x": (3, 5)}, ["y"], constants), [expand, fold_affine])
    assert [n.op for n in graph.nodes] == ["Gemm"]


def test_arithmetic_stays_where_the_value_is_read_twice() -> None:
    nodes = [
        node("Conv", ["x", "w"], "a"),
        node("Mul", ["a", "f"], "b"),
        node("Add", ["a", "b"], "y"),
    ]
    constants = {"w": random(8, 4, 1, 1), "f": random(8, 1, 1)}
    graph = unchanged_by(make_model(nodes, IMAGE, ["y"], constants), [fold_affine])
    assert [n.op for n in graph.nodes] == ["Conv", "Mul", "Add"]


def test_factors_along_other_axes_stay() -> None:
    nodes = [node("Conv", ["x", "w"], "a"), node("Mul", ["a", "f"], "y")]
    constants = {"w": random(5, 4, 1, 1), "f": random(5)}
    graph = unchanged_by(make_model(nodes, IMAGE, ["y"], constants), [fold_affine])
    assert [n.op for n in graph.nodes] == ["Conv", "Mul"]


def test_long_sums_become_chains_only_where_they_broadcast() -> None:
    shapes = {"x": (2, 3), "z": (2, 3), "u": (3,)}
    broadcast = make_model([node("Sum", ["u", "x", "z"], "y")], shapes, ["y"])
    graph = unchanged_by(broadcast, [split_variadic])
    assert [n.op for n in graph.nodes] == ["Add", "Add"]
    plain = make_model([node("Sum", ["x", "z", "x"], "y")], {"x": (2, 3), "z": (2, 3)}, ["y"])
    assert [n.op for n in unchanged_by(plain, [split_variadic]).nodes] == ["Sum"]
    largest = make_model([node("Max", ["x", "z", "u"], "y")], shapes, ["y"])
    assert [n.op for n in unchanged_by(largest, [split_variadic]).nodes] == ["Max", "Max"]


def test_local_response_normalization_becomes_a_pooling_with_post_ops() -> None:
    proto = make_model(
        [node("LRN", ["x"], "y", size=3, alpha=0.1, beta=0.6, bias=2.0)], IMAGE, ["y"]
    )
    graph = optimize(specialize(graph_of(proto)))
    assert [n.op for n in graph.nodes] == ["Reshape", FUNCTION, "AveragePool", "Reshape"]
    algorithms = [p.alg for p in graph.nodes[2].post_ops]
    assert algorithms == ["eltwise_linear", "eltwise_linear", "eltwise_pow", "binary_mul"]


def test_relu_and_residual_become_post_ops() -> None:
    nodes = [
        node("Conv", ["x", "w"], "a"),
        node("Conv", ["x", "w"], "b"),
        node("Add", ["a", "b"], "c"),
        node("Relu", ["c"], "d"),
        node("Relu", ["d"], "y"),
    ]
    proto = make_model(nodes, IMAGE, ["y", "d"], {"w": random(4, 4, 1, 1)})
    graph = fuse_post_ops(specialize(graph_of(proto)))
    assert [n.name for n in graph.nodes] == ["node_a", "node_b", "node_y"]
    assert [(p.kind, p.alg, p.operands) for p in graph.nodes[1].post_ops] == [
        ("binary", "binary_add", ("a",)),
        ("eltwise", "eltwise_relu", ()),
    ]
    assert graph.nodes[1].output == "d"
    assert graph.nodes[1].fused == ("node_c", "node_d")


def test_value_plus_itself_is_not_fused() -> None:
    nodes = [node("Conv", ["x", "w"], "a"), node("Add", ["a", "a"], "y")]
    graph = fuse_post_ops(
        specialize(graph_of(make_model(nodes, IMAGE, ["y"], {"w": random(4, 4, 1, 1)})))
    )
    assert [n.op for n in graph.nodes] == ["Conv", "Add"]


def test_smaller_operand_does_not_host_a_larger_result() -> None:
    nodes = [node("Relu", ["z"], "a"), node("Add", ["a", "x"], "y")]
    graph = fuse_post_ops(specialize(graph_of(make_model(nodes, {"x": (2, 3), "z": (3,)}, ["y"]))))
    assert [n.op for n in graph.nodes] == ["Relu", "Add"]


def test_subtraction_from_the_left_is_not_turned_around() -> None:
    nodes = [node("Conv", ["x", "w"], "a"), node("Sub", ["x", "a"], "y")]
    proto = make_model(nodes, IMAGE, ["y"], {"w": random(4, 4, 1, 1)})
    assert [n.op for n in fuse_post_ops(specialize(graph_of(proto))).nodes] == ["Conv", "Sub"]


def test_at_most_32_post_ops() -> None:
    nodes = [node("Conv", ["x", "w"], "v0")]
    nodes += [node("Relu", [f"v{i}"], f"v{i + 1}") for i in range(40)]
    proto = make_model(nodes, IMAGE, ["v40"], {"w": random(4, 4, 1, 1)})
    graph = fuse_post_ops(specialize(graph_of(proto)))
    assert len(graph.nodes[0].post_ops) == 32
    assert len(graph.nodes) == 9


def test_resnet_has_no_loose_ends() -> None:
    graph = optimize(specialize(load(LIGHT / "light_resnet50.onnx").graph))
    assert Counter(n.op for n in graph.nodes) == {
        "Conv": 53,
        "MaxPool": 1,
        "AveragePool": 1,
        "Reshape": 1,
        "Gemm": 1,
        "Softmax": 1,
    }
    assert Counter(p.alg for n in graph.nodes for p in n.post_ops) == {
        "eltwise_relu": 49,
        "binary_add": 16,
    }


def test_shape_arithmetic_is_computed_beforehand() -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "zero"], "n"),
        node("Concat", ["n", "rest"], "target", axis=0),
        node("Reshape", ["x", "target"], "y"),
    ]
    constants = {"zero": np.array([0]), "rest": np.array([-1])}
    graph = specialize(graph_of(make_model(nodes, IMAGE, ["y"], constants)))
    assert [n.op for n in graph.nodes] == ["Reshape"]
    assert graph.shape_of("y") == (2, 120)
