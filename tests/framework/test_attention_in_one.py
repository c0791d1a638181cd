"""Two products and a softmax between them become one step where they are an attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.framework.compiler import optimize
from dnnl.framework.session import Session
from dnnl.lowering.graphs import LAYOUTS
from dnnl.operators.fused_attention import ATTENTION
from dnnl.passes.attention import attention_in_one
from dnnl.passes.specialize import specialize
from dnnl.types.dtype import DataType
from tests.framework.models import (
    assert_same,
    feeds_for,
    graph_of,
    make_model,
    model_of,
    node,
    run_peer,
)

ROWS, KEYS, DEPTH, WIDTH = 13, 19, 8, 12
THREE = ["matmul", "softmax", "matmul"]
LOW = float(np.finfo(np.float32).min)


def attention(
    *,
    lead: tuple[int | str, ...] = (2, 3),
    rows: int | str = ROWS,
    keys: int | str = KEYS,
    mask: Any = None,
    scale: float = 0.0,
    axis: int = -1,
    transposed: bool = True,
) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Nodes, inputs q, k and v, and constants."""
    rank = len(lead) + 2
    perm = [*range(rank - 2), rank - 1, rank - 2]
    nodes, last = [], "s"
    if transposed:
        nodes.append(node("Transpose", ["k"], "kt", perm=perm))
    nodes.append(node("MatMul", ["q", "kt" if transposed else "k"], "s"))
    constants: dict[str, Any] = {}
    if scale:
        nodes.append(node("Mul", [last, "factor"], "scaled"))
        constants["factor"], last = scale, "scaled"
    if mask is not None:
        nodes.append(node("Add", [last, "mask"], "masked"))
        constants["mask"], last = mask, "masked"
    nodes += [
        node("Softmax", [last], "p", axis=axis),
        node("MatMul", ["p", "v"], "y"),
    ]
    inputs = {
        "q": (*lead, rows, DEPTH),
        "k": (*lead, keys, DEPTH) if transposed else (*lead, DEPTH, keys),
        "v": (*lead, keys, WIDTH),
    }
    return nodes, inputs, constants


def run(proto: Any, layout: str = "propagate") -> list[str]:
    """The steps of a model, whose outputs are those of ONNX Runtime."""
    model = model_of(proto)
    session = model.compile(layout=layout, num_threads=2)
    feeds = feeds_for(model.graph)
    assert_same(session.run(feeds), run_peer(proto, feeds), 1e-5)
    return steps(session)


def steps(session: Session) -> list[str]:
    return [layer.primitive for layer in session.layers if layer.primitive != "reorder"]


CAUSAL = np.tri(ROWS, KEYS, dtype=bool)
MASKS: dict[str, Any] = {
    "none": None,
    "zeros": np.zeros((1, 1, ROWS, KEYS)),
    "numbers": np.random.default_rng(1).standard_normal((2, 1, ROWS, KEYS)),
    "keys": np.where(np.arange(KEYS) < 7, 0.0, -np.inf),
    "causal": np.where(CAUSAL, 0.0, -np.inf),
    "causal, finite": np.where(CAUSAL, 0.0, LOW)[np.newaxis],
    "causal at the end": np.where(np.tri(ROWS, KEYS, KEYS - ROWS, dtype=bool), 0.0, -np.inf),
    "nearly causal": np.where(CAUSAL | (np.arange(KEYS) == 11), 0.0, -np.inf),
    "a row without keys": np.where(np.arange(ROWS)[:, np.newaxis] == 4, -np.inf, 0.0),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask: str, layout: str) -> None:
    own = MASKS[mask]
    if mask == "a row without keys":
        own = np.broadcast_to(own, (ROWS, KEYS))
    nodes, inputs, constants = attention(mask=own, scale=0.4)
    assert run(make_model(nodes, inputs, ["y"], constants), layout) == ["attention"]


def test_two_causal_masks() -> None:
    """The later of both excludes more keys than the first one."""
    nodes, inputs, constants = attention(mask=MASKS["causal at the end"])
    *scores, _, product = nodes
    both = [node("Add", ["masked", "second"], "both"), node("Softmax", ["both"], "p", axis=-1)]
    constants["second"] = MASKS["causal"]
    run(make_model([*scores, *both, product], inputs, ["y"], constants))


@pytest.mark.parametrize(
    ("mask", "masking"),
    [
        ("zeros", "none"),
        ("causal", "causal"),
        ("causal, finite", "causal"),
        ("causal at the end", "causal_last"),
        ("nearly causal", ""),
        ("numbers", ""),
    ],
)
def test_causal_masks_are_no_source(mask: str, masking: str) -> None:
    nodes, inputs, constants = attention(mask=MASKS[mask])
    graph = optimize(specialize(graph_of(make_model(nodes, inputs, ["y"], constants))))
    *_, last = attention_in_one(graph, [DataType.f32]).nodes
    assert last.attrs["masking"] == (masking or "none")
    assert len(last.inputs) == (3 if masking else 4)


@pytest.mark.parametrize("past", [0, 6])
@pytest.mark.parametrize("is_open", [False, True])
def test_causal_operators_have_no_mask(past: int, is_open: bool) -> None:
    rows: Any = "rows" if is_open else ROWS
    inputs: dict[str, Any] = dict.fromkeys("qkv", (1, 2, rows, DEPTH))
    names, outputs = ["q", "k", "v"], ["y"]
    if past:
        inputs |= dict.fromkeys(("pk", "pv"), (1, 2, past, DEPTH))
        names, outputs = [*names, "", "pk", "pv"], ["y", "ok", "ov"]
    nodes = [node("Attention", names, *outputs, is_causal=1)]
    proto = make_model(nodes, inputs, outputs, opset=23)
    model = model_of(proto)
    sizes = {name: (1, 2, own[2] if own[2] != "rows" else 5, DEPTH) for name, own in inputs.items()}
    rng = np.random.default_rng(2)
    feeds = {name: rng.standard_normal(dims, np.float32) for name, dims in sizes.items()}
    got: Any = model(feeds)
    assert_same(got if past else {"y": got}, run_peer(proto, feeds), 1e-5)
    graph = optimize(specialize(model.with_shapes(sizes).graph))
    *_, last = [n for n in attention_in_one(graph, [DataType.f32]).nodes if n.op == ATTENTION]
    assert last.attrs["masking"] == ("causal_last" if past else "causal")
    assert len(last.inputs) == 3


@pytest.mark.parametrize("lead", [(), (3,), (1, 1)])
def test_ranks(lead: tuple[int, ...]) -> None:
    nodes, inputs, constants = attention(lead=lead)
    assert run(make_model(nodes, inputs, ["y"], constants)) == ["attention"]


def test_keys_that_are_columns() -> None:
    nodes, inputs, constants = attention(transposed=False)
    assert run(make_model(nodes, inputs, ["y"], constants)) == ["attention"]


def test_heads_that_share_keys() -> None:
    for mask in (
        None,
        np.random.default_rng(1).standard_normal((1, 2, 3, ROWS, KEYS)),
        MASKS["keys"],
    ):
        nodes, inputs, constants = attention(lead=(1, 2, 3), mask=mask)
        shapes = {name: (1, 2, 1, *inputs[name][3:]) for name in ("k", "v")}
        proto = make_model(nodes, inputs | shapes, ["y"], constants)
        assert run(proto) == ["attention"]


def test_what_is_left_as_it_is() -> None:
    nodes, inputs, constants = attention(rows=1)
    assert run(make_model(nodes, inputs, ["y"], constants)) == THREE
    nodes, inputs, constants = attention()
    assert run(make_model(nodes, inputs, ["y", "p"], constants)) == THREE
    nodes, inputs, constants = attention(axis=-2)
    assert run(make_model(nodes, inputs, ["y"], constants)) == THREE
    nodes, inputs, constants = attention()
    nodes[-1:] = [node("MatMul", ["p", "v"], "z"), node("Relu", ["z"], "y")]
    assert run(make_model(nodes, inputs, ["y"], constants)) == THREE
    nodes, inputs, constants = attention()
    nodes[2:2] = [node("Tanh", ["s"], "t")]
    nodes[3].input[0] = "t"
    assert run(make_model(nodes, inputs, ["y"], constants)) == THREE
    nodes, inputs, constants = attention()
    three = {"k": (1, *inputs["k"][1:]), "v": (2, 1, *inputs["v"][2:])}
    assert run(make_model(nodes, inputs | three, ["y"], constants)) == THREE


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_smaller_types(precision: str) -> None:
    nodes, inputs, constants = attention(mask=MASKS["causal"], scale=0.4)
    proto = make_model(nodes, inputs, ["y"], constants)
    model = model_of(proto)
    session = model.compile(precision=precision)
    feeds = feeds_for(model.graph)
    want = run_peer(proto, feeds)["y"]
    np.testing.assert_allclose(session.run(feeds)["y"], want, atol=0.05)


def test_open_sizes() -> None:
    nodes, inputs, constants = attention(lead=("n", 3), rows="rows", keys="keys", scale=0.4)
    proto = make_model(nodes, inputs, ["y"], constants)
    model = model_of(proto)
    rng = np.random.default_rng(2)
    for batch, rows, keys in ((1, 5, 9), (2, 70, 33), (3, 1, 4), (2, 17, 300)):
        feeds = {
            "q": rng.standard_normal((batch, 3, rows, DEPTH), np.float32),
            "k": rng.standard_normal((batch, 3, keys, DEPTH), np.float32),
            "v": rng.standard_normal((batch, 3, keys, WIDTH), np.float32),
        }
        got: Any = model(feeds)
        np.testing.assert_allclose(got, run_peer(proto, feeds)["y"], rtol=1e-4, atol=1e-5)
