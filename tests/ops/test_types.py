"""The types and values of results, against NumPy and PyTorch, over every type that they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import InvalidArguments, OutOfMemory, ops

Function = Callable[..., Any]
of_torch: Any = F.scaled_dot_product_attention
untyped: Any = ops  # for arguments that no type checker lets pass

TYPES = [np.dtype(letter) for letter in "?bBhHiIqQefd"]
TENSORS = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bfloat16,
    torch.float16, torch.float32, torch.float64,
]  # fmt: skip
OF_TWO = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def drawn(dtype: np.dtype[Any], *shape: int, seed: int = 1) -> np.ndarray:
    """Integers of the whole range, so that results wrap; no zeros, by which one may divide."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.where(values == 0, np.array(1, dtype), values)


def small(dtype: np.dtype[Any], *shape: int) -> np.ndarray:
    """Numbers of which every type has the square."""
    return np.random.default_rng(3).integers(0, 2 if dtype.kind == "b" else 12, shape).astype(dtype)


def agree(got: Any, want: Any) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype.kind == "f":
        eps, wide = 64 * float(np.finfo(want.dtype).eps), want.astype(np.float64)
        largest = np.abs(wide[np.isfinite(wide)]).max(initial=1)  # sums may cancel
        np.testing.assert_allclose(got.astype(np.float64), wide, eps, eps * largest)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_functions_of_one_array(dtype: np.dtype[Any]) -> None:
    x, few = drawn(dtype, 5, 37, 3), small(dtype, 3, 19)
    for name in REDUCTIONS:
        for axis in (1, None, (0, 2)):
            agree(getattr(ops, name)(x, axis), getattr(np, name)(x, axis=axis))
    for name in ("exp", "log", "sqrt", "tanh", "absolute", "square"):
        if (name, dtype.kind) == ("square", "b"):
            with pytest.raises(InvalidArguments, match="x = 'boolean'"):
                ops.square(few)
            continue
        agree(getattr(ops, name)(few), getattr(np, name)(few))
    if dtype.kind in "iu":
        agree(ops.absolute(x), np.absolute(x))
        agree(ops.square(x), np.square(x))
        agree(ops.relu(x), np.maximum(x, dtype.type(0)))
    agree(ops.clip(x, 2, 5), np.clip(x, 2, 5))
    agree(ops.concatenate([x, x[:1]]), np.concatenate([x, x[:1]]))
    for number in (True, 3, 2.5):
        for name in ("add", "multiply", "divide"):
            agree(getattr(ops, name)(x, number), getattr(np, name)(x, number))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("left", TYPES, ids=str)
def test_functions_of_two_arrays(left: np.dtype[Any]) -> None:
    """Each pair of types with a few of the functions, which broadcast."""
    for number, right in enumerate(TYPES):
        x, y = drawn(left, 3, 19), drawn(right, 19, seed=2)
        y[y == 0] = 1
        for name in {OF_TWO[(number + TYPES.index(left)) % 6], "divide"}:
            if name == "subtract" and left.kind == right.kind == "b":
                with pytest.raises(InvalidArguments, match="x = 'boolean'"):
                    ops.subtract(x, y)
                continue
            agree(getattr(ops, name)(x, y), getattr(np, name)(x, y))
        if (number + TYPES.index(left)) % 3 == 0 or left is right:
            matrix = drawn(right, 19, 4, seed=2)
            agree(ops.matmul(x, matrix), np.matmul(x, matrix))
            agree(ops.linear(x, matrix.T, matrix[0]), np.matmul(x, matrix) + matrix[0])
            agree(ops.concatenate([x, matrix.T]), np.concatenate([x, matrix.T]))


@pytest.mark.parametrize("left", TENSORS, ids=str)
def test_promotion_of_tensors(left: torch.dtype) -> None:
    """A tensor without dimensions counts less, a number of Python's least."""
    x = torch.ones(3, dtype=left)
    for right in TENSORS:
        for y in (torch.ones(3, dtype=right), torch.ones((), dtype=right)):
            got = untyped.multiply(x, y)
            assert isinstance(got, torch.Tensor)
            assert got.dtype is torch.result_type(x, y)
    for number in (True, 2, 2.5):
        assert untyped.multiply(x, number).dtype is torch.result_type(x, number)
        assert untyped.multiply(number, x).dtype is torch.result_type(x, number)
    assert untyped.divide(x, x).dtype is (x / x).dtype
    assert untyped.exp(x).dtype is torch.exp(x).dtype
    assert untyped.sum(x).dtype is torch.sum(x).dtype


OF_TORCH: dict[str, tuple[Function, Function, tuple[Any, ...]]] = {
    name: (getattr(ops, name), getattr(F, name), arguments)
    for name, arguments in {
        "relu": (), "elu": (), "silu": (), "gelu": (), "mish": (), "softplus": (), "sigmoid": (),
        "hardswish": (), "hardsigmoid": (), "leaky_relu": (), "softmax": (-1,),
        "log_softmax": (-1,), "layer_norm": ((6,),), "avg_pool2d": (2,), "max_pool2d": (2,),
        "group_norm": (2,),
    }.items()
}  # fmt: skip


ONLY_TORCH = {("avg_pool2d", torch.int64), ("max_pool2d", torch.int64)}


@pytest.mark.parametrize("dtype", [t for t in TENSORS if not t.is_floating_point], ids=str)
def test_functions_of_torch_of_integers(dtype: torch.dtype) -> None:
    """As PyTorch computes them, or refused in the name of the argument."""
    values = torch.from_numpy(np.random.default_rng(4).integers(0, 90, (2, 4, 6, 6))).to(dtype)
    for name, (fn, same, arguments) in OF_TORCH.items():
        try:
            want = same(values, *arguments)
        except RuntimeError:
            with pytest.raises(InvalidArguments, match="x = "):
                fn(values, *arguments)
            continue
        if (name, dtype) in ONLY_TORCH:
            continue
        got = fn(values, *arguments)
        assert got.dtype is want.dtype, name
        torch.testing.assert_close(got, want, msg=name)
    weight = torch.from_numpy(np.random.default_rng(5).integers(0, 90, (3, 4, 2, 2))).to(dtype)
    if dtype in (torch.int8, torch.uint8):
        assert torch.equal(ops.conv2d(values, weight), F.conv2d(values, weight))
    else:
        with pytest.raises(InvalidArguments, match="x = "):
            ops.conv2d(values, weight)


def test_results_in_given_types() -> None:
    x = np.array([200, 100], np.uint8)
    assert ops.sum(x) == 300
    assert (ops.sum(x, dtype=np.uint8), ops.sum(x, dtype="u8")) == (44, 44)
    assert ops.prod(x, dtype="int16") == np.prod(x, dtype=np.int16)
    assert untyped.mean(torch.arange(4), dtype=torch.float32) == 1.5
    agree(ops.mean(x, dtype="f32"), np.float32(150))
    agree(ops.matmul(x, x, dtype="s32"), np.int32(50000))
    agree(ops.matmul(x, x, dtype="f64"), np.float64(50000))
    # What out holds is computed in its type, and what it does not hold is cut.
    out = np.empty(2, np.int32)
    agree(ops.add(x, x, out=out), np.array([400, 200], np.int32))
    bytes_ = np.empty(2, np.uint8)
    agree(ops.add(x.astype(np.int32), 100, out=bytes_), np.array([44, 200], np.uint8))
    agree(ops.divide(out, 3, out=out), np.array([133, 67], np.int32))
    with pytest.raises(InvalidArguments, match="x = 's64': the mean of integers needs dtype"):
        untyped.mean(torch.arange(4))
    with pytest.raises(InvalidArguments, match="dtype = 's32': a mean is a float"):
        ops.mean(x, dtype="s32")
    with pytest.raises(InvalidArguments, match="x = 'complex128'"):
        ops.add(np.ones(2, complex), 1)
    with pytest.raises(InvalidArguments, match="y = 300: u8 does not hold"):
        ops.add(x, 300)
    with pytest.raises(InvalidArguments, match=r"x = \[16777217\]: f32 does not hold"):
        ops.relu([16777217])
    with pytest.raises(InvalidArguments, match="x = 's16': this function takes floats"):
        ops.gelu(x.astype(np.int16))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64])
def test_numbers_that_a_type_does_not_hold(dtype: Any) -> None:
    limits, x = np.iinfo(dtype), drawn(np.dtype(dtype), 40)
    tensor, refused = torch.from_numpy(x), "does not hold these integers"
    for number in (-1, 127, 128, 200, 255, int(limits.min) - 1, int(limits.max) + 1):
        if number < -(2**63):  # which PyTorch refuses as well
            continue
        for name, torch_name in (("add", "add"), ("subtract", "sub"), ("multiply", "mul")):
            function, want = getattr(ops, name), getattr(torch, torch_name)(tensor, number)
            assert torch.equal(function(tensor, number), want)
            assert torch.equal(function(tensor.clone(), number), want)
            if number < 2**63:
                assert torch.equal(function(tensor, np.int64(number)), want)
            if name != "subtract":
                assert torch.equal(function(number, tensor), want)
            if not limits.min <= number <= limits.max:
                with pytest.raises(InvalidArguments, match=f"y = {number}: .* {refused}"):
                    function(x, number)
        if not limits.min <= number <= limits.max:
            for array in (x, tensor):
                with pytest.raises(InvalidArguments, match=f"max = {number}: .* {refused}"):
                    untyped.clip(array, max=number)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8", "bool"])
def test_truth_values_of_numbers(dtype: str) -> None:
    rng = np.random.default_rng(7)
    x = (rng.integers(-1, 2, (40, 3)) * rng.random((40, 3)) * 100).astype(dtype)
    if dtype == "int32":
        x[:2] = [[256, 256, 1], [-256, 256, -1]]  # of which sums are 0, or have no bits in a byte
    for rows in (x, x[:2], x[2:3], np.abs(x.astype(np.float32) / 1000).astype(dtype)):
        for axis in (None, 0, 1):
            agree(ops.sum(rows, axis, dtype=np.bool_), np.sum(rows, axis=axis, dtype=bool))
            agree(ops.prod(rows, axis, dtype="boolean"), np.prod(rows, axis=axis, dtype=bool))
        tensor = torch.from_numpy(rows)
        assert untyped.sum(tensor, dtype=torch.bool) == torch.sum(tensor, dtype=torch.bool)
        assert untyped.prod(tensor, dtype=torch.bool) == torch.prod(tensor, dtype=torch.bool)
    truths = x != 0
    agree(ops.matmul(truths, truths.T, dtype=np.bool_), truths @ truths.T)
    for running in (ops.cumsum, ops.cumprod):
        with pytest.raises(InvalidArguments, match="dtype = 'boolean': running totals"):
            running(x, 0, dtype=np.bool_)
    if dtype != "bool":
        with pytest.raises(InvalidArguments, match="dtype = 'boolean': a product of truth"):
            ops.matmul(x, x.T, dtype=np.bool_)


@pytest.mark.parametrize("dtype", ["bool", "int16", "uint64"])
def test_results_that_are_not_rounded(dtype: str) -> None:
    x = np.random.default_rng(8).standard_normal((3, 3)).astype(np.float32)
    out = np.empty((3, 3), dtype)
    calls: tuple[Callable[[], Any], ...] = (
        lambda: ops.add(x, x, out=out),
        lambda: ops.relu(x, out=out),
        lambda: ops.matmul(x, x, out=out),
        lambda: ops.softmax(x, out=out),
        lambda: ops.sum(x, 0, out=out[0]),
        lambda: untyped.exp(torch.from_numpy(x), out=torch.from_numpy(out)),
    )
    for call in calls:
        with pytest.raises(InvalidArguments, match=r"^out = .*: a result of f32 is not written"):
            call()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_attention(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(6)
    query, key, value = (np.abs(rng.standard_normal((5, 8)) * 3).astype(dtype) for _ in range(3))
    for mask in (None, np.tri(5, dtype=bool), rng.standard_normal((5, 5))):
        given = [torch.from_numpy(array.astype(np.float64)) for array in (query, key, value)]
        hidden = None if mask is None else torch.from_numpy(mask)
        want = of_torch(*given, hidden).numpy()
        got = ops.attention(query, key, value, mask)
        assert got.dtype.kind == "f"
        eps = 32 * float(np.finfo(dtype if dtype.kind == "f" else np.float32).eps)
        np.testing.assert_allclose(got, want, eps, eps * np.abs(want).max())


@pytest.mark.parametrize(
    "dtype", ["text", [], {"names": ["a"]}, 3, "undef", "s4", "e8m0", "i4,,", np.complex64, object]
)
def test_types_that_are_none(dtype: object) -> None:
    with pytest.raises(InvalidArguments, match="dtype = "):
        ops.sum(np.ones(3, np.float32), dtype=dtype)


def test_reductions_of_no_elements() -> None:
    x = np.zeros((2, 0, 3), np.float32)
    for axis in (1, None, (0, 1)):
        agree(ops.sum(x, axis), np.sum(x, axis=axis))
        agree(ops.prod(x, axis, keepdims=True), np.prod(x, axis=axis, keepdims=True))
        assert np.isnan(ops.mean(x, axis)).all()
        for extreme in (ops.amax, ops.amin):
            with pytest.raises(InvalidArguments, match=r"x = \(2, 0, 3\): has no elements along"):
                extreme(x, axis)
    agree(ops.sum(x.astype(np.int8), 1), np.sum(x.astype(np.int8), axis=1))
    agree(ops.amax(x, 0), np.amax(x, axis=0))
    out = np.full((2, 3), 7, np.float16)
    assert (ops.sum(x, 1, out=out) == 0).all()
    agree(ops.matmul(x, np.zeros((3, 4), np.int32)), np.matmul(x, np.zeros((3, 4), np.int32)))
    agree(ops.matmul(x[0].T, x[0]), np.zeros((3, 3), np.float32))


def test_memory_that_is_not_there() -> None:
    huge = np.broadcast_to(np.zeros(1, np.float32), (2**25, 2**25))
    calls: tuple[Callable[[], Any], ...] = (
        lambda: ops.relu(huge),
        lambda: ops.exp(np.broadcast_to(np.int16(1), huge.shape)),
        lambda: ops.attention(huge[:, :4], huge[:4, :4], huge[:4]),
        lambda: ops.softmax(huge, 0),
        lambda: ops.pad(huge[:2, :2], (2**30, 0, 2**30, 0)),
        lambda: ops.pad(huge[:2, :2], (0, 2**30, 0, 2**30), "replicate"),
        lambda: ops.interpolate(huge[None, None, :2, :2], (2**30, 2**30)),
        lambda: ops.adaptive_max_pool2d(huge[None, :2, :3], 2**30),
    )
    for call in calls:
        with pytest.raises(OutOfMemory):
            call()
