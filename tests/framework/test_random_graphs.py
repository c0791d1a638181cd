"""Random graphs against ONNX Runtime: fusion, layouts, in-place steps and liveness together."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl.lowering.graphs import LAYOUTS
from dnnl.runtime.engine import Engine
from tests.framework.models import assert_same, feeds_for, model_of, run_peer
from tests.framework.random_graphs import STEPS, Builder


@pytest.mark.parametrize("seed", range(12))
def test_random_graph(seed: int) -> None:
    builder, rng = Builder(seed), np.random.default_rng(seed)
    for _ in range(14):
        recent = [int(back) for back in rng.exponential(2.0, 3)]
        builder.step(str(rng.choice(list(STEPS))), recent)
    proto = builder.proto(also=[str(rng.choice(builder.values[2:]))])
    model = model_of(proto)
    feeds = feeds_for(model.graph)
    session = model.compile(Engine("cpu"), layout=LAYOUTS[seed % 3], num_threads=1 + seed // 3 % 2)
    expected = run_peer(proto, feeds)
    assert_same(session.run(feeds), expected, 1e-3)
    assert_same(session.run(feeds), expected, 1e-3)


@pytest.mark.parametrize("name", STEPS)
def test_each_step(name: str) -> None:
    """Once on the inputs and once on what came of it."""
    builder = Builder(1)
    builder.step(name, (0, 1, 0))
    builder.step(name, (0, 1, 2))
    proto = builder.proto()
    model = model_of(proto)
    feeds = feeds_for(model.graph)
    session = model.compile(Engine("cpu"), num_threads=1)
    assert_same(session.run(feeds), run_peer(proto, feeds), 1e-3)
