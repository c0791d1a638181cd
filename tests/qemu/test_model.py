"""A whole network on another architecture: layouts propagate, post-ops fuse, memory is planned."""

from __future__ import annotations

import numpy as np
import pytest

from tests.framework.models import (
    assert_same,
    feeds_for,
    graph_of,
    make_model,
    model_of,
    node,
    run_peer,
)
from tests.primitives.harness import ENGINE
from tests.qemu.engine import QEMU, missing
from tests.qemu.instead import instead

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize("layout", ["propagate", "plain"])
def test_a_network_with_a_residual(layout: str) -> None:
    rng = np.random.default_rng(1)
    shapes = {"stem": (24, 3, 3, 3), "wide": (24, 24, 3, 3), "each": (24, 1, 3, 3), "k": (24, 10)}
    proto = make_model(
        [
            node("Conv", ["x", "stem"], "a", strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Relu", ["a"], "b"),
            node("Conv", ["b", "wide"], "c", pads=[1, 1, 1, 1]),
            node("Add", ["c", "b"], "d"),
            node("Relu", ["d"], "e"),
            node("Conv", ["e", "each"], "f", group=24, pads=[1, 1, 1, 1]),
            node("MaxPool", ["f"], "g", kernel_shape=[3, 3], strides=[2, 2]),
            node("GlobalAveragePool", ["g"], "h"),
            node("Flatten", ["h"], "i"),
            node("MatMul", ["i", "k"], "j"),
            node("Softmax", ["j"], "y"),
        ],
        {"x": (2, 3, 19, 17)},
        ["y", "d"],
        {name: rng.normal(0, 0.2, shape) for name, shape in shapes.items()},
    )
    feeds = feeds_for(graph_of(proto))
    with instead(QEMU):
        session = model_of(proto).compile(ENGINE, layout=layout)
        got = session.run(feeds)
    assert {layer.implementation.rpartition(":")[2] for layer in session.layers} == {"neon"}
    assert_same(got, run_peer(proto, feeds), 1e-4)
