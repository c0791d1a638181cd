"""Attention against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import InvalidArguments
from tests.ops.test_ops import drawn, untyped
from tests.pairs import every_pair

Q, K, V = drawn(2, 3, 7, 8), drawn(2, 3, 11, 8, seed=2), drawn(2, 3, 11, 5, seed=3)
MANY = drawn(2, 3, 37, 8, seed=6)
ADDED, KEPT = drawn(7, 11, seed=4), drawn(2, 1, 7, 11, seed=5) > -1
of_torch: Any = F.scaled_dot_product_attention

CASES: dict[str, tuple[tuple[np.ndarray, ...], dict[str, Any]]] = {
    "plain": ((Q, K, V), {}),
    "many": ((MANY, K, V), {}),
    "many, causal": ((MANY, MANY, MANY), {"is_causal": True}),
    "many, numbers": ((MANY, K, V), {"attn_mask": drawn(3, 37, 11, seed=7)}),
    "many, truth values": ((MANY, K, V), {"attn_mask": KEPT[:, :, :1], "scale": 0.5}),
    "many, matrices": ((MANY[0, 0], K[0, 0], V[0, 0]), {}),
    "many, broadcast": ((MANY, K[:, :1], V[:1, :1]), {}),
    "many, broadcast values": ((MANY[:1], K[:1], V), {}),
    "many, other strides": ((MANY[..., ::-1], np.asfortranarray(K), V), {}),
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
    want = untyped.attention(Q[:, :, 4:], K, V)
    np.testing.assert_allclose(got[:, :, 4:], want, rtol=1e-5, atol=1e-6)
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


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
def test_masks_of_integers(dtype: Any) -> None:
    arrays = Q, K, V, KEPT.astype(dtype)
    tensors = [torch.from_numpy(array.copy()) for array in arrays]
    query = tensors[0].clone().requires_grad_()
    for given in (arrays, tensors, (query, *tensors[1:])):
        with pytest.raises(InvalidArguments, match=r"attn_mask = 'integers': .*\.bool\(\)"):
            untyped.scaled_dot_product_attention(*given)


def test_integers_have_shares_of_f32() -> None:
    given = [np.rint(8 * array).astype(np.int8) for array in (Q, K, V)]
    want = untyped.attention(*(array.astype(np.float32) for array in given), scale=0.01)
    result = untyped.attention(*given, scale=0.01)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-5)
    wide = untyped.attention(*(array.astype(np.int32) for array in given), scale=0.01)
    assert wide.dtype == np.float64  # which NumPy makes of f32 and s32
    np.testing.assert_allclose(wide, want, rtol=1e-5, atol=1e-5)


HEADS = drawn(2, 6, 5, 8), drawn(2, 2, 7, 8, seed=2), drawn(2, 2, 7, 3, seed=3)


@every_pair(
    pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16]),
    pytest.mark.parametrize(
        "named",
        [
            {},
            {"is_causal": True},
            {"scale": 0.3},
            {"attn_mask": drawn(5, 7, seed=4)},
            {"attn_mask": drawn(2, 6, 5, 7, seed=4)},
            {"attn_mask": drawn(2, 1, 1, 7, seed=4) > -1},
            {"attn_mask": drawn(6, 5, 1, seed=4) > 0},
        ],
        ids=["plain", "causal", "scale", "matrix", "heads", "keys", "rows"],
    ),
    pytest.mark.parametrize("repeats", [1, 3], ids=["few", "many"]),
)
def test_fewer_heads_of_keys(named: dict[str, Any], dtype: torch.dtype, repeats: int) -> None:
    tensors = [torch.from_numpy(array).to(dtype) for array in HEADS]
    tensors[0] = tensors[0].repeat_interleave(repeats, -2)
    more: dict[str, Any] = dict(named)
    if "attn_mask" in named:
        mask = torch.from_numpy(named["attn_mask"])
        mask = mask if mask.shape[-2] == 1 else mask.repeat_interleave(repeats, -2)
        more["attn_mask"] = mask if mask.dtype is torch.bool else mask.to(dtype)
    got = untyped.scaled_dot_product_attention(*tensors, enable_gqa=True, **more)
    if "attn_mask" in more and more["attn_mask"].dtype is not torch.bool:
        more["attn_mask"] = more["attn_mask"].double()
    want = of_torch(*(t.double() for t in tensors), enable_gqa=True, **more)
    assert got.dtype is dtype
    eps = 16 * torch.finfo(dtype).eps
    torch.testing.assert_close(got.double(), want, rtol=eps, atol=eps)
    out = torch.empty_like(got)
    if "attn_mask" not in more:
        assert untyped.attention(*tensors, enable_gqa=True, out=out, **more) is out
        assert torch.equal(out, got)


def test_arguments_in_the_order_of_pytorch() -> None:
    tensors = [torch.from_numpy(array) for array in HEADS]
    for rest in ((None, 0.0, True, 0.5, True), (None, 0.0, False, None, True)):
        got = untyped.scaled_dot_product_attention(*tensors, *rest)
        want = of_torch(*tensors, *rest[:3], scale=rest[3], enable_gqa=True)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    # Heads that are equal in number, and those that other strides have.
    one, *_ = tensors
    for query, key in ((one, one), (one.transpose(0, 1), one.transpose(0, 1)[:, :1])):
        got = untyped.attention(query, key, key, enable_gqa=True)
        torch.testing.assert_close(
            got, of_torch(query, key, key, enable_gqa=True), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    ("heads", "named", "text"),
    [
        ((6, 4, 4), {}, "key = .*: its 4 heads do not divide the 6 of query"),
        ((6, 2, 1), {}, "value = .*: expected 2 heads, as key has"),
        ((6, 2, 2), {"dropout_p": 0.5}, "dropout_p = 0.5: nothing is dropped here; pass 0.0"),
        ((6, 2, 2), {"enable_gqa": 1}, "enable_gqa = 1: expected True or False"),
        ((6, 2, 2), {"enable_gqa": False}, "key = .*: cannot be broadcast with query"),
    ],
)
def test_wrong_heads(heads: tuple[int, int, int], named: dict[str, Any], text: str) -> None:
    arrays = [drawn(2, count, 5, 8) for count in heads]
    with pytest.raises(InvalidArguments, match=text):
        untyped.scaled_dot_product_attention(*arrays, **{"enable_gqa": True, **named})
    with pytest.raises(InvalidArguments, match=r"query = \(5, 8\): enable_gqa takes heads"):
        untyped.attention(arrays[0][0, 0], arrays[1], arrays[2], enable_gqa=True)
