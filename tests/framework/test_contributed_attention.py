"""Attention of ONNX Runtime's domain, of open sizes, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import dnnl
from tests.framework.contributed import check_calls, contributed, contributed_model
from tests.framework.models import Array, model_of

HEADS, SIZE = 4, 8
WIDTH = HEADS * SIZE
CALLS = [(2, 5, 3), (2, 9, 4), (3, 17, 12), (4, 40, 30)]


@dataclass(frozen=True)
class Form:
    """A form of the operators: which mask there is, whether there is a past, other attributes."""

    mask: str = ""
    past: bool = False
    added: Any = None
    packed: str = ""
    attrs: dict[str, Any] = field(default_factory=dict)


def mask_of(rng: np.random.Generator, kind: str, b: int, s: int, t: int) -> Array:
    """A mask that leaves a key to each row."""
    if kind == "lengths":
        return rng.integers(1, t + 1, b).astype(np.int32)
    if kind == "ends and starts":
        return np.concatenate((np.full(b, t), rng.integers(0, t, b))).astype(np.int32)
    found = rng.integers(0, 2, (b, t) if kind == "keys" else (b, s, t)).astype(np.int32)
    found[..., 0] = 1
    return found


MASKS = {
    "lengths": ("b",),
    "ends and starts": ("bb",),
    "keys": ("b", "t"),
    "rows and keys": ("b", "s", "t"),
}


ATTENTION = {
    "plain": Form(),
    "causal": Form(attrs={"unidirectional": 1}),
    **{name: Form(mask=name) for name in MASKS},
    "causal by keys": Form(mask="keys", attrs={"unidirectional": 1}),
    "past": Form(past=True, attrs={"unidirectional": 1}),
    "past by keys": Form(past=True, mask="keys"),
    "added": Form(added=(1, HEADS), mask="lengths"),
    "added to batches": Form(added=("b", 1)),
    "scaled": Form(mask="keys", attrs={"scale": 0.2, "mask_filter_value": -50.0}),
    "values of another size": Form(attrs={"qkv_hidden_sizes": [WIDTH, WIDTH, 2 * WIDTH]}),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str) -> None:
    form, rng = ATTENTION[name], np.random.default_rng(0)
    values = form.attrs.get("qkv_hidden_sizes", (WIDTH,) * 3)[2]
    columns = 2 * WIDTH + values
    constants = {"w": rng.standard_normal((12, columns)), "c": rng.standard_normal(columns)}
    inputs: dict[str, Any] = {"x": ("b", "s", 12)}
    if form.mask:
        inputs["mask"] = MASKS[form.mask]
    if form.past:
        inputs["past"] = (2, "b", HEADS, "p", SIZE)
    if form.added:
        inputs["added"] = (*form.added, "s", "t")
    names = [n if n in inputs or n in constants else "" for n in ("x", "w", "c", "mask", "past")]
    op = contributed(
        "Attention",
        [*names, "added" if form.added else ""],
        "y",
        *(("present",) if form.past else ()),
        num_heads=HEADS,
        **form.attrs,
    )
    outputs = ["y", "present"] if form.past else ["y"]
    proto = contributed_model([op], inputs, outputs, constants, {"mask": np.int32})
    calls = []
    for b, s, p in CALLS:
        t = s + p if form.past else s
        feeds: dict[str, Array] = {"x": rng.standard_normal((b, s, 12)).astype(np.float32)}
        if form.mask:
            feeds["mask"] = mask_of(rng, form.mask, b, s, t)
        if form.past:
            past = rng.standard_normal((2, b, HEADS, p, SIZE))
            feeds["past"] = past.astype(np.float32)
        if form.added:
            own = [b if n == "b" else n for n in form.added]
            feeds["added"] = rng.standard_normal((*own, s, t)).astype(np.float32)
        calls.append(feeds)
    check_calls(proto, calls, 2e-5)


@pytest.mark.parametrize("name", ["plain", "causal", "keys", "past"])
@pytest.mark.parametrize("columns", [False, True])
def test_quantized_attention(name: str, columns: bool) -> None:
    form, rng = ATTENTION[name], np.random.default_rng(1)
    own = 3 * WIDTH if columns else 1
    constants: dict[str, Any] = {
        "w": rng.integers(-127, 128, (12, 3 * WIDTH)).astype(np.int8),
        "c": rng.standard_normal(3 * WIDTH),
        "xs": np.float32(0.02),
        "ws": rng.uniform(0.01, 0.02, own).astype(np.float32),
        "xz": np.uint8(120),
        "wz": np.zeros(own, np.int8),
    }
    inputs: dict[str, Any] = {"x": ("b", "s", 12)}
    if form.mask:
        inputs["mask"] = MASKS[form.mask]
    if form.past:
        inputs["past"] = (2, "b", HEADS, "p", SIZE)
    names = ("x", "w", "c", "xs", "ws", "mask", "xz", "wz", "past")
    given = [n if n in inputs or n in constants else "" for n in names]
    outputs = ["y", "present"] if form.past else ["y"]
    op = contributed("QAttention", given, *outputs, num_heads=HEADS, **form.attrs)
    kinds = {"x": np.uint8, "mask": np.int32}
    proto = contributed_model([op], inputs, outputs, constants, kinds)
    calls = []
    for b, s, p in CALLS:
        feeds = {"x": rng.integers(0, 256, (b, s, 12)).astype(np.uint8)}
        if form.mask:
            feeds["mask"] = mask_of(rng, form.mask, b, s, s)
        if form.past:
            past = rng.standard_normal((2, b, HEADS, p, SIZE))
            feeds["past"] = past.astype(np.float32)
        calls.append(feeds)
    check_calls(proto, calls, 1e-4)


MULTI = {
    "plain": Form(),
    "bias": Form(packed="bias"),
    "keys by heads": Form(packed="heads"),
    "lengths": Form(mask="lengths"),
    "keys": Form(mask="keys"),
    "rows and keys": Form(mask="rows and keys", packed="bias"),
    "past": Form(past=True, packed="bias"),
    "causal past": Form(past=True, attrs={"unidirectional": 1}),
    "added": Form(added=("b", HEADS)),
    "added to all": Form(added=(1, 1), attrs={"scale": 0.4}),
}


@pytest.mark.parametrize("name", MULTI)
def test_several_heads(name: str) -> None:
    form, rng = MULTI[name], np.random.default_rng(2)
    inputs: dict[str, Any] = {"q": ("b", "s", WIDTH)}
    inputs |= {"k": ("b", "l", WIDTH), "v": ("b", "l", WIDTH)}
    if form.packed == "heads":
        inputs |= {"k": ("b", HEADS, "l", SIZE), "v": ("b", HEADS, "l", SIZE)}
    constants = {"c": rng.standard_normal(3 * WIDTH)} if form.packed == "bias" else {}
    if form.mask:
        inputs["mask"] = MASKS[form.mask]
    if form.added:
        inputs["added"] = (*form.added, "s", "t")
    if form.past:
        inputs |= dict.fromkeys(("pk", "pv"), ("b", HEADS, "p", SIZE))
    names = ("q", "k", "v", "c", "mask", "added", "pk", "pv")
    given = [n if n in inputs or n in constants else "" for n in names]
    outputs = ["y", "nk", "nv"] if form.past else ["y"]
    op = contributed("MultiHeadAttention", given, *outputs, num_heads=HEADS, **form.attrs)
    proto = contributed_model([op], inputs, outputs, constants, {"mask": np.int32})
    calls = []
    for b, s, p in CALLS:
        rows = s if form.past else s + 2
        t = rows + p if form.past else rows
        sizes = {"b": b, "s": s, "l": rows, "t": t, "p": p}
        feeds = {
            key: rng.standard_normal([sizes.get(n, n) for n in shape]).astype(np.float32)
            for key, shape in inputs.items()
            if key != "mask"
        }
        if form.mask:
            feeds["mask"] = mask_of(rng, form.mask, b, s, t)
        calls.append(feeds)
    check_calls(proto, calls, 2e-5)


@pytest.mark.parametrize("count", [2, 3])
def test_packed_heads(count: int) -> None:
    """What ONNX Runtime computes on devices alone, as the same sources apart."""

    def multi(inputs: dict[str, Any]) -> Any:
        op = contributed("MultiHeadAttention", list(inputs), "y", num_heads=HEADS)
        return model_of(contributed_model([op], inputs, ["y"]))

    shape, rng = ("b", "s", WIDTH), np.random.default_rng(5)
    apart = multi({"q": shape, "k": shape, "v": shape})
    packed = ("b", "s", HEADS, count, SIZE)
    joined = multi({"q": packed} if count == 3 else {"q": shape, "k": packed})
    for b, s, _ in CALLS:
        parts = rng.standard_normal((b, s, HEADS, 3, SIZE)).astype(np.float32)
        q, k, v = (np.ascontiguousarray(parts[:, :, :, n]).reshape(b, s, -1) for n in range(3))
        wanted = np.asarray(apart({"q": q, "k": k, "v": v}))
        keys = np.ascontiguousarray(parts[:, :, :, 1:])
        found = joined({"q": parts} if count == 3 else {"q": q, "k": keys})
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6, atol=1e-6)


def test_the_steps_of_a_layer() -> None:
    """A product of queries, keys and values, and one step on views of it."""
    rng = np.random.default_rng(3)
    constants = {"w": rng.standard_normal((12, 3 * WIDTH)), "c": rng.standard_normal(3 * WIDTH)}
    op = contributed("Attention", ["x", "w", "c"], "y", num_heads=HEADS)
    proto = contributed_model([op], {"x": (2, 9, 12)}, ["y"], constants)
    session = model_of(proto).compile()
    kinds = [layer.primitive for layer in session.layers]
    assert kinds in (["inner_product", "attention"], ["matmul", "attention"])


REFUSED = {
    "do_rotary": ("Attention", ["x", "w", "c"], {"do_rotary": 1}, "do_rotary"),
    "unheard_of": ("Attention", ["x", "w", "c"], {"unheard_of": 1}, "unheard_of"),
    "cache": ("MultiHeadAttention", ["x"] * 3 + [""] * 6 + ["m"], {}, "cache_indirection"),
    "mask": ("Attention", ["x", "w", "c", "m"], {}, "known are lengths"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    op, names, attrs, reason = REFUSED[name]
    rng = np.random.default_rng(4)
    constants = {"w": rng.standard_normal((12, 36)), "c": rng.standard_normal(36)}
    used = {key: own for key, own in constants.items() if key in names}
    inputs: dict[str, Any] = {"x": (2, 5, 12), **({"m": (7,)} if "m" in names else {})}
    nodes = [contributed(op, names, "y", num_heads=4, **attrs)]
    model = model_of(contributed_model(nodes, inputs, ["y"], used, {"m": np.int32}))
    feeds = {"x": np.ones((2, 5, 12), np.float32), "m": np.ones(7, np.int32)}
    with pytest.raises(dnnl.Error, match=reason):
        model({key: feeds[key] for key in inputs})
