"""Random parameters: seeded, and of a scale that keeps deep networks in range."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dnnl.errors import InvalidArguments
from dnnl.framework.model import load
from dnnl.onnx.write import graph_to_proto
from tests.framework.models import LIGHT, feeds_for, make_model, model_of, node, run_peer


@pytest.mark.parametrize("name", ["resnet50", "squeezenet", "shufflenet"])
def test_activations_stay_of_order_one(name: str) -> None:
    graph = load(LIGHT / f"light_{name}.onnx").with_random_weights(1).graph
    relus = {n.output: n.output for n in graph.nodes if n.op in ("Relu", "Sum", "Concat")}
    watched = replace(graph, outputs=relus)
    for value, array in run_peer(graph_to_proto(watched), feeds_for(graph)).items():
        assert 0.1 < array.std() < 10.0, value


def test_layers_of_a_transformer_stay_of_order_one() -> None:
    constants: dict[str, np.ndarray] = {"s": np.zeros(64), "b": np.full(64, 1e6)}
    nodes, value = [], "x"
    for layer in range(8):
        constants[f"w{layer}"] = np.full((64, 64), 1e6)
        nodes.append(node("LayerNormalization", [value, "s", "b"], f"n{layer}"))
        nodes.append(node("MatMul", [f"n{layer}", f"w{layer}"], f"m{layer}"))
        nodes.append(node("Add", [value, f"m{layer}"], value := f"y{layer}"))
    proto = make_model(nodes, {"x": (5, 64)}, [f"n{layer}" for layer in range(8)], constants)
    graph = model_of(proto).with_random_weights(1).graph
    for value, array in run_peer(graph_to_proto(graph), feeds_for(graph)).items():
        assert 0.5 < array.std() < 2.0, value


def test_same_seed_same_values() -> None:
    model = load(LIGHT / "light_squeezenet.onnx")
    first, again, other = (model.with_random_weights(seed).graph.constants for seed in (3, 3, 4))
    assert first.keys() == again.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
        assert array.dtype != np.float32 or not np.array_equal(array, other[name])


def test_scalars_and_shapes_are_no_parameters() -> None:
    nodes = [node("Mul", ["x", "half"], "a"), node("Reshape", ["a", "shape"], "y")]
    constants = {"half": np.float32(0.5), "shape": np.array([3, 2])}
    proto = make_model(nodes, {"x": (2, 3)}, ["y"], constants)
    after = model_of(proto).with_random_weights(0).graph.constants
    assert after["half"] == 0.5
    assert list(after["shape"]) == [3, 2]


def test_negative_seed() -> None:
    with pytest.raises(InvalidArguments, match="seed = -1"):
        load(LIGHT / "light_squeezenet.onnx").with_random_weights(-1)
