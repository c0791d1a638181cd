"""The reference of attention against PyTorch, in f64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dnnl.reference.attention import attention, attention_backward


def _tensors(*dims: tuple[int, ...]) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(len(dims))
    return [torch.randn(own, generator=random, dtype=torch.float64) for own in dims]


@pytest.mark.parametrize("masking", ["none", "causal", "causal_last", "mask"])
@pytest.mark.parametrize("served", [1, 2, 4])
def test_is_that_of_pytorch(served: int, masking: str) -> None:
    query, key, value = _tensors((2, 4, 5, 6), (2, served, 7, 6), (2, served, 7, 3))
    (mask,) = _tensors((2, 1, 5, 7))
    seen = {
        "none": torch.ones(5, 7, dtype=torch.bool),
        "causal": torch.ones(5, 7, dtype=torch.bool).tril(),
        "causal_last": torch.ones(5, 7, dtype=torch.bool).tril(2),
        "mask": mask,
    }[masking]
    for tensor in (query, key, value):
        tensor.requires_grad_()
    want = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, seen, scale=0.3, enable_gqa=True
    )
    (gradient,) = _tensors((2, 4, 5, 3))
    wanted = torch.autograd.grad(want, (query, key, value), gradient)
    added = mask.numpy() if masking == "mask" else None
    q, k, v = (tensor.detach().numpy() for tensor in (query, key, value))
    own = "none" if masking == "mask" else masking
    found = attention(q, k, v, added, masking=own, scale=0.3)
    np.testing.assert_allclose(found.dst, want.detach().numpy(), atol=1e-12)
    scores = 0.3 * q @ np.repeat(k, 4 // served, 1).swapaxes(-1, -2)
    scores = scores + (added if added is not None else np.where(seen.numpy(), 0, -np.inf))
    logsum = torch.logsumexp(torch.from_numpy(scores), -1).numpy()
    np.testing.assert_allclose(found.logsum, logsum, atol=1e-12)
    gradients = attention_backward(gradient.numpy(), q, k, v, added, masking=own, scale=0.3)
    for got, tensor in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(got, tensor.numpy(), atol=1e-12)


def test_rows_without_keys_are_zero() -> None:
    one = np.ones((1, 1, 3, 2))
    found = attention(one, one[..., :1, :], one[..., :1, :], masking="causal_last")
    assert (found.dst[0, 0, :2] == 0).all()
    assert (found.logsum[0, 0, :2] == -np.inf).all()
    assert (found.dst[0, 0, 2] == 1).all()
