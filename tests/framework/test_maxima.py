"""Maxima and minima of models where elements are NaN or infinite: those of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dnnl import Engine, ops
from tests.framework.models import make_model, model_of, node

IMAGE = np.random.default_rng(1).standard_normal((2, 3, 6, 5)).astype(np.float32)
IMAGE[0, 0] = -np.inf
IMAGE[0, 1, 2, 3], IMAGE[1, 1, :, 2], IMAGE[1, 2, 0, 0] = np.nan, np.nan, np.inf
OTHER = np.roll(IMAGE, 1, 0)


def windows(x: np.ndarray) -> np.ndarray:
    views = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3))
    return np.asarray(views.max((-2, -1)))


Same = Callable[..., np.ndarray]
OPERATORS: dict[str, tuple[dict[str, Any], int, Same]] = {
    "Max": ({}, 2, np.maximum),
    "Min": ({}, 2, np.minimum),
    "ReduceMax": ({"axes": [2]}, 1, lambda x: x.max(2, keepdims=True)),
    "ReduceMin": ({"axes": [1, 3]}, 1, lambda x: x.min((1, 3), keepdims=True)),
    "MaxPool": ({"kernel_shape": [2, 2]}, 1, windows),
    "GlobalMaxPool": ({}, 1, lambda x: x.max((2, 3), keepdims=True)),
    "Relu": ({}, 1, lambda x: np.maximum(x, 0)),
    "Clip": ({"min": -0.5, "max": 0.5}, 1, lambda x: np.clip(x, -0.5, 0.5)),
}


@pytest.mark.parametrize("op", OPERATORS)
def test_models(op: str) -> None:
    attrs, count, same = OPERATORS[op]
    feeds = {"x": IMAGE, "z": OTHER}
    names = list(feeds)[:count]
    opset = 6 if op == "Clip" else 12
    shapes = dict.fromkeys(names, IMAGE.shape)
    proto = make_model([node(op, names, "y", **attrs)], shapes, ["y"], opset=opset)
    session = model_of(proto).compile(Engine("cpu"), num_threads=1)
    got = session.run({name: feeds[name] for name in names})["y"]
    np.testing.assert_array_equal(got, same(*(feeds[name] for name in names)))


def test_functions() -> None:
    for got, want in (
        (ops.maximum(IMAGE, OTHER), np.maximum(IMAGE, OTHER)),
        (ops.minimum(IMAGE, OTHER), np.minimum(IMAGE, OTHER)),
        (ops.amax(IMAGE, axis=(1, 2)), IMAGE.max((1, 2))),
        (ops.amin(IMAGE, axis=3), IMAGE.min(3)),
        (ops.max_pool2d(IMAGE, 2, 1), windows(IMAGE)),
        (ops.relu(IMAGE), np.maximum(IMAGE, 0)),
        (ops.clip(IMAGE, -1, 0.5), np.clip(IMAGE, -1, 0.5)),
    ):
        np.testing.assert_array_equal(got, want)
