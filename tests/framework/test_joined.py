"""Launches in a row are one from the second run on: results are those of the first."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import InvalidArguments, config
from dnnl.framework.model import Model
from dnnl.framework.session import Session
from dnnl.graph.graph import Array
from tests.framework.models import make_model, model_of, node

RNG = np.random.default_rng(7)
SIZE, DEPTH = 24, 20
WEIGHTS = RNG.standard_normal((SIZE, SIZE)).astype(np.float32)


def network() -> Model:
    """More products than are joined, and a gather whose indices are looked at before it runs."""
    nodes, value = [], "x"
    for place in range(DEPTH):
        nodes.append(node("MatMul", [value, "w"], f"m{place}"))
        value = f"s{place}"
        nodes.append(node("Softmax", [f"m{place}"], value, axis=-1))
        if place == DEPTH // 2:
            nodes.append(node("Gather", [value, "places"], "picked", axis=0))
            value = "picked"
    inputs, kinds = {"x": ("n", SIZE), "places": ("m",)}, {"places": np.int64}
    return model_of(make_model(nodes, inputs, [value, "m3"], {"w": WEIGHTS}, kinds=kinds))


def feeds(rows: int) -> dict[str, Array]:
    x = RNG.standard_normal((rows, SIZE)).astype(np.float32)
    return {"x": x, "places": RNG.integers(0, rows, 7)}


def session(rows: int) -> Session:
    found = network().with_shapes({"x": (rows, SIZE), "places": (7,)}).compile()
    assert isinstance(found, Session)
    return found


def same(got: dict[str, Array], want: dict[str, Array]) -> None:
    assert got.keys() == want.keys()
    for name, own in got.items():
        np.testing.assert_array_equal(own, want[name])


@pytest.mark.parametrize("threads", [1, 2])
def test_later_runs(threads: int) -> None:
    given = [feeds(5) for _ in range(3)]
    first = [session(5).run(own, num_threads=threads) for own in given]
    later = session(5)
    for _ in range(2):
        for own, expected in zip(given, first, strict=True):
            same(later.run(own, num_threads=threads), expected)


def test_later_runs_are_few_calls() -> None:
    own = session(5)
    with own._binders.taken(()) as binder:
        bound = binder.bound(())
        steps = len(bound.calls)
        assert bound.begin() is bound.calls
        assert len(bound.begin()) <= 1 + -(-steps // 16) + 2 < steps / 4
        assert bound.alone is None


def test_indices_are_looked_at_in_later_runs() -> None:
    own = session(5)
    given = feeds(5)
    expected = own.run(given)
    wrong = {**given, "places": np.array([0, 1, 2, 3, 4, 5, 0])}
    for _ in range(2):
        with pytest.raises(InvalidArguments, match=r"must be in -5\.\.4"):
            own.run(wrong)
        same(own.run(given), expected)


def test_sizes_that_come_again() -> None:
    model = network()
    given = [feeds(rows) for rows in (5, 9, 3)]
    first = [dict(network()(own)) for own in given]
    for _ in range(3):
        for own, expected in zip(given, first, strict=True):
            for name, array in model(own).items():
                np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)


def test_every_launch_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    given = feeds(5)
    with config.override("verbose", "profile_exec"):
        own = session(5)
        counts = []
        for _ in range(3):
            own.run(given)
            counts.append(capsys.readouterr().out.count(",exec,"))
    assert counts[0] == counts[2] > DEPTH
    assert len(set(counts)) == 1
