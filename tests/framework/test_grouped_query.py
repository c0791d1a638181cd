"""GroupQueryAttention with caches, of open sizes, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl.framework.model import Model
from tests.framework.contributed import F16, contributed, contributed_model, results
from tests.framework.models import Array, model_of, run_peer

HEADS, SHARED, SIZE = 6, 2, 16
PLACES = 64


@dataclass(frozen=True)
class Form:
    """A form of the operator."""

    packed: bool = False
    rotary: bool = False
    places: bool = False
    added: bool = False
    sink: bool = False
    scales: bool = False
    dtype: Any = np.float32
    attrs: dict[str, Any] = field(default_factory=dict)

    def model(self) -> Any:
        """The protobuf of open sizes."""
        attrs = {"num_heads": HEADS, "kv_num_heads": SHARED, **self.attrs}
        inputs: dict[str, Any] = {"q": ("b", "s", HEADS * SIZE)}
        if self.packed:
            inputs = {"q": ("b", "s", (HEADS + 2 * SHARED) * SIZE)}
        else:
            inputs |= dict.fromkeys(("k", "v"), ("b", "s", SHARED * SIZE))
        inputs |= dict.fromkeys(("pk", "pv"), ("b", SHARED, "p", SIZE))
        inputs |= {"n": ("b",), "total": ()}
        constants = {}
        if self.rotary:
            attrs |= {"do_rotary": 1}
            radians = np.random.default_rng(9).standard_normal((PLACES, SIZE // 2))
            for name, table in (("cos", np.cos(radians)), ("sin", np.sin(radians))):
                constants[name] = table.astype(self.dtype)
        if self.places:
            inputs["places"] = ("b", "s")
        if self.added:
            inputs["added"] = ("b", 1, "s", "t")
        if self.sink:
            constants["sink"] = np.linspace(-1, 1, HEADS).astype(self.dtype)
        if self.scales:
            for name in ("qw", "kw"):
                constants[name] = np.linspace(0.5, 1.5, SIZE).astype(self.dtype)
        names = ["q", "k", "v", "pk", "pv", "n", "total", "cos", "sin", "places", "added"]
        names += ["sink", "ks", "vs", "qw", "kw"]
        given = [name if name in inputs or name in constants else "" for name in names]
        while not given[-1]:
            given.pop()
        kinds = dict.fromkeys((*inputs, "y", "nk", "nv"), self.dtype)
        kinds |= {"n": np.int32, "total": np.int32, "places": np.int64}
        op = contributed("GroupQueryAttention", given, "y", "nk", "nv", **attrs)
        return contributed_model([op], inputs, ["y", "nk", "nv"], constants, kinds)

    def feeds(
        self, rng: np.random.Generator, s: int, lengths: list[int], past: int
    ) -> dict[str, Array]:
        """Arrays for ``s`` new rows of batches that have ``lengths`` with them, and a cache."""
        b, total = len(lengths), max(lengths)
        widths = {"q": HEADS, "k": SHARED, "v": SHARED}
        if self.packed:
            widths = {"q": HEADS + 2 * SHARED}
        feeds: dict[str, Array] = {
            name: rng.standard_normal((b, s, count * SIZE)).astype(self.dtype)
            for name, count in widths.items()
        }
        for name in ("pk", "pv"):
            feeds[name] = rng.standard_normal((b, SHARED, past, SIZE)).astype(self.dtype)
        feeds["n"] = np.array(lengths, np.int32) - 1
        feeds["total"] = np.array(total, np.int32)
        if self.places:
            first = np.array(lengths)[:, None] - s if s < total else np.zeros((b, 1), np.int64)
            feeds["places"] = (first + np.arange(s)).astype(np.int64)
        if self.added:
            feeds["added"] = rng.standard_normal((b, 1, s, total)).astype(self.dtype)
        return feeds


FORMS = {
    "plain": Form(),
    "packed": Form(packed=True),
    "rotary": Form(rotary=True),
    "packed rotary": Form(packed=True, rotary=True, attrs={"rotary_interleaved": 1}),
    "rotary of positions": Form(rotary=True, places=True),
    "window": Form(attrs={"local_window_size": 4}),
    "capped": Form(attrs={"softcap": 2.0, "scale": 0.3}),
    "added": Form(added=True),
    "sink": Form(sink=True),
    "smooth": Form(attrs={"smooth_softmax": 1}),
    "f16": Form(dtype=F16, rotary=True),
}
CALLS: list[tuple[int, list[int], int]] = [
    *((5, [5, 5], 0), (9, [9, 9], 0), (12, [12, 12, 12], 0)),  # prompts
    *((1, [6, 6], 5), (1, [10, 7], 9), (1, [13, 4, 9], 12)),  # a row for each of several batches
    *((1, [6], 5), (1, [10], 9), (1, [21], 20)),  # of one batch
    *((3, [9], 6), (4, [19], 15)),  # several rows behind a past
    *((1, [6], 24), (1, [7, 9], 24), (5, [5], 24)),  # in a cache that is longer
]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.covers
def test_forms(name: str) -> None:
    form, rng = FORMS[name], np.random.default_rng(0)
    proto = form.model()
    model = model_of(proto)
    tolerance = 2e-5 if form.dtype is np.float32 else 1e-2
    for s, lengths, past in CALLS:
        feeds = form.feeds(rng, s, lengths, past)
        wanted, found = run_peer(proto, feeds), results(model, feeds)
        for key, right in wanted.items():
            own = found[key]
            assert (own.dtype, own.shape) == (right.dtype, right.shape), (key, s, lengths, past)
            for batch, length in enumerate(lengths):
                part = slice(None) if key == "y" else (slice(None), slice(0, length))
                np.testing.assert_allclose(
                    own[batch][part].astype(np.float64),
                    right[batch][part].astype(np.float64),
                    rtol=tolerance,
                    atol=tolerance,
                    err_msg=f"{key} of {s} rows, {lengths} with a cache of {past}",
                )


def test_prompts_of_different_lengths() -> None:
    form, rng = Form(rotary=True), np.random.default_rng(1)
    proto = form.model()
    lengths = [4, 7, 2]
    feeds = form.feeds(rng, 7, lengths, 0)
    wanted, found = run_peer(proto, feeds), results(model_of(proto), feeds)
    for batch, length in enumerate(lengths):
        np.testing.assert_allclose(
            found["y"][batch, :length], wanted["y"][batch, :length], rtol=2e-5, atol=2e-5
        )


def test_steps_after_a_prompt_share_a_plan() -> None:
    form, rng = Form(rotary=True), np.random.default_rng(2)
    model = model_of(form.model())
    model(form.feeds(rng, 8, [8], 0))
    counts = []
    for length in range(9, 16):
        model(form.feeds(rng, 1, [length], length - 1))
        counts.append(_plans(model))
    assert counts[1:] == [counts[1]] * 6


def _plans(model: Model) -> int:
    return sum(len(plans.sessions) for plans in model._called(()).runner.plans)


def test_normalized_heads() -> None:
    """What ONNX Runtime computes on devices alone, as normalizations before the node."""
    rng, form = np.random.default_rng(3), Form(rotary=True, scales=True)
    model, apart = model_of(form.model()), Form(rotary=True).model()
    weights = {"qw": np.linspace(0.5, 1.5, SIZE), "kw": np.linspace(0.5, 1.5, SIZE)}
    other = model_of(apart)
    for s, lengths, past in CALLS[:5]:
        feeds = form.feeds(rng, s, lengths, past)
        found, changed = results(model, feeds), dict(feeds)
        for name, weight in (("q", "qw"), ("k", "kw")):
            rows = feeds[name].astype(np.float64).reshape(len(lengths), s, -1, SIZE)
            rows /= np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-6)
            scaled = rows * weights[weight]
            changed[name] = scaled.reshape(feeds[name].shape).astype(np.float32)
        np.testing.assert_allclose(found["y"], results(other, changed)["y"], rtol=1e-4, atol=1e-5)


REFUSED: dict[str, dict[str, Any]] = {
    "sliding_window_cache": {"sliding_window_cache": 1},
    "k_quant_type": {"k_quant_type": "PER_TENSOR"},
    "qk_output": {"qk_output": 1},
    "unheard_of": {"unheard_of": 1},
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    form = Form(attrs=REFUSED[name])
    with pytest.raises(dnnl.Unimplemented, match=name):
        model_of(form.model())(form.feeds(np.random.default_rng(0), 4, [4], 0))


def test_lengths_that_contradict_the_cache_are_refused() -> None:
    form = Form()
    feeds = form.feeds(np.random.default_rng(0), 1, [9], 5)
    with pytest.raises(dnnl.Error, match="total_sequence_length must be"):
        model_of(form.model())(feeds)


@pytest.mark.parametrize("lengths", [[9], [9, 4]])
def test_threads_change_no_bit(lengths: list[int]) -> None:
    form = Form(rotary=True)
    feeds = form.feeds(np.random.default_rng(4), 1, lengths, 8)
    model = model_of(form.model())
    one, two = (model(feeds, num_threads=count) for count in (1, 2))
    assert isinstance(one, dict)
    assert isinstance(two, dict)
    for name, own in one.items():
        np.testing.assert_array_equal(own, two[name], err_msg=name)
