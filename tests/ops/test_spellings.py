"""Arguments that NumPy and PyTorch call differently, and results of what either has alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import config, ops
from tests.ops.test_ops import drawn, untyped
from tests.ops.test_types import TENSORS, TYPES
from tests.ops.test_types import agree as same
from tests.ops.test_types import drawn as drawn_of

X = drawn(2, 3, 4)


def agree(got: torch.Tensor, want: torch.Tensor, digits: float = 8) -> None:
    """Equal but for a few units in the last digit of floats."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    eps = digits * torch.finfo(want.dtype).eps if want.is_floating_point() else 0
    torch.testing.assert_close(got, want, rtol=eps, atol=eps, equal_nan=True)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin"])
def test_reductions(name: str) -> None:
    fn, tensor = getattr(ops, name), torch.from_numpy(X)
    dims: list[Any] = [1, -1] if name == "prod" else [1, (0, 2), (-1,), ()]
    for dim in dims:
        for stays in (True, False):
            got = fn(tensor, dim=dim, keepdim=stays)
            agree(got, getattr(torch, name)(tensor, dim=dim, keepdim=stays))
            if dim != ():  # which is all axes for PyTorch, and none for NumPy
                assert torch.equal(fn(tensor, axis=dim, keepdims=stays), got)
    np.testing.assert_array_equal(fn(X, axis=()), X)
    assert fn(tensor).shape == ()


@pytest.mark.parametrize("dtype", TENSORS, ids=str)
def test_softmax(dtype: torch.dtype) -> None:
    x = (4 * torch.from_numpy(X)).to(dtype)
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        got = untyped.softmax(x, dim=1, dtype=kind)
        agree(got, F.softmax(x.double(), 1).to(kind) if x.dtype.itemsize > 4 or kind is not
            torch.bfloat16 else F.softmax(x, 1, dtype=kind))  # fmt: skip
        agree(untyped.log_softmax(x, dim=-1, dtype=kind), F.log_softmax(x, -1, dtype=kind), 32)
    if dtype.is_floating_point:
        assert torch.equal(untyped.softmax(x, dim=0), untyped.softmax(x, 0))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_running_totals_of_numpy(dtype: np.dtype[Any]) -> None:
    x = drawn_of(dtype, 3, 7, 5)
    for axis in (0, 1, -1, None):
        same(ops.cumsum(x, axis), np.cumsum(x, axis))
        same(ops.cumprod(x, axis), np.cumprod(x, axis))
    same(ops.cumsum(x.T, 1), np.cumsum(x.T, 1))
    same(ops.cumsum(x[:, ::-2], 1), np.cumsum(x[:, ::-2], 1))
    same(ops.cumsum(x[:0], 1), np.cumsum(x[:0], 1))
    same(ops.cumsum(x[0, 0, 0]), np.cumsum(x[0, 0, 0]))
    same(ops.cumsum(x, 0, dtype="f64"), np.cumsum(x, 0, dtype=np.float64))
    out = np.empty(x.shape, np.cumsum(x, 0).dtype)
    assert ops.cumsum(x, 0, out) is out
    same(out, np.cumsum(x, 0))


@pytest.mark.parametrize("dtype", TENSORS, ids=str)
def test_running_totals_of_torch(dtype: torch.dtype) -> None:
    x = (4 * torch.from_numpy(X)).to(dtype)
    for dim in (0, -1):
        agree(untyped.cumsum(x, dim=dim), torch.cumsum(x, dim), 32)
        agree(untyped.cumprod(x, dim=dim), torch.cumprod(x, dim), 32)
    agree(untyped.cumsum(x[0, 0, 0], dim=0), torch.cumsum(x[0, 0, 0], 0))


@pytest.mark.parametrize("dtype", TENSORS, ids=str)
def test_choices_of_torch(dtype: torch.dtype) -> None:
    x, condition = (4 * torch.from_numpy(X)).to(dtype), torch.from_numpy(X > 0)
    x.view(-1)[:1] = float("nan") if dtype.is_floating_point else 1
    for a, b in ((x, x[0]), (x, 1), (2.5, x), (x, True), (x, torch.ones(4)), (x[0, 0, 0], 7)):
        agree(untyped.where(condition, a, b), torch.where(condition, a, b))
    agree(untyped.where(condition[0, 0], x, 0), torch.where(condition[0, 0], x, 0))
    pairs: Any = ((1.0, 2.0), (1, 2), (2.5, 1), (True, False), (x[0, 0, 0], x[0, 0, 1]))
    for a, b in pairs:
        agree(untyped.where(condition, a, b), torch.where(condition, a, b))
    agree(untyped.where(condition[:0], x[:0], 0), torch.where(condition[:0], x[:0], 0))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_choices_of_numpy(dtype: np.dtype[Any]) -> None:
    x, other = drawn_of(dtype, 3, 7), drawn_of(np.dtype(np.int16), 7)
    for condition in (x > 0, np.arange(7) % 2 == 0, x):
        for a, b in ((x, other), (x, 1), (2.5, x)):
            same(ops.where(condition, a, b), np.where(condition, a, b))
        for c, d in ((1, 2), (2.5, 1), (300, 1), (True, False), (np.int8(1), np.float32(2))):
            same(ops.where(condition, c, d), np.where(condition, c, d))
    same(ops.where(x.T > 0, x.T, 0), np.where(x.T > 0, x.T, 0))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_rows_of_a_table(dtype: torch.dtype) -> None:
    numbers = torch.from_numpy(np.random.default_rng(1).integers(0, 10, (3, 8))).to(dtype)
    for kind in (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8):
        table = (4 * torch.from_numpy(drawn(10, 5))).to(kind)
        for x in (numbers, numbers.T, numbers[:, ::2], numbers[0, 0], numbers[:0]):
            for weight in (table, table[:, ::2], table[::2].repeat(2, 1)):
                want = F.embedding(x.long(), weight)
                got = untyped.embedding(x, weight, padding_idx=-1)
                agree(got, want)
                out = torch.empty_like(want)
                assert untyped.embedding(x, weight, out=out) is out
                agree(out, want)
    assert type(ops.embedding([1, 2], drawn(3, 4))) is np.ndarray


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_padding_by_name(rank: int) -> None:
    fn, like = getattr(ops, f"conv{rank}d"), getattr(F, f"conv{rank}d")
    x, bias = torch.from_numpy(drawn(2, 4, *(9, 8, 7)[:rank])), torch.from_numpy(drawn(6))
    for width in (2, 3):
        weight = torch.from_numpy(drawn(6, 2, *[width] * rank))
        for image in (x, x[0]):
            for named in (
                {"padding": "same", "dilation": 2},
                {"padding": "same"},
                {"padding": "valid", "stride": 2},
                {"padding": 1, "stride": 2},
            ):
                want = like(image.double(), weight.double(), bias.double(), groups=2, **named)
                got = fn(image, weight, bias, groups=2, **named)
                torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)
                out = torch.empty_like(got)
                assert fn(image, weight, bias, groups=2, out=out, **named) is out
                assert torch.equal(out, got)
    weight = torch.from_numpy(drawn(4, 3, *[3] * rank))
    transposed, like = getattr(ops, f"conv_transpose{rank}d"), getattr(F, f"conv_transpose{rank}d")
    want = like(x[0].double(), weight.double(), stride=2)
    torch.testing.assert_close(transposed(x[0], weight, stride=2).double(), want, rtol=1e-5,
        atol=1e-5)  # fmt: skip


def test_sizes_by_the_elements_to_the_left() -> None:
    """Of several types, with sizes and with factors, which PyTorch rounds."""
    rng = np.random.default_rng(1)
    for _ in range(24):
        rank = int(rng.integers(1, 4))
        x = torch.from_numpy(8 * drawn(2, 3, *rng.integers(2, 9, rank)))
        x = x.to([torch.float32, torch.uint8, torch.bfloat16, torch.float64][rng.integers(4)])
        named: dict[str, Any] = {"size": rng.integers(1, 13, rank).tolist()}
        if rng.random() < 0.6:
            named = {"scale_factor": rng.choice([0.7, 2.0, 1.5, 1.25, 3.0], rank).tolist()}
        agree(untyped.interpolate(x, **named), F.interpolate(x, **named))
        if x.is_floating_point():
            want = F.interpolate(x.double(), mode="area", **named).to(x.dtype)
            agree(untyped.interpolate(x, mode="area", **named), want)


def test_sizes_by_the_middles_of_elements() -> None:
    """With sizes, and with factors whose sizes lose a fraction: steps are those of the factors."""
    rng = np.random.default_rng(1)
    for _ in range(24):
        rank = int(rng.integers(1, 4))
        x = torch.from_numpy(drawn(2, 3, *rng.integers(2, 9, rank)))
        x = x.to([torch.float32, torch.bfloat16, torch.float64][rng.integers(3)])
        named: dict[str, Any] = {"size": rng.integers(1, 13, rank).tolist()}
        if rng.random() < 0.6:
            named = {"scale_factor": rng.choice([0.5, 0.7, 0.9, 1.3, 1.7, 2.0], rank).tolist()}
        agree(untyped.interpolate(x, mode="nearest-exact", **named),
            F.interpolate(x, mode="nearest-exact", **named))  # fmt: skip
        linear: Any = ("linear", "bilinear", "trilinear")[rank - 1]
        want = F.interpolate(x.double(), mode=linear, **named).to(x.dtype)
        agree(untyped.interpolate(x, mode=linear, **named), want, 16)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_more_and_fewer_elements(mode: str) -> None:
    rng = np.random.default_rng(1)
    low = 0 if mode == "circular" else -1
    for number in range(20):
        rank = int(rng.integers(1, 4))
        x = torch.from_numpy(8 * drawn(2, 3, *rng.integers(4, 7, rank)))
        x = x.to([torch.float32, torch.bfloat16, torch.int64, torch.uint8][number % 4])
        count = int(rng.integers(0, rank + 3)) if mode == "constant" else rank
        pad = rng.integers(low, 4, 2 * count).tolist()
        value = 3.0 if mode == "constant" and number % 3 else None
        if mode == "reflect" and x.dtype is torch.uint8:
            x = x.to(torch.float64)
        want = F.pad(x.double(), pad, mode, value).to(x.dtype)
        agree(untyped.pad(x, pad, mode, value), want)
        out = torch.empty_like(want)
        assert untyped.pad(x, pad, mode, value, out=out) is out
        agree(out, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_softplus_that_ends_in_a_line(dtype: torch.dtype) -> None:
    x = 8 * torch.from_numpy(X).to(dtype)
    for beta, threshold in ((1.0, 20.0), (2.0, 3.0), (0.5, 1.0), (1.0, -2.0)):
        want = F.softplus(x.double(), beta, threshold).to(dtype)
        agree(untyped.softplus(x, beta, threshold=threshold), want, 4)


@pytest.mark.parametrize("count", [1, 2])
def test_numbers_of_threads(count: int) -> None:
    x = drawn(96, 128)
    with config.override("num_threads", count):
        for _ in range(2):
            np.testing.assert_array_equal(ops.relu(x), np.maximum(x, 0))
            np.testing.assert_allclose(ops.matmul(x, x.T), x @ x.T, 1e-4, 1e-4)
            np.testing.assert_allclose(ops.cumsum(x, 1), np.cumsum(x, 1), 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_parameters_of_smaller_floats(dtype: torch.dtype) -> None:
    x, image = torch.from_numpy(drawn(4, 6)).to(dtype), torch.from_numpy(drawn(2, 6, 5)).to(dtype)
    weight, bias = (torch.from_numpy(drawn(6, seed=s)).to(dtype) for s in (3, 4))
    given = weight.float(), bias.float()
    cases = (
        (untyped.layer_norm(x, 6, weight, bias), F.layer_norm(x.float(), (6,), *given)),
        (untyped.rms_norm(x, 6, weight), F.rms_norm(x.float(), (6,), given[0])),
        (untyped.group_norm(image, 2, weight, bias), F.group_norm(image.float(), 2, *given)),
        (untyped.group_norm(x, 2, weight, bias), F.group_norm(x.float(), 2, *given)),
        (
            untyped.batch_norm(image, bias, weight.abs(), weight, bias, training=False),
            F.batch_norm(image.float(), given[1], given[0].abs(), *given),
        ),
    )
    for got, want in cases:
        agree(got, want.to(dtype), 2)


def test_norms() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.from_numpy(X).to(dtype)
        for p in (1, 2.0, 3):
            agree(untyped.normalize(x, p, dim=-1), F.normalize(x.double(), p, -1).to(dtype), 4)
        agree(untyped.normalize(0 * x), F.normalize(0 * x))
        assert untyped.normalize(x[..., :0], axis=2).shape == (2, 3, 0)


def test_an_array_among_numbers_and_lists_says_the_kind() -> None:
    x = torch.arange(3)
    for other in ([1, 2, 3], (1, 2, 3), np.float64(2), np.int8(2), 2.0):
        for got in (untyped.add(x, other), untyped.add(other, x)):
            assert isinstance(got, torch.Tensor)
    assert untyped.add(np.float64(2), x).dtype is (x + np.float64(2)).dtype
    assert untyped.add(np.int8(2), x).dtype is torch.int64
    assert isinstance(untyped.where(x > 1, 0.0, 1.0), torch.Tensor)
    # Kind and type come from the arrays that are chosen from, whatever has the condition.
    whole, real, condition = np.array([1, 2], np.int32), np.ones(2, np.float32), np.ones(2, bool)
    assert untyped.where(torch.from_numpy(condition), whole, real).dtype == np.float64
    tensors = torch.from_numpy(whole), torch.from_numpy(real)
    assert untyped.where(condition, *tensors).dtype is torch.float32
    assert isinstance(untyped.concatenate([[1.0], x.float()]), torch.Tensor)
    assert ops.add(np.float64(2), np.ones(2, np.float32)).dtype == np.float64
