"""Blocks of images as channels, centers, sequences backwards: open sizes and types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dnnl.errors import InvalidArguments
from dnnl.graph.graph import ModelError
from tests.framework.models import Array, model_of
from tests.framework.one_operator import check, model_with


def numbered(kind: Any, *shape: int) -> Array:
    return np.arange(np.prod(shape)).reshape(shape).astype(kind)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_and_back(mode: str, kind: Any) -> None:
    shapes = [(2, 12, 3, 5), (1, 36, 2, 2), (3, 24, 7, 4)]
    every = [{"x": numbered(kind, *shape)} for shape in shapes]
    attrs = {"blocksize": 2, "mode": mode}
    check("DepthToSpace", {"y": kind}, *every, attrs=attrs)
    every = [{"x": numbered(kind, n, c, 2 * h, 2 * w)} for n, c, h, w in shapes]
    check("SpaceToDepth", {"y": kind}, *every, attrs={"blocksize": 2})


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_centers(kind: Any) -> None:
    """Sizes that only the run knows: odd and even differences of both signs, none."""
    every = [
        {"x": numbered(kind, *shape), "s": np.array(sizes)}
        for shape, sizes in (
            ((5, 8, 3), (8, 3)), ((7, 9, 2), (16, 4)), ((4, 4, 2), (4, 9)), ((6, 5, 3), (2, 2)),
        )
    ]  # fmt: skip
    check("CenterCropPad", {"y": kind}, *every, peer="reference", attrs={"axes": [0, -2]})


def test_centers_of_all_axes() -> None:
    every = [{"x": numbered(np.float32, 5, 8), "s": np.array(s)} for s in ((8, 3), (0, 9), (5, 8))]
    check("CenterCropPad", {"y": np.float32}, *every, peer="reference")


@pytest.mark.parametrize("kind", [np.float32, np.int32])
@pytest.mark.parametrize("batch", [0, 1])
def test_sequences_backwards(batch: int, kind: Any) -> None:
    every = []
    for shape in ((3, 5, 4), (6, 4, 3), (9, 17, 2)):
        lengths = np.random.default_rng(0).integers(0, shape[1 - batch] + 1, shape[batch])
        every.append({"x": numbered(kind, *shape), "n": lengths})
    attrs = {"batch_axis": batch, "time_axis": 1 - batch}
    check("ReverseSequence", {"y": kind}, *every, peer="reference", attrs=attrs)


def test_sequences_longer_than_the_axis_are_refused() -> None:
    feeds = {"x": np.zeros((3, 2), np.float32), "n": np.array([1, 4])}
    model = model_of(model_with("ReverseSequence", feeds, {"y": np.float32}))
    with pytest.raises(InvalidArguments, match="indices of node 'ReverseSequence_0"):
        model(feeds)


@pytest.mark.parametrize(
    ("op", "shape", "attrs", "message"),
    [
        ("DepthToSpace", (1, 6, 2, 2), {"blocksize": 2}, "6 channels are no blocks of 2 x 2"),
        ("SpaceToDepth", (1, 6, 2, 3), {"blocksize": 2}, "has no whole blocks of 2 x 2"),
        ("SpaceToDepth", (1, 6, 4), {"blocksize": 2}, r"must be \[N, C, H, W\]"),
        ("DepthToSpace", (1, 4, 2, 2), {"blocksize": 2, "mode": "CDR"}, "neither DCR nor CRD"),
    ],
)
def test_wrong_blocks(op: str, shape: tuple[int, ...], attrs: dict[str, Any], message: str) -> None:
    feeds = {"x": np.zeros(shape, np.float32)}
    with pytest.raises(ModelError, match=message):
        model_of(model_with(op, feeds, {"y": np.float32}, attrs=attrs))(feeds)
