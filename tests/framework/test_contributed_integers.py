"""Products of bytes of ONNX Runtime's domain, of open sizes, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dnnl
from tests.framework.contributed import check_calls, contributed, contributed_model
from tests.framework.models import Array, model_of
from tests.pairs import every_pair

K, N = 24, 20
CALLS = [(2, 5), (2, 9), (3, 17), (4, 40)]


def weights(rng: np.random.Generator, kind: Any, columns: bool) -> dict[str, Array]:
    """Weights with their scales and zero points."""
    info, count = np.iinfo(kind), (N,) if columns else ()
    zeros = rng.integers(-3, 4, count) if kind is np.int8 else rng.integers(120, 136, count)
    return {
        "w": rng.integers(info.min, info.max + 1, (K, N)).astype(kind),
        "ws": np.asarray(rng.uniform(0.01, 0.03, count)).astype(np.float32),
        "wz": np.asarray(zeros).astype(kind),
    }


@every_pair(kind=[np.int8, np.uint8], columns=[False, True], bias=[False, True])
def test_quantized_in_the_run(kind: Any, columns: bool, bias: bool) -> None:
    rng = np.random.default_rng(0)
    constants = weights(rng, kind, columns)
    names = ["x", "w", "ws", "wz"]
    if bias:
        constants["c"] = rng.standard_normal(N).astype(np.float32)
        names.append("c")
    op = contributed("DynamicQuantizeMatMul", names, "y")
    proto = contributed_model([op], {"x": ("b", "s", K)}, ["y"], constants)
    calls = [{"x": rng.standard_normal((b, s, K)).astype(np.float32)} for b, s in CALLS]
    check_calls(proto, calls, 1e-4)


@every_pair(
    pytest.mark.parametrize(
        ("source", "kind"), [(np.int8, np.int8), (np.uint8, np.int8), (np.uint8, np.uint8)]
    ),
    pytest.mark.parametrize("columns", [False, True]),
    pytest.mark.parametrize("scale", ["constant", "input"]),
)
def test_bytes_as_floats(source: Any, kind: Any, columns: bool, scale: str) -> None:
    rng, info = np.random.default_rng(1), np.iinfo(source)
    constants = weights(rng, kind, columns)
    constants["c"] = rng.standard_normal(N).astype(np.float32)
    own = {"xs": np.array([0.02], np.float32), "xz": np.array([7], source)}
    inputs: dict[str, Any] = {"x": ("b", "s", K)}
    kinds: dict[str, Any] = {"x": source}
    if scale == "input":
        inputs |= {"xs": (1,), "xz": (1,)}
        kinds["xz"] = source
    else:
        constants |= own
    op = contributed("MatMulIntegerToFloat", ["x", "w", "xs", "ws", "xz", "wz", "c"], "y")
    proto = contributed_model([op], inputs, ["y"], constants, kinds)
    calls = []
    for b, s in CALLS:
        x = rng.integers(info.min, info.max + 1, (b, s, K)).astype(source)
        calls.append({"x": x, **(own if scale == "input" else {})})
    check_calls(proto, calls, 1e-4)


def test_one_product() -> None:
    rng = np.random.default_rng(2)
    constants = {**weights(rng, np.int8, True), "c": rng.standard_normal(N)}
    constants |= {"xs": np.array([0.02], np.float32), "xz": np.array([7], np.uint8)}
    op = contributed("MatMulIntegerToFloat", ["x", "w", "xs", "ws", "xz", "wz", "c"], "y")
    proto = contributed_model([op], {"x": (5, K)}, ["y"], constants, {"x": np.uint8})
    session = model_of(proto).compile()
    assert [layer.primitive for layer in session.layers] == ["matmul"]


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_choices(kind: Any) -> None:
    rng, info = np.random.default_rng(3), np.iinfo(kind)
    constants: dict[str, Any] = {}
    for name in "xyz":
        constants[f"{name}s"] = np.float32(rng.uniform(0.02, 0.05))
        constants[f"{name}z"] = kind(rng.integers(0, 20))
    names = ["c", "x", "xs", "xz", "y", "ys", "yz", "zs", "zz"]
    op = contributed("QLinearWhere", names, "z")
    inputs: dict[str, Any] = {"c": ("b", "s", K), "x": ("b", 1, K), "y": ("b", "s", K)}
    kinds = {"c": bool, "x": kind, "y": kind, "z": kind}
    proto = contributed_model([op], inputs, ["z"], constants, kinds)
    calls = []
    for b, s in CALLS:
        feeds = {
            "x": rng.integers(info.min, info.max + 1, (b, 1, K)).astype(kind),
            "y": rng.integers(info.min, info.max + 1, (b, s, K)).astype(kind),
        }
        calls.append({"c": rng.random((b, s, K)) > 0.5, **feeds})
    check_calls(proto, calls, 0)


def test_scales_of_rows_are_refused() -> None:
    rng = np.random.default_rng(4)
    constants = {**weights(rng, np.int8, False), "xs": np.ones(K, np.float32)}
    op = contributed("MatMulIntegerToFloat", ["x", "w", "xs", "ws"], "y")
    used = {name: own for name, own in constants.items() if name != "wz"}
    proto = contributed_model([op], {"x": (5, K)}, ["y"], used, {"x": np.uint8})
    with pytest.raises(dnnl.Unimplemented, match="one scale and one zero point"):
        model_of(proto)(np.ones((5, K), np.uint8))
