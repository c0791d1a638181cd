"""Reductions over any axes, of floats and of integers, against ONNX Runtime and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dnnl.errors import Unimplemented
from dnnl.lowering.graphs import LAYOUTS
from dnnl.operators.numbers import REDUCTIONS
from dnnl.runtime.engine import Engine
from tests.framework.models import (
    Array,
    assert_same,
    make_model,
    model_of,
    node,
    plans_of,
    run_peer,
)
from tests.framework.test_operators import agree, random

IMAGE = (2, 20, 7, 6)
AXES: tuple[list[int] | None, ...] = ([1], [-1], [2, 3], [0, 2], [3, 0, 1], [0, 1, 2, 3], None)
OPSET = 18
"""The first where all operators take their axes as an input."""


def reduced(
    op: str,
    axes: list[int] | None,
    shape: tuple[int, ...] = IMAGE,
    kind: str = "float32",
    **attrs: Any,
) -> Any:
    """A model of one reduction."""
    constants = {} if axes is None else {"axes": np.array(axes, np.int64)}
    nodes = [node(op, ["x", *constants], "y", **attrs)]
    return make_model(nodes, {"x": shape}, ["y"], constants, OPSET, {"x": kind, "y": kind})


@pytest.mark.parametrize("op", REDUCTIONS)
def test_any_axes(op: str) -> None:
    feeds = {"x": np.abs(random(*IMAGE)) + 0.5 if op == "ReduceLogSum" else random(*IMAGE)}
    for number, axes in enumerate(AXES):
        agree(reduced(op, axes, keepdims=number % 2), LAYOUTS[number // 2 % 2], 1e-4, feeds)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_behind_a_convolution_whose_layout_stays(op: str) -> None:
    axes = np.array([2, 3] if op < "ReduceMean" else [1])
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("Sigmoid", ["c"], "s"),
        node(op, ["s", "axes"], "r"),
        node("Relu", ["r"], "a"),
        node("Add", ["a", "b"], "y"),
    ]
    constants = {
        "w": random(24, 8, 1, 1),
        "axes": axes,
        "b": random(24 if axes[0] > 1 else 1, 1, 1),
    }
    proto = make_model(nodes, {"x": (2, 8, 5, 6)}, ["y"], constants, OPSET)
    agree(proto, "propagate", 1e-4)


def test_elementwise_nodes_behind_a_reduction_are_its_post_ops() -> None:
    """The part of a normalization that a model spells out."""
    nodes = [
        node("ReduceMean", ["x"], "m", axes=[-1]),
        node("Sub", ["x", "m"], "d"),
        node("Mul", ["d", "d"], "q"),
        node("ReduceSum", ["q", "last"], "v"),
        node("Add", ["v", "e"], "e1"),
        node("Sqrt", ["e1"], "s"),
        node("Div", ["d", "s"], "y"),
    ]
    constants = {"last": np.array([-1]), "e": np.array(1e-3)}
    session = agree(make_model(nodes, {"x": (3, 5, 33)}, ["y"], constants), "propagate")
    assert ("reduction", ("node_e1", "node_s")) in [(n.primitive, n.fused) for n in session.layers]


@pytest.mark.parametrize("op", REDUCTIONS)
def test_no_axes_leave_what_is_done_to_each_element(op: str) -> None:
    proto = reduced(op, [], noop_with_empty_axes=1)
    x = np.abs(random(*IMAGE)) + 0.1
    want = {"ReduceLogSum": np.log, "ReduceSumSquare": np.square}.get(op, np.positive)(x)
    assert_same(model_of(proto).compile(Engine("cpu")).run({"x": x}), {"y": want}, 1e-6)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_axes_of_one_element(op: str) -> None:
    feeds = {"x": np.abs(random(3, 1, 5, 1)) + 0.5}
    agree(reduced(op, [1, 3], (3, 1, 5, 1), keepdims=0), "propagate", 1e-5, feeds)
    agree(reduced(op, [3], (3, 1, 5, 1)), "plain", 1e-5, feeds)


_OF_NOTHING: dict[str, Callable[..., Any]] = {
    "ReduceLogSum": lambda x, axes: np.full(3, -np.inf),
    "ReduceLogSumExp": lambda x, axes: np.full(3, -np.inf),
    "ReduceMax": lambda x, axes: np.full(3, -np.inf),
    "ReduceMean": lambda x, axes: np.full(3, np.nan),
    "ReduceMin": lambda x, axes: np.full(3, np.inf),
    "ReduceProd": np.prod,
}


@pytest.mark.parametrize("op", REDUCTIONS)
def test_nothing_to_reduce(op: str) -> None:
    x = np.zeros((3, 0), np.float32)
    got, none = (
        model_of(reduced(op, axes, (3, 0), keepdims=axes[0] == 0))
        .with_shapes({"x": (3, 0)})
        .compile(Engine("cpu"))
        .run({"x": x})["y"]
        for axes in ([1], [0])
    )
    np.testing.assert_array_equal(got, _OF_NOTHING.get(op, np.sum)(x, 1))
    assert none.shape == (1, 0)


def test_exponentials_do_not_overflow() -> None:
    inf = np.inf
    rows = [[90, 100, 95], [-inf, -inf, -inf], [1, inf, 2], [-200, -100, -inf]]
    feeds = {"x": np.array(rows, np.float32)}
    got = model_of(reduced("ReduceLogSumExp", [1], (4, 3), keepdims=0)).compile().run(feeds)["y"]
    np.testing.assert_allclose(got, np.logaddexp.reduce(feeds["x"].astype(float), 1), 1e-6)


_NUMPY: dict[str, Callable[..., Any]] = {
    "ReduceL1": lambda x, **axes: np.sum(np.abs(x), **axes),
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, **axes: np.sum(x * x, **axes),
}


def integers(kind: str, shape: tuple[int, ...]) -> Array:
    info = np.iinfo(kind)
    return np.random.default_rng(3).integers(info.min, info.max, shape, kind, endpoint=True)


@pytest.mark.parametrize("kind", ["int32", "int64", "uint32", "uint64", "int8", "uint8"])
@pytest.mark.parametrize("op", _NUMPY)
def test_integers_are_exact_and_wrap(op: str, kind: str) -> None:
    x = integers(kind, (3, 7, 5, 4))
    if op == "ReduceProd":
        x |= np.ones_like(x)  # even factors soon leave 0
    for axes in ([1], [0, 3], [0, 1, 2, 3]):
        proto = reduced(op, axes, x.shape, kind)
        got = model_of(proto).compile(Engine("cpu")).run({"x": x})["y"]
        with np.errstate(over="ignore"):
            want = _NUMPY[op](x, axis=tuple(axes), keepdims=True).astype(kind)
            if op in ("ReduceL1", "ReduceSum", "ReduceSumSquare", "ReduceProd"):
                want = _wrapped(op, x, tuple(axes))
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def _wrapped(op: str, x: Array, axes: tuple[int, ...]) -> Array:
    """In the type of ``x``: NumPy adds up small integers in larger ones."""
    ufunc = np.multiply if op == "ReduceProd" else np.add
    x = {"ReduceL1": np.abs, "ReduceSumSquare": np.square}.get(op, np.positive)(x)
    return np.asarray(ufunc.reduce(x, axis=axes, keepdims=True, dtype=x.dtype))


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_truth_values(op: str) -> None:
    x = np.random.default_rng(1).integers(0, 2, (9, 5)).astype(bool)
    constants = {"axes": np.array([0])}
    nodes = [node(op, ["x", "axes"], "y")]
    proto = make_model(nodes, {"x": x.shape}, ["y"], constants, 20, {"x": bool, "y": bool})
    assert_same(
        model_of(proto).compile(Engine("cpu")).run({"x": x}), run_peer(proto, {"x": x}), 0.5
    )


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"])
def test_integers_whose_result_is_none_are_refused(op: str) -> None:
    with pytest.raises(Unimplemented, match=f"{op} of int32 is not computed; Cast makes"):
        model_of(reduced(op, [1], (3, 4), "int32")).compile(Engine("cpu"))


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
@pytest.mark.parametrize("rank", [1, 3])
def test_sums_of_long_rows_share_a_plan(kind: Any, rank: int) -> None:
    """They wrap, whatever the size of a row that a model leaves open."""
    shape: Any = ("s",) if rank == 1 else ("b", 3, "s")
    proto = make_model(
        [node("ReduceSum", ["x", "axes"], "y", keepdims=0)],
        {"x": shape},
        ["y"],
        {"axes": np.array([-1])},
        20,
        {"x": kind, "y": kind},
    )
    model, rng = model_of(proto), np.random.default_rng(2)
    for size in (5, 9, 17, 100, 1001):
        full = (size,) if rank == 1 else (2, 3, size)
        x = rng.integers(0, np.iinfo(kind).max, full, dtype=kind)
        found = np.asarray(model(x))
        np.testing.assert_array_equal(found, x.sum(-1, dtype=kind))
    assert len(plans_of(model).sessions) == 2
