"""Sessions that are compiled for ranges of sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl.framework.model import Model
from dnnl.framework.program import OpenSession
from tests.framework.models import graph_of, make_model, node, run_peer

Array = np.ndarray
RNG = np.random.default_rng(38)


def network() -> Any:
    """A convolution that halves images, a mean of each, a product."""
    constants = {
        "w": (RNG.standard_normal((16, 3, 3, 3)) * 0.2).astype(np.float32),
        "m": (RNG.standard_normal((16, 5)) * 0.2).astype(np.float32),
    }
    nodes = [
        node("Conv", ["x", "w"], "c", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c"], "r"),
        node("GlobalAveragePool", ["r"], "p"),
        node("Flatten", ["p"], "f"),
        node("MatMul", ["f", "m"], "y"),
    ]
    return make_model(nodes, {"x": ("n", 3, "h", "w")}, ["y", "r"], constants)


def images(*shape: int) -> dict[str, Array]:
    return {"x": RNG.standard_normal(shape).astype(np.float32)}


def test_one_plan_for_a_range() -> None:
    proto = network()
    sizes: Any = {"n": (1, 8), "h": dnnl.RuntimeDim(16, 96, 8), "w": dnnl.RuntimeDim(16, 96, 8)}
    session = Model(graph_of(proto)).compile(sizes=sizes)
    assert isinstance(session, OpenSession)
    assert session.inputs["x"].shape == ("n", 3, "h", "w")
    assert session.layers[0].primitive == "convolution"
    for shape in ((2, 3, 16, 96), (8, 3, 40, 24), (5, 3, 64, 64), (2, 3, 88, 16)):
        feeds = images(*shape)
        got = session.run(feeds, num_threads=1)
        for name, want in run_peer(proto, feeds).items():
            np.testing.assert_allclose(got[name], want, 1e-4, 1e-4)
    assert len(session._runner.sessions) == 1
    (plan,) = session._runner.sessions
    assert plan.inputs["x"].shape == ("s0", 3, "8*s1", "8*s2")  # multiples that kernels know


def test_a_batch_beside_a_range() -> None:
    """Numbers of the model that mean its batch change as without a range."""
    nodes = [node("Reshape", ["x", "target"], "r"), node("Relu", ["r"], "y")]
    constants = {"target": np.array([1, -1, 4], np.int64)}
    model = Model(graph_of(make_model(nodes, {"x": (1, "w", 8)}, ["y"], constants)))
    session = model.compile(batch=3, sizes={"w": (2, 9)})
    x = RNG.standard_normal((3, 6, 8)).astype(np.float32)
    np.testing.assert_array_equal(session(x), np.maximum(x.reshape(3, 12, 4), 0))


def test_numbers_among_sizes() -> None:
    session = Model(graph_of(network())).compile(batch=2, sizes={"h": 8, "w": 10})
    assert not isinstance(session, OpenSession)
    assert session.run(images(2, 3, 8, 10))["r"].shape == (2, 16, 4, 5)


@pytest.mark.parametrize(
    ("shape", "rule"),
    [
        ((2, 3, 20, 16), "size 'h' must be at least 16 and at most 96 and a multiple of 8"),
        ((2, 3, 104, 16), "size 'h' must be"),
        ((9, 3, 16, 16), "size 'n' must be at least 1 and at most 8"),
    ],
)
def test_other_sizes_are_refused(shape: tuple[int, ...], rule: str) -> None:
    sizes: Any = {"n": (1, 8), "h": dnnl.RuntimeDim(16, 96, 8), "w": (16, 96)}
    session = Model(graph_of(network())).compile(sizes=sizes)
    with pytest.raises(dnnl.InvalidArguments, match=rule):
        session.run(images(*shape))


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        ({"depth": (1, 2)}, r"no open size has this name; there are h, n, w"),
        ({"n": (1, 4), "h": (8, 4), "w": 3}, "there is no multiple of 1 from 8 to it"),
        ({"n": 1.5}, r"sizes\['n'\] = 1.5: expected a number"),
        ({"n": (2, 4)}, r"the model leaves '[hw]' open.*compile\(sizes="),
        ([("n", 2)], "expected a mapping"),
    ],
)
def test_wrong_ranges(sizes: Any, rule: str) -> None:
    with pytest.raises(dnnl.InvalidArguments, match=rule):
        Model(graph_of(network())).compile(sizes=sizes)
