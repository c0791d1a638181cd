"""Losses of classes, with weights and what is ignored, beside ONNX's own implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import ModelError
from tests.framework.models import Array, model_of
from tests.framework.one_operator import check, model_with
from tests.pairs import every_pair

SHAPES = [(3, 5), (6, 9), (2, 5, 4), (4, 7, 3, 2), (5, 31, 6, 4)]


def feeds_of(shape: tuple[int, ...], weights: bool, targets: Any = np.int64) -> dict[str, Array]:
    rng = np.random.default_rng(sum(shape))
    scores = rng.standard_normal(shape).astype(np.float32)
    found = {"x": scores, "t": rng.integers(0, shape[1], (shape[0], *shape[2:])).astype(targets)}
    if weights:
        found["w"] = rng.uniform(0.5, 2, shape[1]).astype(np.float32)
    return found


@every_pair(
    reduction=["none", "mean", "sum"],
    ignored=[None, 1, -7],
    weights=[False, True],
    op=["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"],
)
def test_losses(op: str, weights: bool, ignored: int | None, reduction: str) -> None:
    attrs = {"reduction": reduction, **({} if ignored is None else {"ignore_index": ignored})}
    for shapes in (SHAPES[:2], SHAPES[2:3], SHAPES[3:]):
        every = [feeds_of(shape, weights) for shape in shapes]
        if ignored == -7:
            for feeds in every:
                feeds["t"].reshape(-1)[::3] = ignored
        check(op, {"y": np.float32}, *every, peer="reference", tolerance=1e-5, attrs=attrs)


@pytest.mark.parametrize("opset", [12, 13])
def test_logarithms_of_probabilities(opset: int) -> None:
    every = [feeds_of(shape, False, np.int32) for shape in SHAPES[3:]]
    kinds = {"y": np.float32, "log_prob": np.float32}
    check("SoftmaxCrossEntropyLoss", kinds, *every, peer="reference", tolerance=1e-5, opset=opset)


def test_what_is_ignored_may_be_infinite() -> None:
    feeds = {"x": np.array([[-np.inf, -1], [-2, -3]], np.float32), "t": np.array([0, 1])}
    model = model_of(
        model_with("NegativeLogLikelihoodLoss", feeds, {"y": np.float32},
                   attrs={"ignore_index": 0})
    )  # fmt: skip
    assert model(feeds) == 3


def test_wrong_targets() -> None:
    feeds = {"x": np.zeros((2, 3), np.float32), "t": np.array([0, 3])}
    proto = model_with("NegativeLogLikelihoodLoss", feeds, {"y": np.float32})
    with pytest.raises(InvalidArguments, match=r"indices of node 'NegativeLog.* = 3: must be in"):
        model_of(proto)(feeds)
    with pytest.raises(ModelError, match="not one for each place"):
        model_of(proto)({**feeds, "t": np.array([0, 1, 2])})
