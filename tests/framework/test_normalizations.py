"""Normalizations of rows and of groups of channels, compiled both ways, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.errors import Unimplemented
from dnnl.graph.graph import ModelError
from dnnl.lowering.graphs import LAYOUTS
from dnnl.runtime.engine import Engine
from tests.framework.models import feeds_for, make_model, model_of, node
from tests.framework.test_operators import agree, random
from tests.pairs import every_pair

Shape = tuple[int, ...]

LAYERS: dict[str, tuple[Shape, int, Shape, Shape | None]] = {
    "rows": ((2, 7, 33), -1, (33,), (33,)),
    "no_shift": ((2, 7, 33), -1, (33,), None),
    "one_row": ((40,), 0, (40,), (40,)),
    "matrix": ((5, 19), 1, (19,), (19,)),
    "all": ((3, 4, 5), 0, (3, 4, 5), (3, 4, 5)),
    "middle": ((2, 3, 4, 5), 2, (4, 5), (4, 5)),
    "many": ((2, 1, 3, 2, 2, 9), -1, (9,), (9,)),
    "leading_ones": ((2, 7, 9), -1, (1, 1, 9), (1, 9)),
    "one_number": ((2, 7, 9), 1, (1,), (9,)),
    "scale_of_each_row": ((2, 7, 9), -1, (2, 7, 1), (9,)),
    "shift_of_each_row": ((2, 7, 9), -1, (9,), (7, 1)),
}


def rows(name: str, **attrs: Any) -> tuple[list[Any], dict[str, Shape], dict[str, Any]]:
    """The node, the input and the constants of a case of ``LAYERS``."""
    shape, axis, scale, shift = LAYERS[name]
    constants = {"s": random(*scale)} | ({"b": random(*shift, seed=2)} if shift else {})
    layer = node("LayerNormalization", ["x", *constants], "y", axis=axis, **attrs)
    return [layer], {"x": shape}, constants


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", LAYERS)
def test_layer_normalization(name: str, layout: str) -> None:
    nodes, inputs, constants = rows(name, epsilon=1e-3)
    agree(make_model(nodes, inputs, ["y"], constants), layout)


@pytest.mark.parametrize("name", LAYERS)
def test_scale_and_shift_that_the_model_computes(name: str) -> None:
    nodes, inputs, constants = rows(name)
    shapes = {key: array.shape for key, array in constants.items()}
    agree(make_model(nodes, inputs | shapes, ["y"]), "propagate")


def test_rows_of_a_transformer_are_one_primitive_with_its_post_ops() -> None:
    constants = {"s": random(48), "b": random(48, seed=2)}
    nodes = [
        node("LayerNormalization", ["x", "s", "b"], "n"),
        node("Gelu", ["n"], "g"),
        node("Add", ["g", "x"], "y"),
    ]
    proto = make_model(nodes, {"x": (2, 9, 48)}, ["y"], constants, opset=20)
    (layer,) = agree(proto, "propagate").layers
    assert (layer.primitive, len(layer.fused)) == ("layer_normalization", 2)


def test_channels_last_behind_a_convolution_are_normalized_where_they_lie() -> None:
    """As ConvNeXt has it: the channels of a transposed image are its rows."""
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("Transpose", ["c"], "t", perm=[0, 2, 3, 1]),
        node("LayerNormalization", ["t", "s", "b"], "y"),
    ]
    constants = {"w": random(24, 8, 1, 1), "s": random(24), "b": random(24, seed=2)}
    agree(make_model(nodes, {"x": (2, 8, 5, 6)}, ["y"], constants), "propagate")


@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_root_mean_square(axis: int) -> None:
    shape = (3, 5, 24)
    layer = node("RMSNormalization", ["x", "s"], "y", axis=axis, epsilon=1e-3)
    proto = make_model([layer], {"x": shape}, ["y"], {"s": random(*shape[axis:])}, opset=23)
    agree(proto, "propagate")


@every_pair(
    layout=LAYOUTS,
    shape=[(2, 12, 5, 6), (2, 12, 9), (1, 12, 2, 3, 2, 3), (2, 12, 1)],
    opset=[18, 21],
)
def test_group_normalization(opset: int, shape: Shape, layout: str) -> None:
    count = 4 if opset == 18 else 12
    group = node("GroupNormalization", ["x", "s", "b"], "y", num_groups=4, epsilon=1e-3)
    constants = {"s": random(count), "b": random(count, seed=2)}
    agree(make_model([group], {"x": shape}, ["y"], constants, opset), layout)


@pytest.mark.parametrize("opset", [18, 21])
def test_group_normalization_by_what_the_model_computes(opset: int) -> None:
    count = (4,) if opset == 18 else (12,)
    group = node("GroupNormalization", ["x", "s", "b"], "y", num_groups=4)
    agree(make_model([group], {"x": (2, 12, 5), "s": count, "b": count}, ["y"], {}, opset), "plain")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 20, 7, 6), (2, 3, 11), (1, 4, 3, 4, 5)])
def test_instance_normalization(shape: Shape, layout: str) -> None:
    instance = node("InstanceNormalization", ["x", "s", "b"], "y", epsilon=1e-2)
    constants = {"s": random(shape[1]), "b": random(shape[1], seed=2)}
    agree(make_model([instance], {"x": shape}, ["y"], constants), layout)


@pytest.mark.parametrize("shape", [(0, 4, 6), (2, 4, 0)])
def test_nothing_is_normalized(shape: Shape) -> None:
    nodes = [node("LayerNormalization", ["x", "s"], "y")]
    proto = make_model(nodes, {"x": shape}, ["y"], {"s": random(shape[-1])})
    model = model_of(proto).with_shapes({"x": shape})
    feeds = feeds_for(model.graph)
    assert model.compile(Engine("cpu")).run(feeds)["y"].shape == shape


@every_pair(
    pytest.mark.parametrize("layout", LAYOUTS),
    pytest.mark.parametrize("read", [[], ["mean"], ["inverse"], ["mean", "inverse"]]),
    pytest.mark.parametrize(
        ("shape", "axis"), [((3, 5), -1), ((2, 3, 4, 6), 1), ((2, 3, 4, 6), -2), ((3, 5, 1), 2)]
    ),
)
def test_statistics(shape: Shape, axis: int, read: list[str], layout: str) -> None:
    """Steps only where something reads them."""
    layer = node("LayerNormalization", ["x", "s"], "y", "mean", "inverse", axis=axis, epsilon=0.1)
    constants = {"s": random(shape[-1])}
    proto = make_model([layer], {"x": shape}, ["y", *read], constants)
    agree(proto, layout)
    steps = model_of(proto).compile(Engine("cpu"), layout=layout).layers
    assert ("reduction" in {step.primitive for step in steps}) == (bool(read) and shape[-1] > 1)


def test_integers_and_shapes_that_do_not_fit_are_refused() -> None:
    layer = node("LayerNormalization", ["x", "s"], "y")
    whole = make_model([layer], {"x": (3, 5)}, ["y"], {"s": random(5)}, kinds={"x": "int32"})
    with pytest.raises(Unimplemented, match="Cast makes floats"):
        model_of(whole).compile(Engine("cpu"))
    with pytest.raises(ModelError, match=r"input 1, \(4,\), is not|do not broadcast"):
        model_of(make_model([layer], {"x": (3, 5)}, ["y"], {"s": random(4)})).compile(Engine("cpu"))
    group = node("GroupNormalization", ["x", "s", "s"], "y", num_groups=3)
    with pytest.raises(ModelError, match="num_groups = 3 does not divide 4 channels"):
        model_of(make_model([group], {"x": (1, 4, 5)}, ["y"], {"s": np.ones(4)}, opset=21)).compile(
            Engine("cpu")
        )
