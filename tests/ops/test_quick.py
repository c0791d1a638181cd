"""The short path: the second call on arrays that look alike, against the first and PyTorch."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as forward
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it
from torch._subclasses import FakeTensorMode

from dnnl import InvalidArguments, ops
from dnnl.ops import quick
from tests.ops.test_ops import drawn, untyped

Function = Callable[..., Any]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
TYPES = [*FLOATS, *INTEGERS]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Callable[[Function], Any]:
    """Calls a function that must not take the long path."""

    def long(*_: object) -> None:
        raise AssertionError("the long path")

    def call(fn: Function) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr("dnnl.ops.call._checked", long)
            return fn()

    return call


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_other_values_of_one_look(dtype: torch.dtype, short: Callable[[Function], Any]) -> None:
    first, second = (torch.from_numpy(8 * drawn(5, 37, seed=s)).to(dtype) for s in (1, 2))
    for fn, same in (
        (ops.relu, torch.relu),
        (lambda x: ops.add(x, x), lambda x: x + x),
        (lambda x: ops.amax(x, 1), lambda x: torch.amax(x, 1)),
        (lambda x: ops.relu(x.T), lambda x: torch.relu(x.T)),
        (lambda x: ops.maximum(x, 3), lambda x: torch.clamp_min(x, 3)),
    ):
        assert torch.equal(fn(first), same(first))
        earlier = fn(first)
        got = short(lambda fn=fn: fn(second))
        assert torch.equal(got, same(second))
        assert (got.dtype, got.is_contiguous()) == (dtype, True)
        assert torch.equal(earlier, same(first))  # not the memory of the later result


def test_arrays_of_numpy(short: Callable[[Function], Any]) -> None:
    x, y = drawn(16, 16), drawn(16, 16, seed=2)
    for a, b in ((x, y), (x.T, y[::-1].copy().T), (x[:, ::2], y[:, ::2])):
        ops.add(a, a)
        np.testing.assert_array_equal(short(lambda a=a, b=b: ops.add(b, a)), b + a)
    frozen = y.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(short(lambda: ops.add(frozen, x)), y + x)
    ops.matmul(x, x)
    np.testing.assert_allclose(short(lambda: ops.matmul(y, x)), y @ x, 1e-5, 1e-5)
    backward = x[::-1]
    for _ in range(2):
        np.testing.assert_array_equal(ops.add(backward, y), backward + y)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_looks_that_differ_in_one_thing(kind: Function) -> None:
    """In strides, in the type, in the parameters, in which of two arrays comes first."""
    square, other = drawn(8, 8), drawn(8, 8, seed=2)
    whole = np.rint(8 * square).astype(np.int32)
    wide = drawn(8, 16)[:, ::2]
    for _ in range(3):
        for array in (square, square.T, wide, whole, whole.T, square.astype(np.float64)):
            np.testing.assert_array_equal(ops.relu(kind(array)), np.maximum(array, 0))
            for axis in (0, 1):
                np.testing.assert_allclose(ops.amax(kind(array), axis), np.amax(array, axis))
        got = ops.subtract(kind(square), kind(other.T)), ops.subtract(kind(square.T), kind(other))
        np.testing.assert_array_equal(got[0], square - other.T)
        np.testing.assert_array_equal(got[1], square.T - other)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_numbers_change(kind: Function, short: Callable[[Function], Any]) -> None:
    x, whole = kind(drawn(40)), kind(np.arange(9))
    ops.multiply(x, 2.0), ops.multiply(2, x), ops.add(whole, 1)
    for number in (0.5, -3.0, 1e300, float("nan"), float("inf")):
        with np.errstate(over="ignore"):
            want = np.asarray(x) * np.float64(number).astype(np.float32)
        np.testing.assert_array_equal(short(lambda: ops.multiply(x, number)), want)  # noqa: B023
    np.testing.assert_array_equal(short(lambda: ops.multiply(-7, x)), np.asarray(x) * -7)
    np.testing.assert_array_equal(short(lambda: ops.add(whole, 2**62)), np.asarray(whole) + 2**62)
    with pytest.raises(InvalidArguments, match="x = 16777217: f32 does not hold"):
        ops.multiply(2**24 + 1, x)
    with pytest.raises(InvalidArguments, match=r"y = .*does not hold these integers"):
        ops.add(whole, 2**70)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_numbers_round_as_on_the_long_path(
    dtype: torch.dtype, short: Callable[[Function], Any]
) -> None:
    x = torch.tensor([1.0, -3.0]).to(dtype)
    ops.multiply(x, 0.5), ops.multiply(x, 2)
    for number in (1 / 3, -1e-7, 2.0**-24, 65504.0, float("nan"), float("inf"), 1e39, 255, -256):
        wide = torch.tensor(number, dtype=torch.float64).to(dtype)
        assert torch.equal(ops.multiply(x, number).nan_to_num(), (x * wide).nan_to_num())
    third = torch.tensor(1 / 3, dtype=torch.float64).to(dtype)
    assert torch.equal(short(lambda: ops.multiply(x, 1 / 3)), x * third)
    exact = {torch.float16: 2**11, torch.bfloat16: 2**8, torch.float32: 2**24, torch.float64: 2**53}
    short(lambda: ops.multiply(x, exact[dtype]))
    with pytest.raises(InvalidArguments, match="does not hold these integers"):
        ops.multiply(x, -exact[dtype] - 1)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_at_their_limits(dtype: torch.dtype, short: Callable[[Function], Any]) -> None:
    x, limits = torch.tensor([0, 1]).to(dtype), torch.iinfo(dtype)
    ops.add(x, 1)
    for number in (limits.min, limits.max):
        assert short(lambda: ops.add(x, number)).tolist() == (x + number).tolist()  # noqa: B023
    for number in (limits.min - 1, limits.max + 1):
        with pytest.raises(InvalidArguments, match=r"y = .*does not hold these integers"):
            ops.maximum(x, number)
        if number >= -(2**63):  # of sums these wrap, as in PyTorch
            assert short(lambda: ops.add(x, number)).tolist() == (x + number).tolist()  # noqa: B023


def test_parameters_take_the_short_path(short: Callable[[Function], Any]) -> None:
    layer, rows = torch.nn.Linear(5, 3), torch.from_numpy(drawn(4, 5))
    with torch.no_grad():
        for _ in range(2):
            ops.linear(rows, layer.weight, layer.bias)
        layer.weight.mul_(2)
        got = short(lambda: untyped.linear(rows, layer.weight, layer.bias))
        torch.testing.assert_close(got, layer(rows))
        ops.relu(layer.weight)
        like = short(lambda: untyped.relu(layer.weight))
        assert (type(like), like.requires_grad, got.requires_grad) == (torch.Tensor, False, False)
    assert untyped.linear(rows, layer.weight, layer.bias).requires_grad


@pytest.mark.filterwarnings("ignore:.*jit:DeprecationWarning")
def test_gradients_are_not_lost() -> None:
    x = torch.from_numpy(drawn(3, 4))
    for _ in range(2):
        ops.relu(x)
    asks = x.clone().requires_grad_()
    assert untyped.relu(asks).requires_grad
    with pytest.raises(
        InvalidArguments, match="out = 'a tensor': a result with gradients is a new"
    ):
        ops.relu(asks, out=torch.empty(3, 4))
    with torch.no_grad():
        parameter = torch.nn.Parameter(x)
        for given in (asks, parameter):
            got = untyped.relu(given)
            assert torch.equal(got, torch.relu(x))
            assert not got.requires_grad
    saved, weight = x.clone(), torch.ones(3, 4, requires_grad=True)
    product: Any = (weight * saved).sum()
    assert ops.relu(x, out=saved) is saved
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    with torch.inference_mode():
        inside = torch.empty(3, 4)
    assert torch.equal(untyped.relu(x, out=inside), torch.relu(x))
    dual: Any = forward.make_dual
    with forward.dual_level(), pytest.raises(InvalidArguments, match="x = 'Tensor': has a tangent"):
        ops.relu(dual(x, x))
    with forward.dual_level():
        assert torch.equal(untyped.relu(x), torch.relu(x))


@pytest.mark.filterwarnings("ignore:.*jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_tensors_that_only_look_like_others() -> None:
    x = torch.from_numpy(drawn(3, 4))
    for _ in range(2):
        for given in (x, x[0], x[:1, :1].expand(3, 4)):
            ops.relu(given)
    odd: list[tuple[str, Function]] = [
        ("vmap", lambda: torch.vmap(ops.relu)(x)),
        ("grad", lambda: torch.func.grad(lambda t: ops.relu(t).sum())(x)),
        ("jvp", lambda: torch.func.jvp(ops.relu, (x,), (x,))),
        ("functionalize", lambda: torch.func.functionalize(ops.relu)(x)),
        ("sparse", lambda: ops.relu(x.to_sparse())),
        ("zero", lambda: ops.relu(torch._efficientzerotensor((3, 4)))),
        ("meta", lambda: ops.relu(x.to("meta"))),
        ("fake", lambda: ops.relu(FakeTensorMode().from_tensor(x))),
        ("nested", lambda: ops.relu(torch.nested.nested_tensor([x, x]))),
    ]
    for _, call in odd:
        with pytest.raises(InvalidArguments, match="x = "):
            call()
    negated = torch.complex(x, x).conj().imag
    assert torch.equal(untyped.relu(negated), torch.relu(-x))
    with torch.inference_mode():
        assert torch.equal(untyped.relu(x), torch.relu(x))
    with torch.device("meta"):  # new tensors are there
        assert torch.equal(untyped.relu(x), torch.relu(x))
        assert untyped.sum(x, 1).device.type == "cpu"


def test_threads_share_the_short_path() -> None:
    images = [torch.from_numpy(drawn(64, 32, seed=s)) for s in range(4)]
    wanted = [F.softmax(image, -1) for image in images]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(300):
            if not torch.allclose(untyped.softmax(images[number]), wanted[number], atol=1e-6):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
def test_slots_own_no_arrays(kind: Function) -> None:
    x = kind(drawn(7, 5))
    results = [ops.relu(x), ops.relu(x), ops.add(x, 2.0), ops.amax(x, 1)]
    seen = [weakref.ref(array) for array in (x, *results)]
    del x, results
    gc.collect()
    assert [own() for own in seen] == [None] * len(seen)


def test_slots_are_bounded() -> None:
    x = drawn(3)
    for number in range(3000):
        assert quick.slot_of(ops.relu, (x,), (number,)) is not None
    info = quick._slot.cache_info()
    assert info.currsize == info.maxsize
    np.testing.assert_array_equal(ops.relu(x), np.maximum(x, 0))
