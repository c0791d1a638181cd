"""QuantizeLinear and DequantizeLinear of every type, beside ONNX's reference and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from dnnl.errors import Unimplemented
from dnnl.graph.graph import Array, ModelError
from tests.framework.models import make_model, model_of, node, run_peer
from tests.pairs import every_pair

INTEGERS = ["int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"]
EIGHTS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
SMALLER = ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"]
STORED = [*INTEGERS, *EIGHTS, *SMALLER]
FORMS = ["tensor", "axis", "blocks", "partial blocks"]
SHAPES = ((3, 10, 4), (5, 10, 2), (1, 10, 3), (0, 10, 4), (7, 10, 1))
OPSET = 25


def code_of(kind: str) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


def parameters(form: str, shape: tuple[int, ...]) -> tuple[dict[str, int], tuple[int, ...]]:
    """The attributes of a form, and the shape of its scales for a source of three dimensions."""
    if form == "tensor":
        return {}, ()
    if form == "axis":
        return {"axis": -2}, (shape[1],)
    block = 5 if form == "blocks" else 4
    return {"axis": 1, "block_size": block}, (shape[0], -(-shape[1] // block), shape[2])


def drawn(rng: np.random.Generator, stored: str, shape: tuple[int, ...]) -> Array:
    """Elements of a type, of floats those that are numbers."""
    if stored in INTEGERS:
        size = {"2": 2, "4": 4}.get(stored[-1], 0)
        if not size:
            info = np.iinfo(stored)
            return rng.integers(info.min, info.max, shape, stored, endpoint=True)
        return rng.integers(0, 2**size, shape, np.uint8).view(stored)
    with np.errstate(all="ignore"):
        return np.asarray((3 * rng.standard_normal(shape)).astype(stored))


def same(got: Any, want: Array, case: object = None) -> None:
    assert isinstance(got, np.ndarray)
    assert (got.dtype, got.shape) == (want.dtype, want.shape), case
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), str(case))


@every_pair(constant=[False, True], form=FORMS, scale=["float32", "float16", "bfloat16"])
def test_numbers_are_represented(scale: str, form: str, constant: bool) -> None:
    rng = np.random.default_rng(1)
    for stored in STORED[(len(scale) + len(form)) % 3 :: 3]:
        check_quantized(rng, stored, scale, form, constant)


def check_quantized(
    rng: np.random.Generator, stored: str, scale: str, form: str, constant: bool
) -> None:
    attrs, own = parameters(form, SHAPES[0])
    with_zero = stored in INTEGERS
    names = ["x", "s", "z"] if with_zero else ["x", "s"]
    further = {} if with_zero else {"output_dtype": code_of(stored), "saturate": 1}
    quantize = node("QuantizeLinear", names, "y", **attrs, **further)
    sizes: dict[str, list[int | str]] = {"x": ["n", 10, "m"]}
    shapes = {"tensor": [], "axis": [10], "blocks": ["n", 2, "m"]}.get(form, ["n", 3, "m"])
    kinds = {"x": scale, "y": stored, "s": scale, "z": stored}
    given = {"s": shapes, "z": shapes} if with_zero else {"s": shapes}
    fixed: dict[str, Array] = {}
    if constant:
        fixed = {"s": (0.1 + rng.random(own)).astype(scale), "z": drawn(rng, stored, own)}
        fixed = {name: fixed[name] for name in given}
        sizes["x"] = list(SHAPES[0])
    else:
        sizes.update(given)  # type: ignore[arg-type]
    proto = make_model([quantize], sizes, ["y"], fixed, OPSET, kinds)
    model, reference = model_of(proto), ReferenceEvaluator(proto)
    for shape in SHAPES[: 1 if constant else 5]:
        _, own = parameters(form, shape)
        feeds = {"x": (30 * rng.standard_normal(shape)).astype(scale)}
        if not constant:
            feeds["s"] = (0.1 + rng.random(own)).astype(scale)
            feeds |= {"z": drawn(rng, stored, own)} if with_zero else {}
        (want,) = reference.run(None, feeds)
        same(model(feeds), want, (stored, shape))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", ["float32", "float16", "bfloat16", "float8_e8m0fnu"])
def test_numbers_are_read(scale: str, form: str) -> None:
    rng = np.random.default_rng(2)
    kind = "float16" if scale == "float8_e8m0fnu" else scale
    for stored in STORED[(len(scale) + len(form)) % 3 :: 3]:
        attrs, _ = parameters(form, SHAPES[0])
        with_zero = stored in INTEGERS
        names = ["x", "s", "z"] if with_zero else ["x", "s"]
        further = {"output_dtype": code_of(kind)} if kind != scale else {}
        read = node("DequantizeLinear", names, "y", **attrs, **further)
        shapes = {"tensor": [], "axis": [10], "blocks": ["n", 2, "m"]}.get(form, ["n", 3, "m"])
        sizes: dict[str, Any] = {"x": ["n", 10, "m"], "s": shapes, "z": shapes}
        kinds = {"x": stored, "y": kind, "s": scale, "z": stored}
        inputs = {name: sizes[name] for name in names}
        proto = make_model([read], inputs, ["y"], None, OPSET, kinds)
        model, reference = model_of(proto), ReferenceEvaluator(proto)
        for shape in SHAPES:
            _, own = parameters(form, shape)
            drawn_ = {"x": drawn(rng, stored, shape), "z": drawn(rng, stored, own)}
            feeds = {name: drawn_[name] for name in names if name != "s"}
            feeds["s"] = (0.1 + rng.random(own)).astype(scale)
            with np.errstate(over="ignore"):
                (want,) = reference.run(None, feeds)
            same(model(feeds), want, (stored, shape))


@pytest.mark.parametrize("form", FORMS)
def test_constants_are_read_once(form: str) -> None:
    """Weights of few bits become floats when a model is compiled."""
    rng = np.random.default_rng(3)
    for stored in ("int4", "uint4", "int16", "float8_e4m3fn"):
        attrs, own = parameters(form, (6, 10, 1))
        w, s = drawn(rng, stored, (6, 10, 1)), (0.1 + rng.random(own)).astype(np.float32)
        nodes = [
            node("DequantizeLinear", ["w", "s"], "f", **attrs),
            node("Squeeze", ["f", "last"], "m"),
            node("MatMul", ["x", "m"], "y"),
        ]
        constants = {"w": w, "s": s, "last": np.array([2])}
        proto = make_model(nodes, {"x": ["n", 6]}, ["y"], constants, 21)
        x = rng.standard_normal((5, 6)).astype(np.float32)
        session = model_of(proto).compile(batch=5)
        assert [layer.primitive for layer in session.layers] == ["matmul"]
        (want,) = ReferenceEvaluator(proto).run(None, {"x": x})
        scale = float(np.abs(want).max())
        np.testing.assert_allclose(np.asarray(session(x)), want, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("stored", ["uint16", "int16", "uint4", "int4", "float8_e4m3fn"])
@pytest.mark.parametrize("form", ["tensor", "axis"])
def test_as_onnx_runtime(stored: str, form: str) -> None:
    rng = np.random.default_rng(4)
    attrs, own = parameters(form, SHAPES[0])
    scale, zero = (0.1 + rng.random(own)).astype(np.float32), drawn(rng, stored, own)
    names = ["s", "z"] if stored in INTEGERS else ["s", "o"]
    nodes = [
        node("QuantizeLinear", ["x", *names], "q", **attrs),
        node("DequantizeLinear", ["q", *names], "y", **attrs),
    ]
    constants = {"s": scale, names[1]: zero if names[1] == "z" else np.zeros(own, stored)}
    proto = make_model(nodes, {"x": list(SHAPES[0])}, ["y"], constants, 21)
    x = (20 * rng.standard_normal(SHAPES[0])).astype(np.float32)
    same(model_of(proto)(x), run_peer(proto, {"x": x}, as_written=True)["y"])


def test_numbers_beyond_every_integer() -> None:
    values = [np.inf, -np.inf, 3e38, -3e38, 1e10, -1e10, 70000, -70000]
    x = np.array(values, np.float32)
    for stored in INTEGERS:
        quantize = node("QuantizeLinear", ["x", "s", "z"], "y")
        constants = {"s": np.float32(0.5), "z": np.ones((), stored)}
        proto = make_model([quantize], {"x": ["n"]}, ["y"], constants, OPSET, {"y": stored})
        got = model_of(proto)(x)
        assert isinstance(got, np.ndarray)
        signed = 0 if stored[0] == "u" else 1
        bits = int(stored.removeprefix("u").removeprefix("int"))
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        assert (got.astype(np.int64) == np.where(x > 0, high, low)).all(), stored


@pytest.mark.parametrize("precision", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("x", ["float32", "float16", "int32"])
def test_precision_of_the_division(precision: str, x: str) -> None:
    rng = np.random.default_rng(5)
    quantize = node("QuantizeLinear", ["x", "s", "z"], "y", precision=code_of(precision))
    kinds = {"x": x, "y": "int16"}
    constants = {"s": np.float32(0.37), "z": np.int16(3)}
    proto = make_model([quantize], {"x": ["n"]}, ["y"], constants, OPSET, kinds)
    source = (1000 * rng.standard_normal(500)).astype(x)
    (want,) = ReferenceEvaluator(proto).run(None, {"x": source})
    same(model_of(proto)(source), want)


def test_models_of_16_bits() -> None:
    """Activations between conversions, as quantizers write them."""
    rng = np.random.default_rng(6)
    domain = {"domain": "com.microsoft"}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "q", **domain),
        node("DequantizeLinear", ["q", "s", "z"], "d", **domain),
        node("DequantizeLinear", ["w", "s", "zero"], "f", **domain),
        node("MatMul", ["d", "f"], "m"),
        node("QuantizeLinear", ["m", "t", "z"], "p", **domain),
        node("DequantizeLinear", ["p", "t", "z"], "y", **domain),
    ]
    constants = {
        "s": np.float32(1e-4),
        "t": np.float32(3e-4),
        "z": np.uint16(30000),
        "zero": np.int16(0),
        "w": rng.integers(-(2**15), 2**15, (8, 5)).astype(np.int16),
    }
    proto = make_model(nodes, {"x": ["n", 8]}, ["y"], constants, 17)
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    model = model_of(proto)
    for rows in (3, 6, 2):
        x = rng.uniform(-1, 1, (rows, 8)).astype(np.float32)
        want = run_peer(proto, {"x": x}, as_written=True)["y"]
        np.testing.assert_allclose(np.asarray(model(x)), want, atol=3.1e-4)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "stored": ({}, {"z": np.int32(0)}, "int32 represents no numbers"),
    "other types": (
        {"output_dtype": code_of("int4")},
        {"z": np.int8(0)},
        "output_dtype is int4, the zero point int8",
    ),
    "blocks": (
        {"block_size": 3, "axis": 1},
        {"s": np.ones((2, 2), np.float32), "z": np.zeros((2, 2), np.int8)},
        r"input 1 has shape \(2, 2\); blocks of 3 along axis 1 of \(2, 8\) need \(2, 3\)",
    ),
    "negative": ({"block_size": -3}, {"z": np.int8(0)}, "block_size = -3 is negative"),
    "precision": (
        {"precision": code_of("int32")},
        {"z": np.int8(0)},
        "precision = int32 is no type of floats",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    attrs, constants, message = REFUSED[case]
    quantize = node("QuantizeLinear", ["x", "s", "z"], "y", **attrs)
    given = {"s": np.float32(1), **constants}
    proto = make_model([quantize], {"x": [2, 8]}, ["y"], given, OPSET, {"y": np.int8})
    with pytest.raises((ModelError, Unimplemented), match=message):
        model_of(proto)(np.ones((2, 8), np.float32))


def test_results_of_exponents_need_a_type() -> None:
    read = node("DequantizeLinear", ["x", "s"], "y")
    kinds = {"x": "int8", "s": "float8_e8m0fnu"}
    proto = make_model([read], {"x": [4], "s": []}, ["y"], None, OPSET, kinds)
    with pytest.raises(ModelError, match="output_dtype says which"):
        model_of(proto)({"x": np.ones(4, np.int8), "s": np.ones((), "float8_e8m0fnu")})
