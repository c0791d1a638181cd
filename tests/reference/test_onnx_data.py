"""The references against the recorded inputs and outputs that come with the ONNX package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dnnl.reference.arrays import Array, f64
from dnnl.reference.batch_normalization import batch_normalization
from dnnl.reference.convolution import convolution
from dnnl.reference.eltwise import eltwise
from dnnl.reference.inner_product import inner_product
from dnnl.reference.pooling import pooling
from dnnl.reference.prelu import prelu
from dnnl.reference.softmax import softmax

DATA = Path(onnx.__file__).parent / "backend/test/data"
Attributes = dict[str, Any]


def window(attributes: Attributes) -> dict[str, Any]:
    rank = len(attributes["kernel_shape"])
    pads = attributes.get("pads", [0] * 2 * rank)
    return {
        "strides": attributes.get("strides", [1] * rank),
        "padding_l": pads[:rank],
        "padding_r": pads[rank:],
        "dilations": [d - 1 for d in attributes.get("dilations", [1] * rank)],
    }


def conv(inputs: list[Array], attributes: Attributes) -> Array:
    src, weights, *bias = inputs
    groups = attributes.get("group", 1)
    grouped = weights.reshape(groups, len(weights) // groups, *weights.shape[1:])
    return convolution(src, grouped, *bias, **window(attributes))


def pool(alg: str) -> Callable[[list[Array], Attributes], Array]:
    def run(inputs: list[Array], attributes: Attributes) -> Array:
        return pooling(inputs[0], alg, kernel=attributes["kernel_shape"], **window(attributes))

    return run


def flat_softmax(alg: str) -> Callable[[list[Array], Attributes], Array]:
    def run(inputs: list[Array], attributes: Attributes) -> Array:
        # Before opset 13 everything from the axis on was one row.
        axis = attributes.get("axis", 1)
        rows = inputs[0].reshape(int(np.prod(inputs[0].shape[:axis])), -1)
        return softmax(rows, 1, alg).reshape(inputs[0].shape)

    return run


def normalize(inputs: list[Array], attributes: Attributes) -> Array:
    src, scale, shift, mean, variance = inputs
    epsilon = attributes.get("epsilon", 1e-5)
    return batch_normalization(src, mean, variance, scale, shift, epsilon=epsilon)


def linear(inputs: list[Array], attributes: Attributes) -> Array:
    assert attributes["transB"] == 1
    return inner_product(*inputs)


def leaky(inputs: list[Array], attributes: Attributes) -> Array:
    src, weights = inputs
    return prelu(src, weights.reshape(1, -1, *[1] * (src.ndim - 2)))


def function(name: str, alpha: float = 0.0) -> Callable[[list[Array], Attributes], Array]:
    return lambda inputs, attributes: eltwise(
        f"eltwise_{name}", inputs[0], attributes.get("alpha", alpha)
    )


OPERATIONS: dict[str, Callable[[list[Array], Attributes], Array]] = {
    "AveragePool": pool("pooling_avg_exclude_padding"),
    "BatchNormalization": normalize,
    "Conv": conv,
    "Elu": function("elu", 1.0),
    "Exp": function("exp"),
    "Gemm": linear,
    "LeakyRelu": function("relu", 0.01),
    "LogSoftmax": flat_softmax("softmax_log"),
    "MaxPool": pool("pooling_max"),
    "PRelu": leaky,
    "Relu": function("relu"),
    "Sigmoid": function("logistic"),
    "Softmax": flat_softmax("softmax_accurate"),
    "Softplus": function("soft_relu", 1.0),
    "Sqrt": function("sqrt"),
    "Tanh": function("tanh"),
}


def recorded() -> dict[str, onnx.ModelProto]:
    """The models of one node that there is a reference for, by name."""
    found = {}
    for path in sorted(DATA.glob("pytorch-*/*/model.onnx")):
        model = onnx.load(path)
        if len(model.graph.node) == 1 and model.graph.node[0].op_type in OPERATIONS:
            found[str(path.parent.relative_to(DATA))] = model
    return found


MODELS = recorded()


def read(path: Path) -> Array:
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return f64(numpy_helper.to_array(tensor))


@pytest.mark.parametrize("name", MODELS)
def test_recorded_case(name: str) -> None:
    model = MODELS[name]
    (node,) = model.graph.node
    values = {i.name: f64(numpy_helper.to_array(i)) for i in model.graph.initializer}
    given = [i.name for i in model.graph.input if i.name not in values]
    folder = DATA / name / "test_data_set_0"
    values |= {key: read(folder / f"input_{n}.pb") for n, key in enumerate(given)}
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    got = OPERATIONS[node.op_type]([values[key] for key in node.input], attributes)
    # The records were made in f32.
    np.testing.assert_allclose(got, read(folder / "output_0.pb"), rtol=2e-5, atol=2e-6)


def test_there_are_records_of_every_operation() -> None:
    assert {model.graph.node[0].op_type for model in MODELS.values()} == set(OPERATIONS)
