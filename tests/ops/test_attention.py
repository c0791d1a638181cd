"""Attention against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import InvalidArguments
from tests.ops.test_ops import drawn, untyped

Q, K, V = drawn(2, 3, 7, 8), drawn(2, 3, 11, 8, seed=2), drawn(2, 3, 11, 5, seed=3)
ADDED, KEPT = drawn(7, 11, seed=4), drawn(2, 1, 7, 11, seed=5) > -1
of_torch: Any = F.scaled_dot_product_attention

CASES: dict[str, tuple[tuple[np.ndarray, ...], dict[str, Any]]] = {
    "plain": ((Q, K, V), {}),
    "matrices": ((Q[0, 0], K[0, 0], V[0, 0]), {"scale": 0.5}),
    "causal": ((Q, K, V), {"is_causal": True}),
    "causal of more rows": ((K, Q, V[:, :, :7]), {"is_causal": True, "scale": -1.0}),
    "numbers": ((Q, K, V), {"attn_mask": ADDED}),
    "numbers of a row": ((Q, K, V), {"attn_mask": ADDED[:, :1], "scale": 2.0}),
    "truth values": ((Q, K, V), {"attn_mask": KEPT}),
    "broadcast": ((Q, K[:, :1], V[:1]), {}),
    "other strides": (
        (Q[..., ::-1], K.transpose(1, 0, 2, 3)[:2, :1], np.asfortranarray(V)[:, :1]), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch_has_it(name: str) -> None:
    arrays, named = CASES[name]
    tensors = [torch.from_numpy(array.copy()) for array in arrays]
    more = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in named.items()}
    want = of_torch(*tensors, **more).numpy()
    got = untyped.attention(*arrays, **named)
    assert (type(got), got.dtype) == (np.ndarray, np.float32)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    room = np.full((*want.shape[:-1], 2 * want.shape[-1]), 7, np.float32)
    assert untyped.attention(*arrays, **named, out=room[..., ::2]) is not None
    np.testing.assert_allclose(room[..., ::2], want, rtol=1e-5, atol=1e-6)
    assert (room[..., 1::2] == 7).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tensors(dtype: torch.dtype) -> None:
    tensors = [torch.from_numpy(array).to(dtype) for array in (Q, K, V)]
    mask = torch.from_numpy(KEPT)
    got = untyped.attention(*tensors, mask)
    assert isinstance(got, torch.Tensor)
    assert got.dtype is dtype
    want = of_torch(*(t.float() for t in tensors), mask)
    eps = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(got.float(), want, rtol=eps, atol=eps)


def test_out_may_be_a_source() -> None:
    for place in range(3):
        arrays = [drawn(2, 6, 6, seed=seed) for seed in range(3)]
        want = untyped.attention(*arrays)
        assert untyped.attention(*arrays, out=arrays[place]) is arrays[place]
        np.testing.assert_array_equal(arrays[place], want)


def test_rows_without_keys_are_zero() -> None:
    kept = np.ones((7, 11), bool)
    kept[3] = False
    got = untyped.attention(Q, K, V, kept)
    assert (got[:, :, 3] == 0).all()
    np.testing.assert_array_equal(got[:, :, 4:], untyped.attention(Q[:, :, 4:], K, V))
    assert untyped.attention(Q[:, :, :0], K, V).shape == (2, 3, 0, 5)
    assert not untyped.attention(Q, K[:, :, :0], V[:, :, :0]).any()


@pytest.mark.parametrize(
    ("arrays", "named", "text"),
    [
        ((Q, K[..., :7], V), {}, "key = .*rows of 8"),
        ((Q, K, V[..., :9, :]), {}, "value = .*11 rows"),
        ((Q, K[0, 0, 0], V), {}, "key = .*a matrix"),
        ((Q, K[:, :2], V), {}, "key = .*cannot be broadcast"),
        ((Q, K, V[:, :2]), {}, "value = .*cannot be broadcast"),
        ((Q, K, "text"), {}, "value = 'str'"),
        ((Q, K, V), {"attn_mask": ADDED[:3]}, r"attn_mask = \(3, 11\): cannot be broadcast to"),
        ((Q, K, V), {"attn_mask": ADDED, "is_causal": True}, "is_causal = True: has a mask"),
        ((Q, K, V), {"is_causal": 1}, "is_causal = 1: expected True or False"),
        ((Q, K, V), {"scale": "a"}, "scale = 'a': expected a number"),
        ((Q, K, V), {"out": np.empty((2, 3, 7, 8), np.float32)}, "out = .*has the shape"),
    ],
)
def test_wrong_arguments(arrays: tuple[Any, ...], named: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArguments, match=text):
        untyped.attention(*arrays, **named)


def test_integers_have_shares_of_f32() -> None:
    given = [np.rint(8 * array).astype(np.int8) for array in (Q, K, V)]
    want = untyped.attention(*(array.astype(np.float32) for array in given), scale=0.01)
    result = untyped.attention(*given, scale=0.01)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-5)
    wide = untyped.attention(*(array.astype(np.int32) for array in given), scale=0.01)
    assert wide.dtype == np.float64  # which NumPy makes of f32 and s32
    np.testing.assert_allclose(wide, want, rtol=1e-5, atol=1e-5)
