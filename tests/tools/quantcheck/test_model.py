"""The doctor on models as ONNX Runtime's quantizer writes them, spoilt on purpose."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dnnl import InvalidArguments, Unimplemented
from dnnl.graph.graph import ModelError
from dnnl.tools.peer_onnxruntime import OnnxRuntime
from dnnl.tools.quantcheck import check_model, mended
from dnnl.tools.quantcheck.canonical import canonical, exposing
from dnnl.tools.quantcheck.model import read_model
from tests.tools.quantcheck.patients import (
    float_model,
    inputs,
    mixed_inputs,
    mixed_model,
    quantized,
    scaled,
)

KINDS = ["QDQ", "QOperator"]


def scale_behind_relu2(kind: str) -> str:
    """The quantizer leaves out a Relu whose end is that of the range."""
    return "r2_scale" if kind == "QDQ" else "c2_scale"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, onnx.ModelProto]:
    folder = tmp_path_factory.mktemp("patients")
    return {kind: quantized(folder, kind) for kind in (*KINDS, "dynamic")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [False, True])
def test_a_healthy_model(models: dict[str, onnx.ModelProto], kind: str, known: bool) -> None:
    report = check_model(models[kind], inputs(), float_model() if known else None)
    assert report.is_healthy
    names = {layer.name.removesuffix("_quant") for layer in report.layers}
    assert names == {"input x", "conv1", "conv2", "conv3", "add3", "gemm4"}
    assert all(layer.own.snr > 35 for layer in report.layers)
    assert all(layer.reached is not None and layer.reached.snr > 30 for layer in report.layers)
    assert bool(report.notes) != known


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_is_what_the_models_compute(
    models: dict[str, onnx.ModelProto], kind: str
) -> None:
    """The error of the output is that of the file itself against the float model."""
    report = check_model(models[kind], inputs(), float_model())
    ((name, error),) = report.outputs
    ours = OnnxRuntime(models[kind].SerializeToString(), 1, fused=False).run(inputs())[name]
    exact = OnnxRuntime(float_model().SerializeToString(), 1).run(inputs())[name]
    want = np.linalg.norm(ours - exact) / np.linalg.norm(exact)
    assert error.relative == pytest.approx(want, rel=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_two_bad_scales_are_named_and_mended(models: dict[str, onnx.ModelProto], kind: str) -> None:
    """One 20 times too small, one 30 times too large."""
    small, large = scale_behind_relu2(kind), "a3_scale"
    bad = scaled(scaled(models[kind], small, 1 / 20), large, 30.0)
    report = check_model(bad, inputs(), float_model())
    changes = {
        tensor.scale: (layer.name.removesuffix("_quant"), tensor)
        for layer in report.layers
        for tensor in layer.changes
    }
    assert changes.keys() == {small, large}
    assert {scale: name for scale, (name, _) in changes.items()} == {small: "conv2", large: "add3"}
    held = {each.name: numpy_helper.to_array(each) for each in models[kind].graph.initializer}
    for scale, (_, tensor) in changes.items():
        assert tensor.best.scale.item() == pytest.approx(held[scale].item(), rel=0.25)
    assert changes[small][1].saturated > 0.4
    assert changes[large][1].used < 0.05
    worst = [layer.name.removesuffix("_quant") for layer in report.layers[:4]]
    assert {"conv2", "add3"} <= set(worst)
    text = "\n".join(line for layer in report.layers for line in layer.advice())
    assert f"{small!r} is 18" in text.replace("17.9", "18")
    assert f"{large!r} is 30 times too large" in text
    assert f"its src comes with {small!r} from conv2" in text

    better = check_model(mended(bad, report, float_model()), inputs(), float_model())
    assert better.is_healthy
    (_, before), (_, after) = report.outputs[0], better.outputs[0]
    assert before.relative > 0.2
    assert after.relative < 0.03
    other = np.random.default_rng(9).standard_normal((4, 3, 8, 8)).astype(np.float32)
    fresh = check_model(mended(bad, report, float_model()), {"x": other}, float_model())
    assert fresh.outputs[0][1].relative < 0.05


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [1 / 8, 20.0])
def test_bad_weights(models: dict[str, onnx.ModelProto], kind: str, factor: float) -> None:
    """Without the float model they are guessed from how they fill their range, with it they are
    quantized anew, and the biases with them."""
    w3 = numpy_helper.to_array(_named(float_model(), "w3"))
    bad = scaled(models[kind], "w3_scale", factor)
    scale = numpy_helper.to_array(_named(bad, "w3_scale"))
    stored = _named(bad, "w3_quantized")
    whole = np.clip(np.rint(w3 / scale.reshape(-1, 1, 1, 1)), -127, 127).astype(np.int8)
    stored.CopyFrom(numpy_helper.from_array(whole, "w3_quantized"))
    if kind == "QOperator":  # the bias has the scale of src times that of weights
        bad = _with_bias(bad, factor)

    guessed = check_model(bad, inputs())
    (layer,) = [each for each in guessed.layers if each.name.startswith("conv3")]
    (line,) = [each for each in layer.advice() if "--float MODEL tells which one is right" in each]
    if factor > 1:
        assert "'w3_scale': only 5% of the range of s8 is used, so it is about 2" in line
    else:
        assert re.search(r"'w3_scale': [34]\d\.\d\d% of the values are at the ends", line)
    assert (
        numpy_helper.to_array(_named(mended(bad, guessed), "w3_scale")).tolist() == scale.tolist()
    )

    report = check_model(bad, inputs(), float_model())
    assert [layer.name.removesuffix("_quant") for layer in report.layers if layer.changes] == [
        "conv3"
    ]
    assert report.layers[0].name.startswith("conv3")
    better = check_model(mended(bad, report, float_model()), inputs(), float_model())
    assert better.is_healthy
    assert better.outputs[0][1].relative < min(0.03, report.outputs[0][1].relative / 2)


def _named(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    (found,) = [each for each in model.graph.initializer if each.name == name]
    return found


def _with_bias(model: onnx.ModelProto, factor: float) -> onnx.ModelProto:
    bias = _named(model, "b3_quantized")
    values = np.rint(numpy_helper.to_array(bias) / factor).astype(np.int32)
    bias.CopyFrom(numpy_helper.from_array(values, "b3_quantized"))
    return model


def test_dynamic_quantization(models: dict[str, onnx.ModelProto]) -> None:
    report = check_model(models["dynamic"], inputs())
    assert {layer.operator for layer in report.layers} == {"Conv", "MatMul"}
    assert report.is_healthy
    assert report.outputs[0][1].snr > 25


@pytest.mark.parametrize("kind", [*KINDS, "dynamic"])
def test_the_canonical_model_computes_the_same(
    models: dict[str, onnx.ModelProto], kind: str
) -> None:
    model = models[kind]
    ours = OnnxRuntime(exposing(canonical(model), ["y"]), 1, fused=False).run(inputs())["y"]
    theirs = OnnxRuntime(model.SerializeToString(), 1, fused=False).run(inputs())["y"]
    np.testing.assert_allclose(ours, theirs, atol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_and_other_operators(tmp_path: Path, kind: str) -> None:
    model = quantized(tmp_path, kind, mixed_model(), mixed_inputs())
    if kind == "QOperator":
        assert {node.op_type for node in model.graph.node} > {
            "QLinearMatMul",
            "QLinearMul",
            "QLinearSigmoid",
            "QLinearConcat",
            "QLinearSoftmax",
        }
    ours = OnnxRuntime(exposing(canonical(model), ["y"]), 1, fused=False).run(mixed_inputs())
    theirs = OnnxRuntime(model.SerializeToString(), 1, fused=False).run(mixed_inputs())
    np.testing.assert_allclose(ours["y"], theirs["y"], atol=0.05)
    report = check_model(model, mixed_inputs(), mixed_model())
    layers = {layer.name.removesuffix("_quant"): layer for layer in report.layers}
    assert layers.keys() >= {"first", "second", "attention", "gated", "leaky"}
    assert all(layers[name].own.snr > 28 for name in ("first", "second", "attention"))
    weights = layers["first"].tensor("weights")
    assert weights is not None
    assert weights.scheme.scale.shape == (1, 12)
    assert weights.error.snr > 35  # columns differ a hundredfold
    assert dict(layers["attention"].stored_by or {}) == {"src": _like("second", kind)} | {
        "weights": _like("second", kind)
    }
    bad = scaled(model, "h2_scale", 1 / 20)
    spoilt = check_model(bad, mixed_inputs(), mixed_model())
    assert "h2_scale" in {tensor.scale for layer in spoilt.layers for tensor in layer.changes}


def _like(name: str, kind: str) -> str:
    return name if kind == "QDQ" else f"{name}_quant"


def test_wrong_inputs(models: dict[str, onnx.ModelProto]) -> None:
    good = inputs()["x"]
    for given, rule in (
        ({"z": good}, "no such input; it has x"),
        ({}, "must have the input 'x'"),
        ({"x": good.astype(np.float64)}, "expected float32"),
        ({"x": good[:, :2]}, "takes \\?x3x8x8"),
    ):
        with pytest.raises(InvalidArguments, match=rule):
            check_model(models["QDQ"], given)
    with pytest.raises(InvalidArguments, match="quantize it first"):
        check_model(float_model(), inputs())


def test_operators_without_a_rule(models: dict[str, onnx.ModelProto], tmp_path: Path) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(models["QDQ"])
    model.graph.node.append(helper.make_node("QAttention", ["y"], ["z"], domain="com.microsoft"))
    with pytest.raises(Unimplemented, match="QAttention"):
        check_model(model, inputs())
    with pytest.raises(ModelError, match="no such file"):
        read_model(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError, match="damaged"):
        read_model(tmp_path / "bad.onnx")
