"""Models on a SYCL device against ONNX Runtime."""

from __future__ import annotations

import pytest

from dnnl import Engine
from tests.framework.models import assert_same, feeds_for, model_of, run_peer
from tests.framework.random_graphs import Builder

_STEPS = (
    ("Conv", "BatchNormalization", "MaxPool", "Depthwise", "Softmax"),
    ("Dense", "LayerNormalization", "Attention", "GeluOfTanh"),
    ("Gathered", "Less", "Swapped", "Nearest", "WithoutMean"),
)


@pytest.mark.parametrize("steps", _STEPS, ids="-".join)
def test_results_are_those_of_the_peer(steps: tuple[str, ...]) -> None:
    builder = Builder(1)
    for step in steps:
        builder.step(step, (0, 1, 2))
    proto = builder.proto()
    model = model_of(proto)
    feeds = feeds_for(model.graph)
    expected = run_peer(proto, feeds)
    session = model.compile(Engine("sycl"))
    assert_same(session.run(feeds), expected, 1e-3)
    assert_same(session.run(feeds), expected, 1e-3)
