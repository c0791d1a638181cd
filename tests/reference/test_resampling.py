"""The resampling reference against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dnnl.errors import InvalidArguments
from dnnl.reference.resampling import resampling, resampling_backward
from tests.reference.agreement import assert_agree, random, tensor

SIZES = [
    ((5,), (10,)), ((7,), (3,)), ((6,), (6,)), ((1,), (4,)), ((9,), (1,)),
    ((4, 9), (11, 5)), ((3, 5, 4), (6, 2, 9)),
]  # fmt: skip
MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def peer(src: torch.Tensor, alg: str, spatial: tuple[int, ...]) -> torch.Tensor:
    """What PyTorch makes of it."""
    mode: dict[str, Any] = {"mode": "nearest-exact"}
    if alg == "resampling_linear":
        mode = {"mode": MODES[len(spatial)], "align_corners": False}
    return torch.nn.functional.interpolate(src, spatial, **mode)


@pytest.mark.parametrize("alg", ["resampling_nearest", "resampling_linear"])
@pytest.mark.parametrize(("old", "new"), SIZES)
def test_agrees_with_pytorch(alg: str, old: tuple[int, ...], new: tuple[int, ...]) -> None:
    src = random(1, 2, 3, *old)
    leaf = tensor(src).requires_grad_()
    dst = peer(leaf, alg, new)
    assert_agree(resampling(src, alg, new), dst)
    diff_dst = random(2, 2, 3, *new)
    dst.backward(tensor(diff_dst))  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    assert_agree(resampling_backward(diff_dst, alg, old), leaf.grad)


def test_other_algorithms_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="expected a resampling"):
        resampling(random(1, 1, 1, 4), "eltwise_relu", (8,))
