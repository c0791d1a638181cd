"""Elements and slices written where indices say: open sizes, types, reductions, indices outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import ModelError
from tests.framework.models import Array, model_of
from tests.framework.one_operator import check, model_with
from tests.pairs import every_pair

SHAPES = [(3, 5, 4), (2, 37, 9), (4, 21, 19)]
REDUCTIONS = ["none", "add", "mul", "max", "min"]


def numbers(kind: Any, *shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(kind)


def indices(extent: int, *shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(-extent, extent, shape)


@every_pair(
    kind=[np.float32, np.float64, np.int32, np.int64], axis=[0, 1, -1], reduction=REDUCTIONS
)
def test_elements(reduction: str, axis: int, kind: Any) -> None:
    """Fewer than there are off the axis; several with one place, unless the order decides."""
    every = []
    for shape in SHAPES:
        part = [max(1, n - 1) for n in shape]
        place = axis % 3
        part[place] = shape[place] if reduction == "none" else 2 * shape[place]
        found = indices(shape[place], *part)
        if reduction == "none":  # each place once
            found = np.argsort(np.random.default_rng(1).random(part), axis)
        every.append({"x": numbers(kind, *shape), "i": found, "u": numbers(kind, *part)})
    attrs = {"axis": axis, "reduction": reduction}
    check("ScatterElements", {"y": kind}, *every, tolerance=1e-6, attrs=attrs)


def test_before_operator_set_11() -> None:
    every = [
        {"x": numbers(np.float32, *shape), "i": np.zeros((1, *shape[1:]), np.int32),
         "u": numbers(np.float32, 1, *shape[1:])}
        for shape in SHAPES
    ]  # fmt: skip
    check("Scatter", {"y": np.float32}, *every, opset=9)


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_slices(depth: int, kind: Any) -> None:
    """Rows of indices of one axis, of two and of all."""
    every = []
    for shape in SHAPES:
        flat = np.random.default_rng(2).permutation(int(np.prod(shape[:depth])))[:5]
        rows = np.stack(np.unravel_index(flat, shape[:depth]), -1)
        rows[0] -= shape[:depth]  # from the end
        updates = numbers(np.int64, len(rows), *shape[depth:]).astype(kind)
        every.append({"x": numbers(np.int64, *shape).astype(kind), "i": rows, "u": updates})
    check("ScatterND", {"y": kind}, *every)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_slices_with_one_place(reduction: str) -> None:
    every = []
    for shape in SHAPES:
        rows = indices(shape[0], 7, 1)
        every.append({"x": numbers(np.float32, *shape), "i": rows,
                      "u": numbers(np.float32, 7, *shape[1:])})  # fmt: skip
    attrs = {"reduction": reduction}
    check("ScatterND", {"y": np.float32}, *every, tolerance=1e-6, attrs=attrs)


def test_gather_of_rows_of_indices_with_batches() -> None:
    """The places are computed for any sizes."""
    every = []
    for shape in SHAPES:
        rows = np.stack([indices(n, shape[0], 6) for n in shape[1:]], -1)
        every.append({"x": numbers(np.float32, *shape), "i": rows})
    check("GatherND", {"y": np.float32}, *every, attrs={"batch_dims": 1})


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [1, -2])
def test_part_of_a_cache(axis: int, mode: str) -> None:
    every, want = [], []
    for shape in ((2, 3, 8, 4), (3, 2, 21, 5), (2, 5, 7, 3)):
        place = axis % 4
        part = [*shape]
        part[place] = 2
        cache, update = numbers(np.float32, *shape), numbers(np.float32, *part) + 9
        most = shape[place] - (2 if mode == "linear" else 1)
        first = np.random.default_rng(3).integers(0, most + 1, shape[0])
        result = cache.copy()
        for batch in range(shape[0]):
            where: list[Any] = [batch, slice(None), slice(None), slice(None)]
            for number in range(2):
                where[place] = (first[batch] + number) % shape[place]
                part_of: list[Any] = [batch, slice(None), slice(None), slice(None)]
                part_of[place] = number
                result[tuple(where)] = update[tuple(part_of)]
        every.append({"x": cache, "u": update, "i": first})
        want.append({"y": result})
    attrs = {"axis": axis, "mode": mode}
    check("TensorScatter", {"y": np.float32}, *every, wanted=want, opset=24, attrs=attrs)


def test_no_updates() -> None:
    x = numbers(np.float32, 3, 4)
    nothing = {"x": x, "i": np.zeros((0, 1), np.int64), "u": np.zeros((0, 4), np.float32)}
    check("ScatterND", {"y": np.float32}, nothing)
    nothing = {"x": x, "i": np.zeros((0, 4), np.int64), "u": np.zeros((0, 4), np.float32)}
    check("ScatterElements", {"y": np.float32}, nothing)


def test_indices_outside_are_refused() -> None:
    feeds = {"x": numbers(np.float32, 3, 4), "i": np.array([[0, 1, 2, 3]]),
             "u": numbers(np.float32, 1, 4)}  # fmt: skip
    model = model_of(model_with("ScatterElements", feeds, {"y": np.float32}))
    with pytest.raises(InvalidArguments, match=r"indices of node 'ScatterElements_0' = 3: .*-3..2"):
        model(feeds)
    feeds |= {"i": np.array([[1, 4]]), "u": np.ones(1, np.float32)}
    model = model_of(model_with("ScatterND", feeds, {"y": np.float32}))
    with pytest.raises(InvalidArguments, match=r"indices of node .ScatterND_0.*must be in -12..11"):
        model(feeds)
    feeds = {"x": np.ones((2, 3, 4), np.float32), "u": np.ones((2, 2, 4), np.float32),
             "i": np.array([0, 2])}  # fmt: skip
    model = model_of(model_with("TensorScatter", feeds, {"y": np.float32}, opset=24))
    with pytest.raises(InvalidArguments, match="indices of node 'TensorScatter_0"):
        model(feeds)


def test_wrong_sources() -> None:
    feeds = {"x": numbers(np.float32, 3, 4), "i": np.array([[0, 1]]),
             "u": numbers(np.float32, 1, 3)}  # fmt: skip
    model = model_of(model_with("ScatterElements", feeds, {"y": np.float32}))
    with pytest.raises(ModelError, match="disagree"):
        model(feeds)
    model = model_of(model_with("ScatterND", feeds, {"y": np.float32}))
    with pytest.raises(ModelError, match="updates"):
        model(feeds)
