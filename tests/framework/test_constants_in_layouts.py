"""Constants in the layouts that kernels want, moved by NumPy or by kernels."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from dnnl import config
from dnnl.framework import moving
from tests.framework.models import make_model, model_of, node
from tests.pairs import every_pair

F32 = np.float32


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)


@every_pair(channels=[3, 16, 21, 48], group=[1, 3], winograd=[False, True])
def test_both_give_the_same_results(
    channels: int, group: int, winograd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(channels)
    inner = 3 * channels
    constants = {
        "first": weights(rng, inner, 3, 3, 3),
        "grouped": weights(rng, inner, inner // (group * channels), 3, 3)
        if group > 1
        else weights(rng, inner, inner, 1, 1),
        "last": weights(rng, 5, inner),
    }
    attrs = {"group": group * channels, "pads": [1, 1, 1, 1]} if group > 1 else {}
    nodes = [
        node("Conv", ["x", "first"], "a", pads=[1, 1, 1, 1]),
        node("Conv", ["a", "grouped"], "b", **attrs),
        node("GlobalAveragePool", ["b"], "c"),
        node("Flatten", ["c"], "d"),
        node("Gemm", ["d", "last"], "y", transB=1),
    ]
    model = model_of(make_model(nodes, {"x": (1, 3, 12, 12)}, ["y"], constants))
    x = rng.standard_normal((1, 3, 12, 12), np.float32)
    totals: list[int] = []
    with config.override("winograd", winograd):
        session = model.compile(progress=lambda _, total, __: totals.append(total))
        got = session.run({"x": x})["y"]
        few = totals[-1]
        monkeypatch.setattr(moving, "_FEW", 0)
        session = model.compile(progress=lambda _, total, __: totals.append(total))
        want = session.run({"x": x})["y"]
    # Both round the transform of taps, each in its own order.
    error = 1e-5 * np.abs(want).max() if winograd else 0
    np.testing.assert_allclose(got, want, rtol=0, atol=error)
    assert few < totals[-1]


def test_a_constant_node_has_the_value_that_the_file_has() -> None:
    value = np.arange(6, dtype=F32).reshape(2, 3)
    constant = numpy_helper.from_array(value)
    nodes = [node("Constant", [], "c", value=constant), node("Add", ["x", "c"], "y")]
    model = model_of(make_model(nodes, {"x": (2, 3)}, ["y"]))
    x = np.ones((2, 3), F32)
    np.testing.assert_array_equal(model.compile().run({"x": x})["y"], value + 1)
