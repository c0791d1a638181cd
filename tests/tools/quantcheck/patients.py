"""Models of integers as ONNX Runtime's quantizer writes them, healthy and spoilt on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Inputs = dict[str, NDArray[Any]]


def float_model() -> onnx.ModelProto:
    """Three convolutions, the last one in groups, with Relu, MaxPool and a residual Add, and a
    Gemm."""
    rng = np.random.default_rng(5)

    def weights(name: str, *dims: int) -> onnx.TensorProto:
        values = rng.standard_normal(dims) / np.sqrt(np.prod(dims[1:]))
        return numpy_helper.from_array(values.astype(np.float32), name)

    def bias(name: str, size: int) -> onnx.TensorProto:
        return numpy_helper.from_array((rng.standard_normal(size) / 4).astype(np.float32), name)

    def conv(number: int, src: str, dst: str, group: int = 1) -> onnx.NodeProto:
        given = [src, f"w{number}", f"b{number}"]
        return helper.make_node("Conv", given, [dst], f"conv{number}", pads=[1] * 4, group=group)

    nodes = [
        conv(1, "x", "c1"),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        conv(2, "r1", "c2"),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        conv(3, "r2", "c3", group=2),
        helper.make_node("Add", ["c3", "r1"], ["a3"], "add3"),
        helper.make_node("MaxPool", ["a3"], ["p3"], "pool3", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p3"], ["f3"], "flatten3"),
        helper.make_node("Gemm", ["f3", "w4", "b4"], ["y"], "gemm4", transB=1),
    ]
    constants = [
        weights("w1", 8, 3, 3, 3),
        bias("b1", 8),
        weights("w2", 8, 8, 3, 3),
        bias("b2", 8),
        weights("w3", 8, 4, 3, 3),
        bias("b3", 8),
        weights("w4", 10, 128),
        bias("b4", 10),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])
    graph = helper.make_graph(nodes, "patient", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def mixed_model() -> onnx.ModelProto:
    """Matrices: weights on the right, a product of two activations, and what a quantizer has
    operators of its own for."""
    rng = np.random.default_rng(7)
    names = {"m1": (8, 12), "m2": (12, 6)}
    spread = {name: np.geomspace(0.01, 1, dims[1]) for name, dims in names.items()}
    constants = [
        numpy_helper.from_array((rng.standard_normal(dims) * spread[name]).astype(np.float32), name)
        for name, dims in names.items()
    ]
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "m1"], ["h1"], "first"),
        node("Sigmoid", ["h1"], ["g1"], "gate"),
        node("Mul", ["h1", "g1"], ["s1"], "gated"),
        node("LeakyRelu", ["s1"], ["l1"], "leaky"),
        node("MatMul", ["l1", "m2"], ["h2"], "second"),
        node("Transpose", ["h2"], ["t2"], "turned", perm=[0, 2, 1]),
        node("MatMul", ["h2", "t2"], ["a2"], "attention"),
        node("Softmax", ["a2"], ["p2"], "shares", axis=-1),
        node("Concat", ["p2", "h2"], ["y"], "both", axis=2),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 5, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 5, 11])
    graph = helper.make_graph(nodes, "mixed", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def mixed_inputs() -> Inputs:
    """Rows."""
    return {"x": np.random.default_rng(8).standard_normal((3, 5, 8)).astype(np.float32)}


def inputs(count: int = 8) -> Inputs:
    """Images."""
    return {"x": np.random.default_rng(6).standard_normal((count, 3, 8, 8)).astype(np.float32)}


def quantized(
    folder: Path, kind: str, model: onnx.ModelProto | None = None, given: Inputs | None = None
) -> onnx.ModelProto:
    """A model, by default the first one, in integers: QDQ, QOperator or dynamic."""
    from onnxruntime import quantization as ort

    source, made = folder / "float.onnx", folder / f"{kind}.onnx"
    onnx.save(model or float_model(), str(source))
    if kind == "dynamic":
        ort.quantize_dynamic(source, made)
        return onnx.load(str(made))

    class Reader(ort.CalibrationDataReader):  # type: ignore[misc]  # it has no types
        def __init__(self) -> None:
            self.left = [given or inputs(32)]

        def get_next(self) -> Inputs | None:
            return self.left.pop() if self.left else None

    ort.quantize_static(
        source, made, Reader(), quant_format=ort.QuantFormat[kind], per_channel=True
    )
    return onnx.load(str(made))


def scaled(model: onnx.ModelProto, name: str, factor: float) -> onnx.ModelProto:
    """The model with one scale spoilt."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    (found,) = [each for each in made.graph.initializer if each.name == name]
    values = (numpy_helper.to_array(found) * factor).astype(np.float32)
    found.CopyFrom(numpy_helper.from_array(values, name))
    return made
