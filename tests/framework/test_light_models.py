"""ONNX's light models end to end: random weights against ONNX Runtime, and recorded outputs."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl.errors import InvalidArguments
from dnnl.framework.model import load
from dnnl.onnx.read import read_tensor
from dnnl.runtime.engine import Engine
from tests.framework.models import LIGHT, assert_same, feeds_for, run_peer

MODELS = sorted(path.stem.removeprefix("light_") for path in LIGHT.glob("*.onnx"))
HEAVY = ("vgg19", "bvlc_alexnet", "zfnet512")
"""Hundreds of megabytes of weights, which only their constant form spares a test."""


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        *((name, "propagate") for name in MODELS if name not in HEAVY),
        ("resnet50", "plain"),
        ("shufflenet", "plain"),
    ],
)
@pytest.mark.covers
def test_random_weights(name: str, layout: str) -> None:
    model = load(LIGHT / f"light_{name}.onnx").with_random_weights(1)
    session = model.compile(Engine("cpu"), layout=layout)
    feeds = feeds_for(model.graph)
    assert_same(session.run(feeds), run_peer(model.to_onnx(), feeds), 1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_recorded_output(name: str) -> None:
    path = LIGHT / f"light_{name}.onnx"
    model = load(path)
    session = model.compile(Engine("cpu"))
    feeds = {
        # The input that ONNX recorded the outputs with.
        input_name: (np.arange(np.prod(kind.sizes)) / np.prod(kind.sizes))
        .reshape(kind.sizes)
        .astype(np.float32)
        for input_name, kind in session.inputs.items()
    }
    expected = read_tensor(LIGHT / f"light_{name}_output_0.pb")
    assert_same(session.run(feeds), {session.outputs[0]: expected}, 1e-3)


def test_batch() -> None:
    model = load(LIGHT / "light_resnet50.onnx").with_batch(3).with_random_weights(1)
    session = model.compile(Engine("cpu"))
    feeds = feeds_for(model.graph)
    outputs = session.run(feeds)
    assert_same(outputs, run_peer(model.to_onnx(), feeds), 1e-3)
    one = model.compile(Engine("cpu"), batch=1)
    single = one.run({name: array[1:2] for name, array in feeds.items()})
    assert_same(single, {name: array[1:2] for name, array in outputs.items()}, 1e-4)


def test_resnet_runs_without_loose_steps() -> None:
    session = load(LIGHT / "light_resnet50.onnx").compile(Engine("cpu"))
    kinds = [layer.primitive for layer in session.layers if layer.primitive != "reorder"]
    assert kinds.count("convolution") == 53
    assert len(kinds) == 53 + 4
    assert all(layer.implementation for layer in session.layers)


def test_input_errors() -> None:
    session = load(LIGHT / "light_squeezenet.onnx").compile(Engine("cpu"))
    image = np.zeros((1, 3, 224, 224), np.float32)
    for feeds, message in (
        ({}, r"'data_0'.*missing.*float32 \[1, 3, 224, 224\]"),
        ({"data_0": image, "other": image}, "'other'.*no such input"),
        (
            {"data_0": image[:, :2]},
            r"'data_0'.*\[1, 2, 224, 224\].*wrong shape.*\[1, 3, 224, 224\]",
        ),
        ({"data_0": image.astype(np.float64)}, r"'data_0'.*float64.*wrong data type.*float32"),
    ):
        with pytest.raises(InvalidArguments, match=message):
            session.run(feeds)


def test_thread_count_of_zero() -> None:
    model = load(LIGHT / "light_squeezenet.onnx")
    with pytest.raises(InvalidArguments, match="num_threads = 0"):
        model.compile(Engine("cpu"), num_threads=0)
    with pytest.raises(InvalidArguments, match="layout = 'other'"):
        model.compile(Engine("cpu"), layout="other")
