"""The reduction reference against PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from dnnl.errors import InvalidArguments
from dnnl.reference.reduction import reduction
from tests.reference.agreement import assert_agree, random, tensor

DIMS = (3, 4, 5)
AXES = [(0,), (1,), (2,), (0, 2), (0, 1, 2)]
Axes = tuple[int, ...]


def product(src: torch.Tensor, axes: Axes) -> torch.Tensor:
    """That along several axes."""
    for axis in axes:
        src = src.prod(axis, keepdim=True)
    return src


PEERS: dict[str, Callable[[torch.Tensor, Axes], torch.Tensor]] = {
    "reduction_max": lambda src, axes: src.amax(axes, keepdim=True),
    "reduction_min": lambda src, axes: src.amin(axes, keepdim=True),
    "reduction_sum": lambda src, axes: src.sum(axes, keepdim=True),
    "reduction_mul": product,
    "reduction_mean": lambda src, axes: src.mean(axes, keepdim=True),
}


def kept(axes: Axes) -> Axes:
    """The dims of the result."""
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(DIMS))


@pytest.mark.parametrize("alg", PEERS)
@pytest.mark.parametrize("axes", AXES)
def test_agrees_with_pytorch(alg: str, axes: Axes) -> None:
    src = random(1, *DIMS)
    assert_agree(reduction(src, alg, kept(axes)), PEERS[alg](tensor(src), axes))


@pytest.mark.parametrize("p", [1.0, 2.0, 2.5])
@pytest.mark.parametrize("axes", AXES)
def test_norms_agree_with_pytorch(p: float, axes: Axes) -> None:
    src = random(1, *DIMS)
    norm = torch.linalg.vector_norm(tensor(src), p, axes, keepdim=True)
    for kind in ("max", "sum"):
        assert_agree(reduction(src, f"reduction_norm_lp_{kind}", kept(axes), p), norm)
        power = reduction(src, f"reduction_norm_lp_power_p_{kind}", kept(axes), p)
        assert_agree(power, norm**p)


def test_epsilon_is_added_or_is_the_least() -> None:
    src = np.array([[3.0, 4.0], [0.0, 0.0]])
    for name, want in (
        ("max", [[5.0], [3.0]]),
        ("sum", [[34.0**0.5], [3.0]]),
        ("power_p_max", [[25.0], [9.0]]),
        ("power_p_sum", [[34.0], [9.0]]),
    ):
        got = reduction(src, f"reduction_norm_lp_{name}", (2, 1), 2.0, 9.0)
        np.testing.assert_allclose(got, want, rtol=1e-15)


def test_nan_is_both_the_largest_and_the_smallest() -> None:
    src = np.array([[1.0, np.nan, 2.0], [np.nan] * 3, [-np.inf] * 3, [np.inf] * 3])
    for alg, peer in (("reduction_max", torch.amax), ("reduction_min", torch.amin)):
        want = peer(torch.from_numpy(src), 1, keepdim=True)
        np.testing.assert_array_equal(reduction(src, alg, (4, 1)), want.numpy())


def test_other_algorithms_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="expected a reduction"):
        reduction(np.ones((2, 2)), "eltwise_relu", (2, 1))
