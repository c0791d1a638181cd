"""The functions on arrays, against PyTorch and NumPy, and the examples of their docstrings."""

from __future__ import annotations

import doctest
import gc
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

import dnnl
from dnnl import InvalidArguments, Unimplemented, ops
from dnnl.ops.problem import prepared

Function = Callable[..., Any]
untyped: Any = ops  # for arguments that no type checker lets pass


def drawn(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X, IMAGE = drawn(4, 19), drawn(2, 6, 9, 8)
MATRIX, VECTOR = drawn(19, 7, seed=2), drawn(19, seed=3)
POSITIVE = np.abs(X) + 0.1
CHANNELS = [drawn(6, seed=4), np.abs(drawn(6, seed=5)) + 0.5, drawn(6, seed=6), drawn(6, seed=7)]

#: Each function with its arguments, and the same of PyTorch for those that are not arrays by name.
CASES: dict[str, tuple[Function, tuple[Any, ...], dict[str, Any], Function]] = {
    "relu": (ops.relu, (X,), {}, F.relu),
    "leaky_relu": (ops.leaky_relu, (X, 0.2), {}, F.leaky_relu),
    "elu": (ops.elu, (X, 1.5), {}, F.elu),
    "silu": (ops.silu, (X,), {}, F.silu),
    "sigmoid": (ops.sigmoid, (X,), {}, torch.sigmoid),
    "tanh": (ops.tanh, (X,), {}, torch.tanh),
    "exp": (ops.exp, (X,), {}, torch.exp),
    "log": (ops.log, (POSITIVE,), {}, torch.log),
    "sqrt": (ops.sqrt, (POSITIVE,), {}, torch.sqrt),
    "square": (ops.square, (X,), {}, torch.square),
    "absolute": (ops.absolute, (X,), {}, torch.abs),
    "mish": (ops.mish, (X,), {}, F.mish),
    "gelu": (ops.gelu, (X,), {}, F.gelu),
    "gelu tanh": (ops.gelu, (X,), {"approximate": "tanh"}, F.gelu),
    "softplus": (ops.softplus, (X, 2.0), {}, F.softplus),
    "hardsigmoid": (ops.hardsigmoid, (3 * X,), {}, F.hardsigmoid),
    "hardswish": (ops.hardswish, (3 * X,), {}, F.hardswish),
    "clip": (ops.clip, (X, -1, 0.5), {}, torch.clip),
    "clip from below": (ops.clip, (X,), {"min": -0.5}, torch.clip),
    "hardtanh": (ops.hardtanh, (3 * X, -2.0, 1.0), {}, F.hardtanh),
    "hardtanh of integers": (ops.hardtanh, (np.arange(-4, 5),), {}, F.hardtanh),
    "relu6": (ops.relu6, (8 * X,), {}, F.relu6),
    "logsigmoid": (ops.logsigmoid, (9 * X,), {}, F.logsigmoid),
    "where": (ops.where, (X > 0, X, VECTOR), {}, torch.where),
    "embedding": (ops.embedding, (np.array([[3, 1], [0, 18]]), MATRIX), {}, F.embedding),
    "add": (ops.add, (X, VECTOR), {}, torch.add),
    "subtract": (ops.subtract, (X[:, :1], VECTOR), {}, torch.subtract),
    "multiply": (ops.multiply, (IMAGE, drawn(6, 1, 1, seed=8)), {}, torch.multiply),
    "divide": (ops.divide, (X, POSITIVE), {}, torch.divide),
    "maximum": (ops.maximum, (X, VECTOR), {}, torch.maximum),
    "minimum": (ops.minimum, (X.T, VECTOR[:, None]), {}, torch.minimum),
    "softmax": (ops.softmax, (X, -1), {}, F.softmax),
    "softmax of another axis": (ops.softmax, (IMAGE, 1), {}, F.softmax),
    "log_softmax": (ops.log_softmax, (X, 0), {}, F.log_softmax),
    "layer_norm": (ops.layer_norm, (X, (19,), VECTOR, VECTOR), {"eps": 0.01}, F.layer_norm),
    "layer_norm of images": (ops.layer_norm, (IMAGE, (9, 8)), {}, F.layer_norm),
    "rms_norm": (ops.rms_norm, (X, (19,), VECTOR, 0.01), {}, F.rms_norm),
    "batch_norm": (ops.batch_norm, (IMAGE, *CHANNELS), {"eps": 0.01}, F.batch_norm),
    "local_response_norm": (ops.local_response_norm,
        (IMAGE, 3, 0.5, 0.6, 2.0), {}, F.local_response_norm),
    "prelu": (ops.prelu, (IMAGE, CHANNELS[0]), {}, F.prelu),
    "prelu of one weight": (ops.prelu, (X, VECTOR[:1]), {}, F.prelu),
    "group_norm": (ops.group_norm, (IMAGE, 3, *CHANNELS[2:]), {"eps": 0.01}, F.group_norm),
    "pad": (ops.pad, (IMAGE, (1, 2, 0, 3, -1, 2)), {"value": 7.0}, F.pad),
    "pad reflected": (ops.pad, (IMAGE, (3, -1, 2, 0)), {"mode": "reflect"}, F.pad),
    "softplus straightened": (ops.softplus, (3 * X, 2.0), {"threshold": 1.0}, F.softplus),
    "sum": (ops.sum, (X, 1), {}, torch.sum),
    "sum of several axes": (ops.sum, (IMAGE, (0, -1)), {}, torch.sum),
    "mean": (ops.mean, (IMAGE, 2, True), {}, torch.mean),
    "mean of all": (ops.mean, (X,), {}, torch.mean),
    "amax": (ops.amax, (IMAGE, (1, 3)), {}, torch.amax),
    "amin": (ops.amin, (X, 0), {}, torch.amin),
    "prod": (ops.prod, (X, 1), {}, torch.prod),
    "cumsum": (ops.cumsum, (IMAGE, 1), {}, torch.cumsum),
    "cumprod": (ops.cumprod, (IMAGE,), {"dim": -1}, torch.cumprod),
    "normalize": (ops.normalize, (IMAGE, 3.0, 1), {}, F.normalize),
    "interpolate": (ops.interpolate, (IMAGE, (12, 5)), {"mode": "nearest-exact"}, F.interpolate),
    "interpolate to the left": (ops.interpolate, (IMAGE, (12, 5)), {}, F.interpolate),
    "interpolate by means": (ops.interpolate, (IMAGE, (4, 5)), {"mode": "area"}, F.interpolate),
    "interpolate linearly": (
        ops.interpolate, (IMAGE,), {"scale_factor": 2.0, "mode": "bilinear"}, F.interpolate),
    "matmul": (ops.matmul, (X, MATRIX), {}, torch.matmul),
    "matmul of a vector": (ops.matmul, (VECTOR, MATRIX), {}, torch.matmul),
    "matmul by a vector": (ops.matmul, (X, VECTOR), {}, torch.matmul),
    "matmul of vectors": (ops.matmul, (VECTOR, VECTOR), {}, torch.matmul),
    "matmul of batches": (ops.matmul, (IMAGE, drawn(6, 8, 5)), {}, torch.matmul),
    "linear": (ops.linear, (X, MATRIX.T, drawn(7, seed=9)), {}, F.linear),
    "linear of a batch": (ops.linear, (IMAGE, drawn(5, 8)), {}, F.linear),
    "conv1d": (ops.conv1d, (drawn(2, 4, 11), drawn(6, 4, 3), drawn(6)), {"padding": 1}, F.conv1d),
    "conv2d": (ops.conv2d, (IMAGE, drawn(4, 6, 3, 3)), {"stride": 2, "padding": (1, 0)}, F.conv2d),
    "conv2d of groups": (ops.conv2d,
        (IMAGE, drawn(6, 2, 3, 2), drawn(6)), {"groups": 3, "dilation": 2}, F.conv2d),
    "depthwise": (ops.conv2d, (IMAGE, drawn(6, 1, 3, 3)), {"groups": 6, "padding": 1}, F.conv2d),
    "conv3d": (ops.conv3d, (drawn(1, 2, 4, 5, 6), drawn(3, 2, 2, 2, 2)), {}, F.conv3d),
    "conv_transpose1d": (ops.conv_transpose1d, (drawn(2, 4, 11), drawn(4, 6, 3), drawn(6)),
        {"padding": 1, "stride": 3}, F.conv_transpose1d),
    "conv_transpose2d": (ops.conv_transpose2d,
        (IMAGE, drawn(6, 4, 3, 3)), {"stride": 2, "padding": (1, 0)}, F.conv_transpose2d),
    "conv_transpose2d of groups": (ops.conv_transpose2d, (IMAGE, drawn(6, 2, 3, 2), drawn(6)),
        {"groups": 3, "dilation": 2, "stride": (1, 3), "output_padding": (1, 2)},
        F.conv_transpose2d),
    "conv_transpose3d": (ops.conv_transpose3d,
        (drawn(1, 2, 3, 4, 5), drawn(2, 3, 2, 2, 2)), {"stride": 2}, F.conv_transpose3d),
    "max_pool1d": (ops.max_pool1d, (drawn(2, 3, 11), 3), {"stride": 2, "padding": 1}, F.max_pool1d),
    "max_pool2d": (ops.max_pool2d, (IMAGE, (3, 2)), {"stride": 2, "ceil_mode": True}, F.max_pool2d),
    "max_pool2d dilated": (ops.max_pool2d, (IMAGE, 2), {"stride": 1, "dilation": 2}, F.max_pool2d),
    "max_pool3d": (ops.max_pool3d, (drawn(1, 2, 4, 5, 6), 2), {}, F.max_pool3d),
    "avg_pool1d": (ops.avg_pool1d, (drawn(2, 3, 11), 2), {}, F.avg_pool1d),
    "avg_pool2d": (ops.avg_pool2d, (IMAGE, 3), {"padding": 1, "stride": 2}, F.avg_pool2d),
    "avg_pool2d without padding": (ops.avg_pool2d,
        (IMAGE, 3), {"padding": 1, "count_include_pad": False}, F.avg_pool2d),
    "avg_pool2d ceil": (ops.avg_pool2d,
        (IMAGE, 2), {"stride": 3, "ceil_mode": True, "count_include_pad": False}, F.avg_pool2d),
    "avg_pool3d": (ops.avg_pool3d, (drawn(1, 2, 4, 5, 6), 2), {}, F.avg_pool3d),
    "adaptive_avg_pool1d": (ops.adaptive_avg_pool1d, (X, 7), {}, F.adaptive_avg_pool1d),
    "adaptive_avg_pool2d": (ops.adaptive_avg_pool2d, (IMAGE, (3, 4)), {}, F.adaptive_avg_pool2d),
    "adaptive_avg_pool3d": (ops.adaptive_avg_pool3d, (IMAGE, (4, None, 3)), {},
        F.adaptive_avg_pool3d),
    "adaptive_max_pool1d": (ops.adaptive_max_pool1d, (X, 7), {}, F.adaptive_max_pool1d),
    "adaptive_max_pool2d": (ops.adaptive_max_pool2d, (IMAGE, 11), {}, F.adaptive_max_pool2d),
    "adaptive_max_pool3d": (ops.adaptive_max_pool3d, (IMAGE, (4, None, 3)), {},
        F.adaptive_max_pool3d),
}  # fmt: skip


def of_torch(name: str) -> np.ndarray:
    _, arguments, named, same = CASES[name]
    tensors = [torch.from_numpy(a.copy()) if isinstance(a, np.ndarray) else a for a in arguments]
    result: np.ndarray = same(*tensors, **named).numpy()
    return result


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch_has_it(name: str) -> None:
    fn, arguments, named, _ = CASES[name]
    want = of_torch(name)
    got = fn(*arguments, **named)
    assert type(got) is np.ndarray
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    # Into an array of other strides, between others that stay as they are.
    if want.ndim:
        room = np.full((*want.shape[:-1], 2 * want.shape[-1]), 7, want.dtype)
        out = room[..., ::2]
        try:
            assert fn(*arguments, **named, out=out) is out
        except Unimplemented:
            pytest.skip("no implementation has such a dst")
        np.testing.assert_allclose(out, got, rtol=2e-5, atol=2e-6)
        assert (room[..., 1::2] == 7).all()


def test_every_function_is_tried_and_has_an_example() -> None:
    """Those that are left out have tests of their own."""
    tried = {fn.__name__ for fn, *_ in CASES.values()}
    others = {"attention", "scaled_dot_product_attention", "concatenate", "lstm", "gru", "rnn"}
    assert tried | others == set(ops.__all__)
    for name in ops.__all__:
        assert (
            f">>> {name}(" in getattr(ops, name).__doc__ or ">>> x = " in getattr(ops, name).__doc__
        )


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(ops.__path__)])
def test_examples(name: str) -> None:
    module = importlib.import_module(f"dnnl.ops.{name}")
    assert doctest.testmod(module, extraglobs={"np": np}).failed == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tensors_in_and_out(dtype: torch.dtype) -> None:
    x = torch.from_numpy(X).to(dtype)
    got = ops.softmax(x, -1)
    assert isinstance(got, torch.Tensor)
    assert got.dtype is dtype
    torch.testing.assert_close(got.float(), F.softmax(x.float(), -1), rtol=1e-2, atol=1e-3)
    out = torch.empty_like(x)
    assert ops.softmax(x, -1, out=out) is out
    assert torch.equal(out, got)


def test_arrays_of_other_types() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    got = ops.relu(x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, np.maximum(x, 0))
    integers = np.array([[-3, 100]], np.int8)
    np.testing.assert_array_equal(ops.add(integers, integers), np.array([[-6, -56]], np.int8))
    memory = dnnl.Memory.from_numpy(X)
    np.testing.assert_array_equal(ops.relu(memory).numpy(), np.maximum(X, 0))
    np.testing.assert_array_equal(ops.add(X, 2), X + 2)
    np.testing.assert_array_equal(ops.relu([-1.0, 2.0]), np.array([0, 2], np.float32))


@pytest.mark.parametrize(
    "x",
    [
        X[::-1],
        X[:, ::-2],
        X.T,
        X[1:3, 2:9],
        np.broadcast_to(VECTOR, (3, 19)),
        X[:0],
        X[0, 0],
        X[:1][::-1],
    ],
    ids=[
        "rows backward",
        "columns backward",
        "transposed",
        "part",
        "broadcast",
        "empty",
        "number",
        "one row backward",
    ],
)
def test_strides(x: np.ndarray) -> None:
    np.testing.assert_array_equal(ops.relu(x), np.maximum(x, 0))
    out = np.empty(x.shape, np.float32)
    np.testing.assert_array_equal(ops.relu(x, out=out), np.maximum(x, 0))


def test_in_place_and_overlapping() -> None:
    x = X.copy()
    assert ops.relu(x, out=x) is x
    np.testing.assert_array_equal(x, np.maximum(X, 0))
    line = drawn(40)
    before = line.copy()
    ops.relu(line[:-4], out=line[4:])
    np.testing.assert_array_equal(line[4:], np.maximum(before[:-4], 0))
    square = drawn(8, 8)
    want = square @ square
    ops.matmul(square, square, out=square)
    np.testing.assert_allclose(square, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("overlapping", "same"),
    [
        (lambda b, out: ops.matmul(b.T, b.T, out=out), lambda b: b.T @ b.T),
        (lambda b, out: ops.add(b, b.T, out=out), lambda b: b + b.T),
        (lambda b, out: ops.subtract(b.T, b, out=out), lambda b: b.T - b),
        (lambda b, out: ops.add(b, b[0], out=out), lambda b: b + b[0]),
        (lambda b, out: ops.relu(b[::-1], out=out), lambda b: np.maximum(b[::-1], 0)),
        (lambda b, out: ops.relu(b.T, out=out), lambda b: np.maximum(b.T, 0)),
        (lambda b, out: ops.concatenate([b[4:], b[:4]], out=out), lambda b: np.roll(b, 4, 0)),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_sources_within_out(
    overlapping: Function, same: Function, order: Literal["C", "F"]
) -> None:
    square = drawn(8, 8).copy(order)
    want = same(square)
    assert overlapping(square, square) is square
    np.testing.assert_allclose(square, want, rtol=1e-5, atol=1e-5)


def test_a_transposed_part_that_overlaps_out() -> None:
    square = drawn(9, 9)
    want = np.maximum(square[1:, :-1].T, 0)
    ops.relu(square[1:, :-1].T, out=square[:-1, 1:])
    np.testing.assert_array_equal(square[:-1, 1:], want)


@pytest.mark.parametrize("x", [IMAGE.transpose(2, 0, 1, 3), IMAGE[..., ::-1], IMAGE[0, 0, 0]])
def test_rows_that_do_not_follow_each_other(x: np.ndarray) -> None:
    weight, bias = drawn(5, 8), drawn(5)
    want = x @ weight.T + bias
    np.testing.assert_allclose(ops.linear(x, weight, bias), want, rtol=1e-5, atol=1e-5)
    out = np.empty(want.shape[::-1], np.float32).T
    np.testing.assert_allclose(ops.linear(x, weight, bias, out=out), want, rtol=1e-5, atol=1e-5)
    same = F.layer_norm(torch.from_numpy(x.copy()), (8,)).numpy()
    np.testing.assert_allclose(ops.layer_norm(x, 8), same, rtol=1e-5, atol=1e-5)


def test_integers_of_numpy_and_sequences_of_any_kind() -> None:
    one, weight = np.int64(1), drawn(4, 2, 3, 3)
    np.testing.assert_array_equal(untyped.softmax(X, one), untyped.softmax(X, 1))
    np.testing.assert_array_equal(untyped.sum(IMAGE, [0, np.int8(-1)]), untyped.sum(IMAGE, (0, 3)))
    np.testing.assert_array_equal(untyped.mean(IMAGE, np.array(1)), untyped.mean(IMAGE, 1))
    np.testing.assert_array_equal(untyped.layer_norm(X, np.array([19])), untyped.layer_norm(X, 19))
    np.testing.assert_array_equal(untyped.group_norm(IMAGE, 3 * one), untyped.group_norm(IMAGE, 3))
    got = untyped.conv2d(IMAGE[:, :4], weight, None, [one, 2], np.array([1, 0]), groups=2 * one)
    np.testing.assert_array_equal(
        got, untyped.conv2d(IMAGE[:, :4], weight, stride=(1, 2), padding=(1, 0), groups=2)
    )
    np.testing.assert_array_equal(untyped.max_pool2d(IMAGE, [2]), untyped.max_pool2d(IMAGE, 2))
    np.testing.assert_array_equal(
        untyped.interpolate(IMAGE, [4, one]), untyped.interpolate(IMAGE, (4, 1))
    )
    np.testing.assert_array_equal(untyped.concatenate((X, X), one), untyped.concatenate([X, X], 1))
    np.testing.assert_array_equal(untyped.add(X.tolist(), [2] * 19), X + 2)


@pytest.mark.parametrize("fn", [ops.softmax, ops.log_softmax])
def test_masked_rows(fn: Function) -> None:
    x = X.copy()
    x[1], x[3, 5] = -np.inf, np.inf
    same = F.softmax if fn is ops.softmax else F.log_softmax
    np.testing.assert_allclose(fn(x), same(torch.from_numpy(x), -1).numpy(), rtol=2e-5)
    want = 0.0 if fn is ops.softmax else -np.inf
    got = fn(x, masked_rows="zero")
    assert (got[1] == want).all()
    assert np.isnan(got[3]).all()
    np.testing.assert_array_equal(got[[0, 2]], fn(x)[[0, 2]])


def test_concatenate() -> None:
    parts = [X, drawn(2, 19), X[:1]]
    np.testing.assert_array_equal(ops.concatenate(parts), np.concatenate(parts))
    np.testing.assert_array_equal(ops.concatenate([X, X], -1), np.concatenate([X, X], -1))


def test_problems_are_prepared_once() -> None:
    ops.relu(X, out=np.empty_like(X))
    before = prepared.cache_info()
    for _ in range(5):
        ops.relu(X, out=np.empty_like(X))
        ops.relu(X.copy(), out=np.empty_like(X))
    after = prepared.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 10)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: untyped.softmax(X, 2), r"axis = 2: expected one of -2..1"),
        (lambda: untyped.matmul(X, X), r"y = \(4, 19\): expected 19 rows"),
        (lambda: untyped.matmul(X, 1.0), r"y = \(\): expected a vector or a matrix"),
        (lambda: untyped.add(X, MATRIX), r"y = \(19, 7\): cannot be broadcast with \(4, 19\)"),
        (lambda: untyped.gelu(X, "erf"), "approximate = 'erf'"),
        (lambda: untyped.linear(X, MATRIX), "weight"),
        (lambda: untyped.conv2d(IMAGE, drawn(4, 3, 3, 3)), "groups = 1: does not fit"),
        (lambda: untyped.conv2d(X, drawn(4, 3, 3, 3)), "x = .*expected 4 dimensions"),
        (lambda: untyped.conv2d(IMAGE, drawn(4, 6, 3, 3), stride=(1, 2, 3)), "stride .*2 of them"),
        (lambda: untyped.max_pool2d(X, 2), "x = .*expected 4 dimensions"),
        (lambda: untyped.layer_norm(X, (4,)), "normalized_shape"),
        (lambda: untyped.layer_norm(X, (19,), VECTOR[:5]), "weight = .*shape"),
        (lambda: untyped.batch_norm(IMAGE, VECTOR, VECTOR), "running_mean"),
        (lambda: untyped.local_response_norm(IMAGE, 4), "size = 4: expected an odd"),
        (lambda: untyped.concatenate([]), "arrays"),
        (lambda: untyped.sum(X, 2), r"axis = 2: expected one of -2..1"),
        (lambda: untyped.group_norm(IMAGE, 4), "num_groups = 4: must divide"),
        (lambda: untyped.prelu(IMAGE, VECTOR), "weight = .*6 channels"),
        (lambda: untyped.interpolate(IMAGE), "size = None: expected either"),
        (lambda: untyped.interpolate(IMAGE, 4, mode="bicubic"), "mode = 'bicubic': expected one"),
        (
            lambda: untyped.interpolate(IMAGE, 4, mode="linear", align_corners=True),
            "align_corners = True: corners are not aligned here; pass False",
        ),
        (lambda: untyped.interpolate(IMAGE[..., :0], 4), "x = .*no elements to choose from"),
        (lambda: untyped.softmax(X, 0, dim=0), "dim = 0: axis = 0 is given as well.*pass axis or"),
        (lambda: untyped.softmax(X, dim=2), r"dim = 2: expected one of -2..1"),
        (lambda: untyped.softmax(X, dtype="s8"), "dtype = 's8': shares are floats; try 'f32'"),
        (lambda: untyped.concatenate([X, X], 0, dim=1), "dim = 1: axis = 0 is given as well"),
        (lambda: untyped.sum(X, dim=(0, 2)), r"dim = 2: expected one of -2..1"),
        (lambda: untyped.sum(X, dim=(0, 0)), r"dim = \(0, 0\): expected each axis once"),
        (lambda: untyped.amax(X, 1, dim=1), "dim = 1: axis = 1 is given as well"),
        (lambda: untyped.amin(X, keepdims=False, keepdim=True), "keepdim = True: keepdims = False"),
        (lambda: untyped.mean(X, keepdim=0), "keepdim = 0: expected True or False"),
        (lambda: untyped.cumsum(X, 2), r"axis = 2: expected one of -2..1"),
        (lambda: untyped.cumsum(X, 0, dim=0), "dim = 0: axis = 0 is given as well"),
        (lambda: untyped.cumprod(X.T), r"x = \(19, 4\): its rows have gaps.*pass an axis"),
        (lambda: untyped.clip(X, 0, min=0), "min = 0: a_min = 0 is given as well"),
        (lambda: untyped.clip(X, max=VECTOR[:4]), r"max = \(4,\): cannot be broadcast"),
        (lambda: untyped.clip(np.array([1], np.uint8), min=-1), "min = -1: u8 does not hold"),
        (lambda: untyped.clip(X), "a_min = None: expected a_min, a_max or both"),
        (lambda: untyped.hardtanh(X, 1, -1), "max_val = -1.0: must not be below min_val = 1.0"),
        (lambda: untyped.where(X > 0, X, MATRIX), r"y = \(19, 7\): cannot be broadcast with"),
        (lambda: untyped.where(MATRIX > 0, X, 1.0), r"condition = \(19, 7\): cannot be broadcast"),
        (lambda: untyped.embedding([3, 19], MATRIX), "x = 19: expected numbers of 0..18, the rows"),
        (lambda: untyped.embedding([-1], MATRIX), "x = -1: expected numbers of 0..18"),
        (lambda: untyped.embedding([0.5], MATRIX), "x = 'float64': expected integers"),
        (lambda: untyped.embedding([[1], [1, 2]], MATRIX), r"x = .*: no array of numbers: "),
        (lambda: untyped.where(np.array(["a"]), 1, 2), "condition = '<U1': "),
        (lambda: untyped.embedding([0], VECTOR), r"weight = \(19,\): expected a matrix"),
        (lambda: untyped.embedding([0], MATRIX, 19), "padding_idx = 19: expected one of -19..18"),
        (
            lambda: untyped.pad(X, (1,)),
            r"pad = \(1,\): expected pairs of numbers, for at most the 2",
        ),
        (lambda: untyped.pad(X, 1), "pad = 1: expected a sequence of integers"),
        (lambda: untyped.pad(X, (1, 1), "wrap"), "mode = 'wrap': expected one of constant, refl"),
        (lambda: untyped.pad(X, (19, 0), "reflect"), 'pad = .*"reflect" takes at most 18 from'),
        (lambda: untyped.pad(X, (-9, -11)), r"pad = \(-9, -11\): cuts off more than there is"),
        (lambda: untyped.pad(X, (-1, 1), "circular"), 'pad = .*"circular" cuts nothing off'),
        (lambda: untyped.pad(X, (1, 1), "reflect", 2.0), "value = 2.0: .*takes no value; pass No"),
        (
            lambda: untyped.pad(X.astype(np.uint8), (1, 1), value=300),
            "value = 300.0: x has elements of uint8, from 0 to 255",
        ),
        (lambda: untyped.softplus(X, threshold="a"), "threshold = 'a': expected a number"),
        (lambda: untyped.normalize(X, 0.5), "p = 0.5: expected 1 or more"),
        (lambda: untyped.normalize(VECTOR), "axis = 1: expected one of -1..0"),
        (
            lambda: untyped.batch_norm(IMAGE, *CHANNELS, training=True),
            "training = True: statistics of the batch are not computed",
        ),
        (lambda: untyped.layer_norm(X, 19, VECTOR.astype(float)), "weight = 'f64 of .*smaller"),
        (lambda: untyped.conv2d(IMAGE, drawn(4, 6, 3, 3), padding="full"), "padding = 'full'"),
        (
            lambda: untyped.conv2d(IMAGE, drawn(4, 6, 3, 3), stride=2, padding="same"),
            r"padding = 'same': the result of stride = \(2, 2\) .*pass numbers, or stride = 1",
        ),
        (lambda: untyped.max_pool2d(IMAGE, 2, padding="same"), "padding = 'same': expected a num"),
        (
            lambda: untyped.adaptive_avg_pool2d(IMAGE, (1, 2, 3)),
            r"output_size = \(1, 2, 3\): expected a number, or 2 of them",
        ),
        (lambda: untyped.adaptive_avg_pool2d(IMAGE, 0), "output_size = 0: expected 1 or more"),
        (lambda: untyped.adaptive_max_pool2d(X, 2), r"x = \(4, 19\): expected 4 dimensions, or 3"),
        (lambda: untyped.adaptive_max_pool1d(X[:, :0], 2), "x = .*no elements in a window"),
        (lambda: untyped.interpolate(IMAGE, (1, 2, 3)), "size = .*2 of them"),
        (lambda: untyped.concatenate([X, VECTOR]), r"arrays\[1\]"),
        (lambda: untyped.relu("text"), "x = 'str'"),
        (lambda: untyped.add(X, "text"), "y = 'str'"),
        (lambda: untyped.add(X, np.array([None])), "y = 'object of .*no data type"),
        (lambda: untyped.conv2d(IMAGE, [[1], [1, 2]]), "weight = .*no array of numbers"),
        (lambda: untyped.concatenate([X, "text"]), r"arrays\[1\] = 'str'"),
        (lambda: untyped.sum(X, (0, -2)), r"axis = \(0, -2\): expected each axis once"),
        (lambda: untyped.sum(1.0, 0), "axis = 0: x has no dimensions"),
        (lambda: untyped.mean(X, keepdims=1), "keepdims = 1: expected True or False"),
        (lambda: untyped.softmax(X, masked_rows=0), "masked_rows = 0: expected one of nan, zero"),
        (lambda: untyped.softmax(X, "x"), "axis = 'x': expected an integer"),
        (lambda: untyped.softmax(X, [0]), r"axis = \[0\]: expected an integer"),
        (lambda: untyped.layer_norm(X, "ab"), "normalized_shape = 'ab'"),
        (lambda: untyped.layer_norm(X, 19, eps=-1), "eps = -1.0: must not be negative"),
        (lambda: untyped.leaky_relu(X, [1]), r"negative_slope = \[1\]: expected a number"),
        (lambda: untyped.clip(X, "1"), "a_min = '1': expected a number"),
        (lambda: untyped.conv2d(IMAGE, drawn(4, 6, 3, 3), stride="a"), "stride = 'a'"),
        (lambda: untyped.conv2d(IMAGE, drawn(4, 6, 3, 3), stride=None), "stride = None"),
        (lambda: untyped.conv2d(IMAGE, drawn(4, 6, 3, 3), stride=0), "stride = .*at least 1"),
        (lambda: untyped.conv2d(IMAGE, drawn(4, 6, 3, 3), padding=-1), "padding = .*at least 0"),
        (lambda: untyped.conv2d(IMAGE, drawn(4, 6, 3, 3), dilation=(0, 1)), "dilation = .*least 1"),
        (
            lambda: untyped.conv2d(IMAGE, drawn(4, 6, 3, 3), groups=0),
            "groups = 0: must be 1 or more",
        ),
        (lambda: untyped.conv2d(IMAGE, drawn(4, 6, 11, 3)), "weight = .*reaches over x"),
        (lambda: untyped.max_pool2d(IMAGE, 10), r"kernel_size = \(10, 10\): reaches over x"),
        (lambda: untyped.max_pool2d(IMAGE, "a"), "kernel_size = 'a'"),
        (lambda: untyped.interpolate(IMAGE, "ab"), "size = 'ab'"),
        (
            lambda: untyped.interpolate(IMAGE, scale_factor=1e300),
            "scale_factor = .*must be positive",
        ),
        (
            lambda: untyped.interpolate(IMAGE, scale_factor=0.1),
            "scale_factor = .*leaves nothing of x",
        ),
        (
            lambda: untyped.relu(X, out=np.empty((4, 18), np.float32)),
            r"out = \(4, 18\): the result has the shape \(4, 19\)",
        ),
        (lambda: untyped.relu(X, out=np.broadcast_to(np.zeros(1, np.float32), (4, 19))), "out"),
        (lambda: untyped.relu(X, out=np.empty_like(X)[:, ::-1]), "out = .*negative strides"),
    ],
)
def test_wrong_arguments(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(InvalidArguments, match=text):
        call()


def test_memory_is_given_back() -> None:
    for _ in range(3):
        ops.softmax(X)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200):
        ops.softmax(X)
    gc.collect()
    assert len(gc.get_objects()) <= before + 20


def test_negated_views_of_torch_are_read_with_their_sign() -> None:
    view = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert view.is_neg()
    assert ops.add(view, view.to(torch.float64).float()).tolist() == [-4, 8]
    with pytest.raises(InvalidArguments, match="negated numbers"):
        ops.relu(torch.tensor([1.0, 2.0]), out=view)
