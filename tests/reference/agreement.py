"""Comparing two float64 computations of the same thing."""

from __future__ import annotations

import numpy as np
import torch

from dnnl.reference.arrays import Array


def random(seed: int, *dims: int) -> Array:
    """Normally distributed values."""
    return np.random.default_rng(seed).standard_normal(dims)


def tensor(values: Array) -> torch.Tensor:
    """The values as a tensor of PyTorch."""
    return torch.from_numpy(np.ascontiguousarray(values))


def assert_agree(got: Array, peer: torch.Tensor, rtol: float = 1e-12) -> None:
    """Both are float64 and differ by their rounding only."""
    want = peer.detach().numpy()
    assert got.dtype == want.dtype == np.float64
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol, strict=True)
