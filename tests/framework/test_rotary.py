"""Rotary embeddings of both domains, of open sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import dnnl
from dnnl.graph.graph import ModelError
from tests.framework.contributed import F16, check_calls, contributed, contributed_model
from tests.framework.models import Array, make_model, model_of, node
from tests.pairs import every_pair

CALLS = [(2, 5), (2, 9), (3, 17), (4, 40), (1, 33)]


def angles(rng: np.random.Generator, *shape: int) -> dict[str, Array]:
    radians = rng.standard_normal(shape)
    return {"cos": np.cos(radians).astype(np.float32), "sin": np.sin(radians).astype(np.float32)}


@every_pair(rank=[3, 4], interleaved=[0, 1], rotated=[0, 4], positions=[False, True])
def test_onnx(rank: int, interleaved: int, rotated: int, positions: bool) -> None:
    pairs, rng = (rotated or 8) // 2, np.random.default_rng(0)
    inputs: dict[str, Any] = {"x": ("b", "s", 24) if rank == 3 else ("b", 3, "s", 8)}
    table = ("m", pairs) if positions else ("b", "s", pairs)
    inputs |= {"cos": table, "sin": table, **({"p": ("b", "s")} if positions else {})}
    attrs = {"interleaved": interleaved, "rotary_embedding_dim": rotated}
    attrs |= {"num_heads": 3} if rank == 3 or rotated else {}
    op = node("RotaryEmbedding", list(inputs), "y", **attrs)
    proto = make_model([op], inputs, ["y"], opset=23, kinds={"p": np.int64})
    model, reference = model_of(proto), ReferenceEvaluator(proto)
    for b, s in CALLS:
        x = rng.standard_normal((b, s, 24) if rank == 3 else (b, 3, s, 8)).astype(np.float32)
        feeds = {"x": x, **angles(rng, *((50, pairs) if positions else (b, s, pairs)))}
        if positions:
            feeds["p"] = rng.integers(0, 50, (b, s))
        (wanted,) = reference.run(None, feeds)
        np.testing.assert_allclose(np.asarray(model(feeds)), wanted, rtol=2e-6, atol=2e-6)


def calls(rank: int, size: int, first: bool, dtype: Any = np.float32) -> Iterator[dict[str, Array]]:
    rng = np.random.default_rng(1)
    tables = {name: own.astype(dtype) for name, own in angles(rng, 60, 4).items()}
    for b, s in CALLS:
        shape = (b, s, 3 * size) if rank == 3 else (b, 3, s, size)
        where = rng.integers(0, 20, 1) if first else rng.integers(0, 60, (b, s))
        yield {"x": rng.standard_normal(shape).astype(dtype), "p": where, **tables}


@every_pair(rank=[3, 4], interleaved=[0, 1], first=[False, True], dtype=[np.float32, F16])
def test_contributed(rank: int, interleaved: int, first: bool, dtype: Any) -> None:
    inputs: dict[str, Any] = {"x": ("b", "s", 24) if rank == 3 else ("b", 3, "s", 8)}
    inputs |= {"p": (1,) if first else ("b", "s"), "cos": (60, 4), "sin": (60, 4)}
    op = contributed("RotaryEmbedding", list(inputs), "y", interleaved=interleaved)
    kinds = {"x": dtype, "cos": dtype, "sin": dtype, "y": dtype, "p": np.int64}
    proto = contributed_model([op], inputs, ["y"], kinds=kinds)
    check_calls(proto, calls(rank, 8, first, dtype), 2e-6 if dtype is np.float32 else 4e-3, 2)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_part_of_a_head(interleaved: int) -> None:
    inputs: dict[str, Any] = {"x": ("b", "s", 36), "p": ("b", "s"), "cos": (60, 4), "sin": (60, 4)}
    attrs = {"interleaved": interleaved, "num_heads": 3, "rotary_embedding_dim": 8}
    op = contributed("RotaryEmbedding", list(inputs), "y", **attrs)
    proto = contributed_model([op], inputs, ["y"], kinds={"p": np.int64})
    check_calls(proto, calls(3, 12, first=False), 2e-6, 2)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_constant_tables_are_one(interleaved: int) -> None:
    inputs: dict[str, Any] = {"x": ("b", "s", 24), "p": ("b", "s")}
    tables = angles(np.random.default_rng(2), 60, 4)
    names = ["x", "p", "cos", "sin"]
    op = contributed("RotaryEmbedding", names, "y", interleaved=interleaved)
    proto = contributed_model([op], inputs, ["y"], tables, kinds={"p": np.int64})
    feeds = [{"x": own["x"], "p": own["p"]} for own in calls(3, 8, first=False)]
    check_calls(proto, feeds, 2e-6, 2)
    session = model_of(proto).with_shapes({"x": (2, 9, 24), "p": (2, 9)}).compile()
    assert [layer.primitive for layer in session.layers] == ["gather", "concat", "eltwise"]


@pytest.mark.parametrize("name", ["is_packed_batching", "unheard_of"])
def test_other_attributes_are_refused(name: str) -> None:
    inputs: dict[str, Any] = {"x": ("b", "s", 24), "p": (1,), "cos": (60, 4), "sin": (60, 4)}
    op = contributed("RotaryEmbedding", list(inputs), "y", **{name: 1})
    model = model_of(contributed_model([op], inputs, ["y"], kinds={"p": np.int64}))
    with pytest.raises(dnnl.Unimplemented, match=name):
        model(next(calls(3, 8, first=True)))


@pytest.mark.parametrize("value", [-1, 2])
def test_a_flag_is_0_or_1(value: int) -> None:
    inputs: dict[str, Any] = {"x": ("b", "s", 24), "p": (1,), "cos": (60, 4), "sin": (60, 4)}
    op = contributed("RotaryEmbedding", list(inputs), "y", interleaved=value)
    with pytest.raises(ModelError, match=f"'interleaved' = {value} must be 0 or 1"):
        model_of(contributed_model([op], inputs, ["y"], kinds={"p": np.int64}))
