"""Winograd's algorithm in models: where it is chosen, its results, and how to keep it out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dnnl import config
from dnnl.framework import model as models
from dnnl.framework.session import Session
from tests import processor
from tests.framework.models import feeds_for, make_model, model_of, node, run_peer

Array = np.ndarray
RNG = np.random.default_rng(23)
CHANNELS, PIXELS = 32, 22
WINDOW = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def weights(*shape: int) -> Array:
    return np.asarray(RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:])), np.float32)


def residual(batch: int | str = 2, height: int | str = PIXELS, width: int | str = PIXELS) -> Any:
    """Two convolutions of 3x3 taps, each with a bias, and an addition behind the second."""
    nodes = [
        node("Conv", ["x", "w", "b"], "c", **WINDOW),
        node("Relu", ["c"], "r"),
        node("Conv", ["r", "v", "b"], "d", **WINDOW),
        node("Add", ["d", "c"], "s"),
        node("Relu", ["s"], "y"),
    ]
    own = {"w": (CHANNELS,) * 2 + (3, 3), "v": (CHANNELS,) * 2 + (3, 3), "b": (CHANNELS,)}
    constants = {name: weights(*shape) for name, shape in own.items()}
    return make_model(nodes, {"x": (batch, CHANNELS, height, width)}, ["y"], constants)


def assert_near(given: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Errors are a few dozen epsilons of the largest result."""
    for name, array in expected.items():
        np.testing.assert_allclose(given[name], array, rtol=0, atol=1e-5 * np.abs(array).max())


def algorithms(session: Session) -> list[str]:
    found = [own for own in session.layers if own.primitive == "convolution"]
    return [own.implementation.partition(":")[0] for own in found]


@pytest.mark.parametrize("layout", ["propagate", "middle", "plain"])
@pytest.mark.parametrize("threads", [1, 2])
def test_networks_use_it(layout: str, threads: int) -> None:
    proto = residual()
    model = model_of(proto)
    session = model.compile(layout=layout, num_threads=threads)
    assert algorithms(session) == ["winograd", "winograd"]
    feeds = feeds_for(model.graph)
    assert_near(session.run(feeds), run_peer(proto, feeds))


def test_one_variable_keeps_it_out() -> None:
    proto = residual()
    model = model_of(proto)
    feeds = feeds_for(model.graph)
    with config.override("winograd", False):
        session = model.compile()
        assert algorithms(session) == ["brgemm", "brgemm"]
        direct = session.run(feeds)["y"]
    other = model.compile().run(feeds)["y"]
    assert not np.array_equal(direct, other)
    assert_near({"y": other}, {"y": direct})


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_narrow_types_without_an_instruction(precision: str) -> None:
    """The results are those of the direct algorithm, but for the rounding of each layer."""
    model = model_of(residual())
    feeds = feeds_for(model.graph)
    with config.override("max_cpu_isa", "avx2"):
        session = model.compile(precision=precision)
        assert algorithms(session) == ["winograd", "winograd"]
        with config.override("winograd", False):
            direct = model.compile(precision=precision)
        assert algorithms(direct) == ["brgemm", "brgemm"]
        got, want = session.run(feeds)["y"], direct.run(feeds)["y"]
    eps = {"bf16": 2.0**-8, "f16": 2.0**-11}[precision]
    np.testing.assert_allclose(got, want, rtol=0, atol=2 * eps * np.abs(want).max())


@pytest.mark.skipif("avx512_core_bf16" not in processor.ISAS, reason="nothing multiplies bf16")
def test_bf16_with_an_instruction() -> None:
    session = model_of(residual()).compile(precision="bf16")
    assert algorithms(session) == ["brgemm", "brgemm"]


def test_open_sizes() -> None:
    proto = residual("n", "h", "w")
    model = model_of(proto)
    session = model.compile(sizes={"n": (1, 8), "h": (2, 400), "w": (2, 400)})
    for batch, height, width in ((1, 33, 40), (5, 7, 22), (2, 2, 5)):
        x = RNG.standard_normal((batch, CHANNELS, height, width)).astype(np.float32)
        assert_near(session.run({"x": x}), run_peer(proto, {"x": x}))
    assert algorithms(session) == ["winograd", "winograd"]


def test_weights_that_change_are_not_transformed() -> None:
    nodes = [node("Mul", ["w", "f"], "v"), node("Conv", ["x", "v"], "y", **WINDOW)]
    inputs: dict[str, Any] = {"x": (1, CHANNELS, PIXELS, PIXELS), "f": (1,)}
    proto = make_model(nodes, inputs, ["y"], {"w": weights(CHANNELS, CHANNELS, 3, 3)})
    model = model_of(proto)
    session = model.compile()
    assert algorithms(session) == ["brgemm"]
    feeds = feeds_for(model.graph)
    assert_near(session.run(feeds), run_peer(proto, feeds))


def test_transformed_weights_are_saved(tmp_path: Path) -> None:
    load: Any = models.load
    model = model_of(residual())
    feeds = feeds_for(model.graph)
    want = model(feeds)
    model.save(tmp_path / "model.dnnl")
    saved = load(tmp_path / "model.dnnl", compile=False)
    np.testing.assert_array_equal(saved(feeds), want)
