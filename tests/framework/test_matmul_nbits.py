"""Products with weights of few bits in blocks, against ONNX Runtime and against floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import dnnl
from tests.framework.contributed import (
    BF16,
    F16,
    check_calls,
    contributed,
    contributed_model,
    results,
)
from tests.framework.models import Array, model_of, node


def packed(codes: Array, bits: int) -> Array:
    """Codes in bytes, those of lower places in lower bits; the last byte is filled."""
    each = 8 // bits
    fill = -codes.shape[-1] % each
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, fill)])
    split = codes.reshape(*codes.shape[:-1], -1, each) << (np.arange(each) * bits)
    found: Array = split.sum(-1).astype(np.uint8)
    return found


def weights_of(
    rng: np.random.Generator,
    k: int,
    n: int,
    bits: int,
    block: int,
    points: str = "",
    dtype: Any = np.float32,
) -> tuple[dict[str, Array], Array]:
    """The constants of a node, and the floats [k, n] that they stand for."""
    groups = -(-k // block)
    codes = rng.integers(0, 1 << bits, (n, groups, block))
    scales = rng.uniform(0.01, 0.1, (n, groups)).astype(dtype)
    zero = np.full((n, groups), 1 << (bits - 1))
    found = {"w": packed(codes, bits), "scales": scales}
    if points:
        zero = rng.integers(0, 1 << bits, (n, groups))
        found["points"] = packed(zero, bits) if points == "bytes" else zero.astype(dtype)
    floats = (codes - zero[:, :, None]) * scales[:, :, None].astype(np.float64)
    return found, floats.reshape(n, -1)[:, :k].T


def product_model(
    k: int, n: int, bits: int, block: int, constants: dict[str, Array], dtype: Any = np.float32
) -> Any:
    names = ["x", "w", "scales", "points", "order", "bias"]
    given = [name if name in constants or name == "x" else "" for name in names]
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
    op = contributed("MatMulNBits", given, "y", **attrs)
    return contributed_model(
        [op], {"x": ("b", "s", k)}, ["y"], constants, kinds={"x": dtype, "y": dtype}
    )


CASES = [
    *((4, block, points, 256, 48) for block in (16, 32, 128) for points in ("", "bytes")),
    (4, 32, "floats", 100, 33),
    (4, 16, "bytes", 100, 33),
    (8, 32, "", 256, 48),
    (8, 128, "bytes", 256, 48),
    (8, 16, "floats", 100, 33),
    (2, 32, "", 128, 40),
    (2, 16, "bytes", 100, 21),
]


@pytest.mark.parametrize(("bits", "block", "points", "k", "n"), CASES)
def test_floats_by_codes(bits: int, block: int, points: str, k: int, n: int) -> None:
    rng = np.random.default_rng(bits + block + k)
    constants, floats = weights_of(rng, k, n, bits, block, points)
    bias = rng.standard_normal(n).astype(np.float32)
    proto = product_model(k, n, bits, block, {**constants, "bias": bias})
    model = model_of(proto)
    for b, s in ((1, 1), (2, 5), (2, 9), (1, 40), (3, 1)):
        x = rng.standard_normal((b, s, k)).astype(np.float32)
        found = results(model, {"x": x})["y"]
        wanted = x.astype(np.float64) @ floats + bias
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5 * np.sqrt(k))


@pytest.mark.parametrize("points", ["", "bytes"])
@pytest.mark.parametrize("bits", [4, 8])
def test_as_the_peer(bits: int, points: str) -> None:
    rng = np.random.default_rng(3)
    constants, _ = weights_of(rng, 128, 64, bits, 32, points)
    calls = [
        {"x": rng.standard_normal((b, s, 128)).astype(np.float32)}
        for b, s in ((1, 3), (2, 5), (1, 17), (1, 1))
    ]
    check_calls(product_model(128, 64, bits, 32, constants), calls, 1e-4, None)


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_smaller_floats(dtype: Any) -> None:
    rng = np.random.default_rng(4)
    constants, floats = weights_of(rng, 128, 64, 4, 32, "bytes", dtype)
    model = model_of(product_model(128, 64, 4, 32, constants, dtype))
    for s in (1, 5, 33):
        x = rng.standard_normal((1, s, 128)).astype(dtype)
        found = results(model, {"x": x})["y"]
        assert found.dtype == dtype
        wanted = x.astype(np.float64) @ floats
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=1e-2, atol=5e-2)


def test_one_step_with_what_follows() -> None:
    rng = np.random.default_rng(5)
    constants, floats = weights_of(rng, 128, 64, 4, 32)
    proto = product_model(128, 64, 4, 32, constants)
    proto.graph.node.append(node("Sigmoid", ["y"], "z"))
    proto.graph.output[0].name = "z"
    session = model_of(proto).with_shapes({"x": (1, 4, 128)}).compile()
    (layer,) = session.layers
    assert (layer.primitive, layer.fused) == ("matmul", ("node_z",))
    assert layer.layouts["weights"].endswith("8a")
    x = rng.standard_normal((1, 4, 128)).astype(np.float32)
    wanted = 1 / (1 + np.exp(-(x @ floats)))
    np.testing.assert_allclose(session.run({"x": x})["z"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", [0, 4])
def test_rounded_sources_where_the_model_allows_it(level: int) -> None:
    rng = np.random.default_rng(6)
    constants, floats = weights_of(rng, 256, 64, 4, 32)
    proto = product_model(256, 64, 4, 32, constants)
    proto.graph.node[0].attribute.append(onnx.helper.make_attribute("accuracy_level", level))
    x = rng.standard_normal((1, 64, 256)).astype(np.float32)
    found = results(model_of(proto), {"x": x})["y"]
    wanted = x.astype(np.float64) @ floats
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert error < (2e-2 if level else 1e-5)


REFUSED = {
    "bits": ({"bits": 3}, "bits = 3"),
    "prepacked": ({"weight_prepacked": 1}, "weight_prepacked = 1"),
    "block": ({"block_size": 24}, "'block_size' = 24"),
    "unknown": ({"unheard_of": 1}, "unheard_of"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    attrs, reason = REFUSED[name]
    constants, _ = weights_of(np.random.default_rng(0), 128, 64, 4, 32)
    own = {"K": 128, "N": 64, "bits": 4, "block_size": 32, **attrs}
    op = contributed("MatMulNBits", ["x", "w", "scales"], "y", **own)
    proto = contributed_model([op], {"x": ("s", 128)}, ["y"], constants)
    with pytest.raises(dnnl.Error, match=reason):
        model_of(proto)(np.ones((2, 128), np.float32))


def test_weights_that_are_computed_are_refused() -> None:
    attrs = {"K": 128, "N": 64, "bits": 4, "block_size": 32}
    op = contributed("MatMulNBits", ["x", "w", "scales"], "y", **attrs)
    inputs = {"x": ("s", 128), "w": (64, 4, 16), "scales": (64, 4)}
    model = model_of(contributed_model([op], inputs, ["y"], kinds={"w": np.uint8}))
    constants, _ = weights_of(np.random.default_rng(0), 128, 64, 4, 32)
    with pytest.raises(dnnl.Unimplemented, match="'w' must be constant"):
        model({"x": np.ones((2, 128), np.float32), **constants})


@pytest.mark.parametrize("rows", [1, 9, 40])
def test_threads_change_no_bit(rows: int) -> None:
    rng = np.random.default_rng(7)
    constants, _ = weights_of(rng, 512, 200, 4, 32, "bytes")
    model = model_of(product_model(512, 200, 4, 32, constants))
    x = rng.standard_normal((1, rows, 512)).astype(np.float32)
    one, two = (np.asarray(model(x, num_threads=count)) for count in (1, 2))
    np.testing.assert_array_equal(one, two)
