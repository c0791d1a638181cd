"""Attention of ONNX's own domain, of open sizes, against ONNX's implementation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import dnnl
from dnnl.errors import Error
from dnnl.framework.model import Model
from tests.framework.models import Array, make_model, model_of, node, plans_of

BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Form:
    """An attention of some heads: of the sizes that calls have, with inputs behind the first
    three."""

    heads: int = 4
    shared: int = 4
    rank: int = 4
    mask: str = ""
    dtype: Any = np.float32
    past: bool = False
    lengths: bool = False
    outputs: int = 1
    attrs: dict[str, Any] = field(default_factory=dict)

    def model(self) -> Any:
        """The protobuf of open sizes."""
        attrs = dict(self.attrs)
        if self.rank == 3:
            attrs |= {"q_num_heads": self.heads, "kv_num_heads": self.shared}
            inputs: dict[str, Any] = {
                "q": ("b", "s", self.heads * 8),
                "k": ("b", "t", self.shared * 8),
                "v": ("b", "t", self.shared * 6),
            }
        else:
            inputs = {
                "q": ("b", self.heads, "s", 8),
                "k": ("b", self.shared, "t", 8),
                "v": ("b", self.shared, "t", 6),
            }
        kinds = dict.fromkeys(("q", "k", "v", "pk", "pv", "y", "nk", "nv", "qk"), self.dtype)
        kinds |= {"mask": bool if self.mask.startswith("bool") else self.dtype, "n": np.int64}
        names = ["q", "k", "v"]
        if self.mask:
            inputs["mask"] = ("m0", "m1", "s", "u") if self.mask.endswith("4") else ("s", "u")
        if self.past:
            inputs |= {"pk": ("b", self.shared, "p", 8), "pv": ("b", self.shared, "p", 6)}
        if self.lengths:
            inputs["n"] = ("b",)
        places = ("q", "k", "v", "mask", "pk", "pv", "n")
        names = [name if name in inputs else "" for name in places]
        outputs = ["y", "nk", "nv", "qk"][: self.outputs]
        nodes = [node("Attention", names, *outputs, **attrs)]
        return make_model(nodes, inputs, outputs, opset=25, kinds=kinds)

    def feeds(self, rng: np.random.Generator, b: int, s: int, t: int, p: int) -> dict[str, Array]:
        """Random arrays of given sizes."""
        sizes = {"q": (self.heads, s, 8), "k": (self.shared, t, 8), "v": (self.shared, t, 6)}
        arrays = {}
        for name, (heads, rows, depth) in sizes.items():
            shape: tuple[int, ...] = (b, heads, rows, depth)
            if self.rank == 3:
                shape = (b, rows, heads * depth)
            arrays[name] = rng.standard_normal(shape).astype(self.dtype)
        total = t + p if self.past else t
        if self.mask:
            shape = (b, self.heads, s, total) if self.mask.endswith("4") else (s, total)
            if "short" in self.mask:
                shape = (*shape[:-1], max(1, total - 2))
            wide = rng.standard_normal(shape)
            mask = wide > -0.5 if self.mask.startswith("bool") else wide.astype(self.dtype)
            arrays["mask"] = mask
        if self.past:
            for name, depth in (("pk", 8), ("pv", 6)):
                past = rng.standard_normal((b, self.shared, p, depth))
                arrays[name] = past.astype(self.dtype)
        if self.lengths:
            arrays["n"] = rng.integers(1, t + 1, b)
        return arrays


FORMS = {
    "plain": Form(),
    "of three dimensions": Form(rank=3),
    "scaled": Form(attrs={"scale": 0.3}),
    "causal": Form(attrs={"is_causal": 1}),
    "groups": Form(heads=6, shared=2, attrs={"is_causal": 1}),
    "groups of three dimensions": Form(heads=6, shared=2, rank=3, mask="bool4"),
    "one head of keys": Form(heads=3, shared=1, rank=3, mask="float"),
    "truth values": Form(mask="bool"),
    "truth values of heads": Form(mask="bool4", attrs={"is_causal": 1}),
    "floats": Form(mask="float4", rank=3),
    "short truth values": Form(mask="bool short"),
    "short floats": Form(mask="float short", attrs={"is_causal": 1}),
    "capped": Form(attrs={"softcap": 2.0}, mask="float"),
    "past": Form(past=True, outputs=3, attrs={"is_causal": 1}),
    "past of three dimensions": Form(past=True, outputs=3, rank=3, heads=6, shared=2, mask="bool"),
    "window": Form(attrs={"left_window_size": 3, "is_causal": 1}),
    "window to both sides": Form(past=True, attrs={"left_window_size": 2, "right_window_size": 1}),
    "lengths": Form(lengths=True),
    "causal lengths": Form(lengths=True, attrs={"is_causal": 1}, heads=6, shared=2),
    "window of lengths": Form(lengths=True, attrs={"left_window_size": 2}, mask="float"),
    "keys as a result": Form(outputs=3, rank=3),
    **{
        f"products in mode {mode}": Form(
            outputs=4,
            rank=3,
            mask="float",
            heads=6,
            shared=2,
            attrs={"qk_matmul_output_mode": mode, "softcap": 1.5 if mode else 0.0},
        )
        for mode in range(4)
    },
    "f64": Form(dtype=np.float64, mask="float", attrs={"is_causal": 1}),
    "f16": Form(dtype=np.float16, mask="float", outputs=3, past=True),
    "bf16": Form(dtype=BF16, heads=6, shared=2, attrs={"is_causal": 1, "softcap": 3.0}),
}
TOLERANCES = {np.float32: 2e-6, np.float64: 2e-6, np.float16: 4e-3, BF16: 3e-2}


_OF_ONE_PLAN = 4


def sizes_of_calls() -> Iterator[tuple[int, int, int, int]]:
    """Batches, rows, keys and past keys: for one plan, then several lengths and the ends."""
    yield from ((2, 5, 7, 4), (2, 9, 9, 6), (3, 17, 20, 3), (4, 66, 90, 12))
    yield from ((1, 1, 1, 8), (2, 1, 6, 9), (1, 33, 34, 1))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.covers
def test_forms(name: str) -> None:
    form, rng = FORMS[name], np.random.default_rng(1)
    proto = form.model()
    model, reference = model_of(proto), ReferenceEvaluator(proto)
    for place, sizes in enumerate(sizes_of_calls()):
        if place == _OF_ONE_PLAN:
            assert sum(session.is_open for session in plans_of(model).sessions) == 1
        feeds = form.feeds(rng, *sizes)
        with np.errstate(invalid="ignore"):
            wanted = reference.run(None, feeds)
        found = results(model, feeds)
        for output, right in zip(proto.graph.output, wanted, strict=True):
            own = found[output.name]
            assert own.dtype == right.dtype, output.name
            tolerance = TOLERANCES[form.dtype]
            np.testing.assert_allclose(
                own.astype(np.float64),
                np.asarray(right).astype(np.float64),
                rtol=tolerance,
                atol=tolerance,
                err_msg=f"{output.name} of {sizes}",
            )


def results(model: Model, feeds: dict[str, Array]) -> dict[str, Array]:
    """All results by their names."""
    found = model(feeds)
    return found if isinstance(found, dict) else {next(iter(model.outputs)): found}


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_without_keys_are_zero(threads: int) -> None:
    model = model_of(Form(mask="bool").model())
    rng = np.random.default_rng(0)
    feeds = Form(mask="bool").feeds(rng, 2, 5, 7, 0)
    feeds["mask"][3] = False
    found = np.asarray(model(feeds, num_threads=threads))
    assert (found[:, :, 3] == 0).all()
    assert np.isfinite(found).all()


def test_heads_of_queries_share_those_of_keys_in_place() -> None:
    proto = Form(heads=8, shared=2, rank=3).model()
    sizes = {"q": (1, 6, 64), "k": (1, 6, 16), "v": (1, 6, 12)}
    session = model_of(proto).with_shapes(sizes).compile()
    kinds = [layer.primitive for layer in session.layers]
    assert kinds == ["attention"]


REFUSED = {
    "heads": (Form(heads=4, shared=3), "4 heads of queries are no multiple of 3"),
    "mode": (Form(attrs={"qk_matmul_output_mode": 4}), "'qk_matmul_output_mode' = 4"),
    "window": (Form(attrs={"left_window_size": -2}), "'left_window_size' = -2"),
    "past and lengths": (Form(past=True, lengths=True), "exclude each other"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    form, reason = REFUSED[name]
    feeds = form.feeds(np.random.default_rng(0), 2, 3, 4, 2)
    with pytest.raises(Error, match=reason):
        model_of(form.model())(feeds)


def test_masks_of_integers_are_refused() -> None:
    proto = make_model(
        [node("Attention", ["q", "q", "q", "mask"], "y")],
        {"q": (1, 2, 4, 8), "mask": (4, 4)},
        ["y"],
        opset=23,
        kinds={"mask": np.int32},
    )
    feeds = {"q": np.ones((1, 2, 4, 8), np.float32), "mask": np.ones((4, 4), np.int32)}
    with pytest.raises(dnnl.Unimplemented, match="attn_mask of int32"):
        model_of(proto)(feeds)
