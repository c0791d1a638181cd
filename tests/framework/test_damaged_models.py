"""Models that parse and make no sense: each is refused, with the node that is at fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

from dnnl import config
from dnnl.errors import InvalidArguments, OutOfMemory, Unimplemented
from dnnl.framework.model import load
from dnnl.graph.graph import ModelError
from dnnl.runtime.engine import Engine
from tests.framework.models import make_model, model_of, node

IMAGE = {"x": (1, 4, 6, 6)}
WEIGHTS = {"w": np.ones((8, 4, 3, 3)), "s": np.ones(4), "long": np.ones(6), "two": np.ones((1, 2))}
WEIGHTS["zeros"] = np.zeros(2, np.int64)
POOL = {"kernel_shape": [2, 2]}


def compile_file(proto: Any, folder: Path) -> None:
    """Load a model as a file and compile it."""
    path = folder / "model.onnx"
    path.write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
    load(path).compile(Engine("cpu"), num_threads=1)


CASES: dict[str, tuple[str, list[str], dict[str, Any], str]] = {
    "stride 0": ("Conv", ["x", "w"], {"strides": [0, 1]}, "'strides'.*positive"),
    "pooling stride 0": ("MaxPool", ["x"], {**POOL, "strides": [0, 1]}, "'strides'.*positive"),
    "stride below 0": ("Conv", ["x", "w"], {"strides": [-1, 1]}, "'strides'.*positive"),
    "dilation 0": ("Conv", ["x", "w"], {"dilations": [1, 0]}, "'dilations'.*positive"),
    "short kernel": ("MaxPool", ["x"], {"kernel_shape": [2]}, "kernel_shape"),
    "empty window": ("MaxPool", ["x"], {"kernel_shape": [0, 2]}, "kernel_shape"),
    "no kernel": ("AveragePool", ["x"], {}, "'kernel_shape' is missing"),
    "rounding of -1": ("AveragePool", ["x"], {**POOL, "ceil_mode": -1}, "'ceil_mode' = -1.*0 or 1"),
    "keeping two": ("ArgMax", ["x"], {"keepdims": 2}, "'keepdims' = 2 must be 0 or 1"),
    "integer kernel": ("MaxPool", ["x"], {"kernel_shape": 2}, "'kernel_shape'.*integers"),
    "integer padding rule": ("Conv", ["x", "w"], {"auto_pad": 3}, "'auto_pad' = 3 must be a text"),
    "unknown padding rule": ("Conv", ["x", "w"], {"auto_pad": "FOO"}, "'auto_pad' = b'FOO'"),
    "text strides": ("Conv", ["x", "w"], {"strides": "ab"}, "'strides'.*integers"),
    "strides of floats": ("Conv", ["x", "w"], {"strides": [1.0, 1.0]}, "'strides'.*integers"),
    "no group": ("Conv", ["x", "w"], {"group": 0}, "group 0"),
    "long bias": ("Conv", ["x", "w", "s"], {}, "bias"),
    "one source": ("Add", ["x"], {}, "expected 2"),
    "empty source": ("Add", ["x", ""], {}, "input 1 must be given"),
    "three sources": ("Mul", ["x", "s", "s"], {}, "expected 2"),
    "no source": ("Relu", [], {}, "expected 1"),
    "no sources": ("Concat", [], {"axis": 1}, "expected 1 or more"),
    "two parameters": ("BatchNormalization", ["x", "s"], {}, "expected 5"),
    "long parameters": ("BatchNormalization", ["x", *["long"] * 4], {}, "input 1 has shape"),
    "no size": ("LRN", ["x"], {}, "'size' is missing"),
    "cast to nothing": ("Cast", ["x"], {}, "'to' is missing"),
    "cast to 99": ("Cast", ["x"], {"to": 99}, "99"),
    "no axis": ("Concat", ["x", "x"], {}, "'axis' is missing"),
    "integer slope": ("LeakyRelu", ["x"], {"alpha": 1}, "'alpha' = 1 must be a number"),
    "bound of two values": ("Clip", ["x", "two"], {}, "one number"),
    "scalar weights": ("Conv", ["s", "s"], {}, "are no convolution"),
    "axis twice": ("Unsqueeze", ["x", "zeros"], {}, "name one twice"),
    "shape of nothing": ("Shape", [], {}, "is damaged"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_node_is_named(case: str, tmp_path: Path) -> None:
    op, inputs, attrs, reason = CASES[case]
    proto = make_model([node(op, inputs, "y", **attrs)], IMAGE, ["y"], WEIGHTS)
    if case == "bound of two values":
        proto.graph.node.insert(0, node("Conv", ["x", "w"], "c"))
        proto.graph.node[1].input[0] = "c"
    with pytest.raises(ModelError, match=rf"node 'node_y' \({op}\).*{reason}"):
        compile_file(proto, tmp_path)


@pytest.mark.parametrize("name", ["strides", "pads"])
def test_empty_attributes(name: str, tmp_path: Path) -> None:
    for kind in (AttributeProto.INTS, AttributeProto.UNDEFINED):
        proto = make_model([node("Conv", ["x", "w"], "y")], IMAGE, ["y"], WEIGHTS)
        proto.graph.node[0].attribute.append(AttributeProto(name=name, type=kind))
        with pytest.raises(ModelError, match=rf"node 'node_y' \(Conv\).*{name}"):
            compile_file(proto, tmp_path)


@pytest.mark.parametrize("name", ["inputs", "name", "doc_string"])
def test_attributes_named_as_parts_of_a_node(name: str) -> None:
    proto = make_model([node("Neg", ["s"], "n"), node("Mul", ["x", "n"], "y")], {"x": (4,)}, ["y"])
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, np.float32), "s"))
    proto.graph.node[0].attribute.append(helper.make_attribute(name, 1))
    model_of(proto).compile()


def test_damaged_names(tmp_path: Path) -> None:
    proto = make_model([node("Neg", ["x"], "y", marker=1)], {"x": (4,)}, ["y"])
    proto.graph.name = "whole"
    for name in (b"marker", b"node_y", b"Neg", b"x", b"whole"):
        content = proto.SerializeToString().replace(name, b"\xff" * len(name))
        with pytest.raises(ModelError, match="damaged"):
            compile_file(content, tmp_path)


def test_reference_attribute(tmp_path: Path) -> None:
    proto = make_model([node("Neg", ["x"], "y", marker=1)], {"x": (4,)}, ["y"])
    proto.graph.node[0].attribute[0].ref_attr_name = "other"
    with pytest.raises(ModelError, match=r"node 'node_y' \(Neg\)"):
        compile_file(proto, tmp_path)


def test_unknown_element_type(tmp_path: Path) -> None:
    proto = make_model([node("Neg", ["x"], "y")], {"x": (4,)}, ["y"])
    proto.graph.input[0].type.tensor_type.elem_type = 99
    with pytest.raises(ModelError, match="input 'x' has the element type 99"):
        compile_file(proto, tmp_path)


@pytest.mark.parametrize("result", ["a", "x", "w"])
def test_second_producer(result: str, tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], "a"), node("Abs", ["x"], "y"), node("Neg", ["x"], "b")]
    nodes[2].output[0] = result
    proto = make_model(nodes, {"x": (4,)}, ["y"], {"w": np.ones(4)})
    with pytest.raises(ModelError, match=rf"node 'node_b' \(Neg\) produces '{result}'"):
        compile_file(proto, tmp_path)


def test_two_initializers_of_one_name(tmp_path: Path) -> None:
    proto = make_model([node("Add", ["x", "w"], "y")], {"x": (4,)}, ["y"], {"w": np.ones(4)})
    proto.graph.initializer.append(proto.graph.initializer[0])
    with pytest.raises(ModelError, match="two initializers"):
        compile_file(proto, tmp_path)


def test_initializer_of_negative_size(tmp_path: Path) -> None:
    proto = make_model([node("Add", ["x", "w"], "y")], {"x": (4,)}, ["y"])
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[-1], float_data=[1.0])
    proto.graph.initializer.append(tensor)
    with pytest.raises(ModelError, match=r"tensor 'w' has negative dims \(-1,\)"):
        compile_file(proto, tmp_path)


@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand", "Tile"])
def test_constants_beyond_the_machine(op: str, tmp_path: Path) -> None:
    column = np.ones((2**13 if op == "Expand" else 1, 1), np.float32)
    sizes = [1, 2**37] if op == "Expand" else [2**25, 2**25]
    constants = {"one": column, "sizes": np.array(sizes)}
    sources = ["sizes"] if op == "ConstantOfShape" else ["one", "sizes"]
    nodes = [node(op, sources, "c"), node("Add", ["x", "c"], "y")]
    proto = make_model(nodes, {"x": (1, 1)}, ["y"], constants)
    with pytest.raises(OutOfMemory, match=rf"node 'node_c' \({op}\): cannot allocate 45035"):
        compile_file(proto, tmp_path)


def test_functions_that_hide_operators(tmp_path: Path) -> None:
    proto = make_model([node("Relu", ["x"], "y")], {"x": (4,)}, ["y"])
    body = [node("Neg", ["a"], "b")]
    opset = [helper.make_operatorsetid("", 17)]
    proto.functions.append(helper.make_function("", "Relu", ["a"], ["b"], body, opset))
    with pytest.raises(Unimplemented, match="defines operator Relu of ONNX's own domain"):
        compile_file(proto, tmp_path)


def test_errors_of_lowering_name_the_node() -> None:
    nodes = [node("Relu", ["x"], "r"), node("Concat", ["r", "w"], "y", axis=0)]
    proto = make_model(nodes, {"x": (4,)}, ["y"], {"w": np.ones(4, np.complex64)})
    with pytest.raises(Unimplemented, match=r"node 'node_y' \(Concat\).*complex64"):
        model_of(proto).compile(Engine("cpu"))


@pytest.mark.parametrize(
    ("knob", "value"),
    [("verbose", "loud"), ("max_cpu_isa", "z80"), ("jit_dump", "perhaps")],
)
def test_bad_knobs_are_blamed_on_no_node(
    knob: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = make_model([node("Relu", ["x"], "y")], {"x": (4,)}, ["y"])
    variable = f"DNNL_{knob.upper()}"
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr(config, "generation", config.generation + 1)
    try:
        with pytest.raises(InvalidArguments, match=f"^{variable}"):
            model_of(proto).compile(Engine("cpu"))
    finally:
        config.set(knob, None)


QUANTIZED: dict[str, tuple[str, str, Any, str]] = {
    "scale 0": ("QuantizeLinear", "s", np.float32(0), "input 1 .* 0.0.*positive normal"),
    "scale below 0": ("DequantizeLinear", "s", np.float32(-1), "input 1 .* -1.0.*not negative"),
    "scale NaN": ("QLinearConv", "s", np.float32(np.nan), "input 1 .* nan.*finite"),
    "infinite scale of weights": (
        "QLinearConv", "v", np.array([1, 1, np.inf, 1], np.float32), "input 4 .* inf.*finite",
    ),
    "result scale 0": ("QLinearConv", "t", np.float32(0), "input 6 .* 0.0.*positive normal"),
    "long scale": ("QuantizeLinear", "s", np.ones(5, np.float32), "input 1 has shape .5,."),
    "long scale of weights": ("QLinearConv", "v", np.ones(3, np.float32), "input 4 has shape .3,."),
    "many scales of a result": ("QLinearConv", "t", np.ones(4, np.float32), "input 6 has shape"),
    "scale of integers": ("QLinearConv", "s", np.int32(1), "input 1 has scales of int32"),
    "signed zero point": ("DequantizeLinear", "z", np.int8(0), "zero point of int8.* are uint8"),
    "zero point of s32": ("ConvInteger", "z", np.int32(1), "zero point of int32.* are uint8"),
    "long zero point": ("ConvInteger", "z", np.ones(3, np.uint8), "input 2 has shape .3,."),
}  # fmt: skip


@pytest.mark.parametrize("case", QUANTIZED)
def test_damaged_quantization(case: str, tmp_path: Path) -> None:
    op, name, value, reason = QUANTIZED[case]
    one, zero = np.float32(1), np.uint8(0)
    constants = {
        "x": np.zeros((1, 4, 6, 6), np.float32 if op == "QuantizeLinear" else np.uint8),
        "w": np.ones((4, 4, 1, 1), np.int8),
        "s": one,
        "v": one,
        "t": one,
        "z": zero,
        "n": np.int8(0),
        name: value,
    }
    inputs = {
        "QLinearConv": ["x", "s", "z", "w", "v", "n", "t", "z"],
        "ConvInteger": ["x", "w", "z"],
    }.get(op, ["x", "s", "z"])
    results = {"ConvInteger": "int32", "DequantizeLinear": "float32"}
    source = constants.pop("x")
    kinds = {"x": source.dtype, "y": results.get(op, "uint8")}
    used = {key: array for key, array in constants.items() if key in inputs}
    proto = make_model([node(op, inputs, "y")], {"x": source.shape}, ["y"], used, 19, kinds)
    with pytest.raises(ModelError, match=rf"node 'node_y' \({op}\).*{reason}"):
        compile_file(proto, tmp_path)
