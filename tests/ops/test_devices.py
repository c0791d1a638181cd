"""The functions on arrays that the host cannot touch: in the memory of the engine ``far``, as
memories and as arrays of a library that has a queue of its own (see `tests.far_arrays`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dnnl import (
    Arg,
    EltwiseDesc,
    Engine,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    Stream,
    Unimplemented,
    ops,
)
from tests.device import FAR, backend_of
from tests.far_arrays import FarArray
from tests.ops.test_ops import CASES, MATRIX, VECTOR, Function, X, drawn, untyped

QUEUE = FAR.make_queue(in_order=True)


def far(array: Any) -> Any:
    """An array there, numbers and the like as they are."""
    return FarArray.of(array, FAR, QUEUE) if isinstance(array, np.ndarray) else array


def memory(array: Any) -> Any:
    """A memory there."""
    return Memory.from_numpy(array, engine=FAR) if isinstance(array, np.ndarray) else array


def agree(got: Any, want: np.ndarray) -> None:
    """The same bits: it is the code of the host."""
    back = got.numpy()
    assert (back.shape, back.dtype) == (want.shape, want.dtype)
    np.testing.assert_array_equal(back, want)


def near(got: Any, want: np.ndarray) -> None:
    """The same but for roundings."""
    back = got.numpy()
    assert (back.shape, back.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(back, want, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.covers
def test_as_on_the_host(name: str) -> None:
    fn, arguments, named, _ = CASES[name]
    want = fn(*arguments, **named)
    got = fn(*map(far, arguments), **named)
    assert type(got) is FarArray
    assert got.queue is QUEUE
    agree(got, want)
    from_memory = fn(*map(memory, arguments), **named)
    assert from_memory.engine is FAR
    agree(from_memory, want)
    if want.ndim:
        room = far(np.full((*want.shape[:-1], 2 * want.shape[-1]), 7, want.dtype))
        out = room[..., ::2]
        try:
            assert fn(*map(far, arguments), **named, out=out) is out
        except Unimplemented:
            pytest.skip("no implementation has such a dst")
        np.testing.assert_allclose(out.numpy(), want, rtol=2e-5, atol=2e-6)
        assert (room.numpy()[..., 1::2] == 7).all()


@pytest.mark.parametrize("dtype", ["?", "b", "B", "h", "i", "q", "e", "f", "d"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_types(dtype: str) -> None:
    """What NumPy converts on the host is converted there: integers wrap."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2 if dtype == "?" else 120, (3, 19)).astype(dtype)
    y = rng.standard_normal(19).astype(np.float32)
    there, other = far(x), far(y)
    calls: tuple[Function, ...] = (
        ops.add,
        ops.matmul,
        lambda a, b: ops.divide(a, 3),
        lambda a, b: ops.multiply(a, a),
        lambda a, b: ops.sum(a, 1),
        lambda a, b: ops.prod(a, 0, dtype="s16"),
        lambda a, b: ops.mean(a, keepdims=True),
        lambda a, b: ops.exp(a),
        lambda a, b: ops.absolute(a),
        lambda a, b: ops.concatenate([a, a]),
        lambda a, b: ops.clip(a, 2, 5),
        lambda a, b: untyped.clip(a, b, 5),
        lambda a, b: ops.sum(a, 1, dtype="boolean"),
    )
    for call in calls:
        agree(call(there, other), call(x, y))
    out, back = np.empty(x.shape, np.uint8), far(np.empty(x.shape, np.uint8))
    ops.add(x, x, out=out)
    ops.add(there, there, out=back)
    agree(back, out)


@pytest.mark.parametrize("kind", [far, memory])
def test_rows_in_any_order(kind: Callable[[Any], Any]) -> None:
    x, weight = drawn(3, 4, 5).transpose(2, 0, 1), drawn(4, 3).T
    for given in ((x,), (x, weight), (x.copy(), weight)):
        there = [kind(array) for array in given]
        want = untyped.layer_norm(given[0], (3, 4), *given[1:])
        near(untyped.layer_norm(there[0], (3, 4), *there[1:]), want)
    out = kind(np.empty((3, 4, 5), np.float32).transpose(2, 0, 1))
    assert ops.rms_norm(kind(x), (3, 4), out=out) is out
    near(out, ops.rms_norm(x, (3, 4)))
    near(untyped.clip(kind(x), kind(weight.copy()), 0.5), np.clip(x, weight, np.float32(0.5)))


@pytest.mark.parametrize("name", ["plain", "mask", "causal", "f64", "integers", "narrow"])
def test_attention(name: str) -> None:
    rng = np.random.default_rng(2)
    shape = (2, 7, 8)
    arrays: list[Any] = [rng.standard_normal(shape).astype(np.float32) for _ in range(3)]
    query, key, value = arrays
    named: dict[str, Any] = {}
    if name == "mask":
        named["attn_mask"] = rng.integers(0, 2, (7, 7)).astype(bool)
    elif name == "causal":
        named["is_causal"] = True
    elif name == "f64":
        query, named["attn_mask"] = query.astype(np.float64), drawn(7, 7)
    elif name == "integers":
        query = rng.integers(0, 4, query.shape)
    elif name == "narrow":
        value = value.astype(np.float16)
    want = untyped.attention(query, key, value, **named)
    there = {key: far(array) for key, array in named.items()}
    got = untyped.attention(far(query), far(key), far(value), **there)
    near(got, want)  # on the host it is one primitive
    out = far(np.empty(want.shape, want.dtype))
    assert untyped.attention(far(query), memory(key), far(value), **there, out=out) is out
    agree(out, got.numpy())


def test_pooling_over_the_padding() -> None:
    x = drawn(1, 2, 7, 7)
    named: dict[str, Any] = {"stride": 2, "padding": 1, "ceil_mode": True}
    agree(untyped.avg_pool2d(far(x), 2, **named), untyped.avg_pool2d(x, 2, **named))


@pytest.mark.parametrize("part", [np.s_[::-1], np.s_[:, ::-2], np.s_[1:3, 2:9], np.s_[:0]])
def test_strides(part: Any) -> None:
    agree(ops.relu(far(X)[part]), np.maximum(X[part], 0))
    agree(ops.add(far(X)[part], far(X)[part]), X[part] + X[part])


def test_fills() -> None:
    empty = np.empty((3, 0), np.float32)
    agree(ops.sum(far(empty), 1), np.zeros(3, np.float32))
    room = far(np.full((3, 4), 7, np.float32))
    ops.prod(far(empty), 1, out=room[:, 1])
    assert (room.numpy()[:, 1] == 1).all()
    assert (room.numpy()[:, [0, 2, 3]] == 7).all()


@pytest.mark.parametrize("tag", ["ab", "ba", "AB16a16b"])
def test_layouts_of_memories(tag: str) -> None:
    there = Memory.from_numpy(X, tag, FAR)
    agree(ops.add(there, memory(VECTOR)), X + VECTOR)
    agree(
        ops.relu(memory(np.stack([X, -X])).part(MemoryDesc(X.shape, "f32"), X.nbytes)), ops.relu(-X)
    )


def test_in_place_and_overlapping() -> None:
    x = far(X)
    assert ops.relu(x, out=x) is x
    agree(x, np.maximum(X, 0))
    line = drawn(40)
    there = far(line)
    ops.relu(there[:-4], out=there[4:])
    np.testing.assert_array_equal(there.numpy()[4:], np.maximum(line[:-4], 0))
    square = drawn(8, 8)
    calls: list[tuple[Function, np.ndarray]] = [
        (lambda b: ops.matmul(b, b, out=b), square @ square),
        (lambda b: ops.add(b, b.T, out=b), square + square.T),
    ]
    for fn, same in calls:
        there = far(square)
        fn(there)
        np.testing.assert_allclose(there.numpy(), same, rtol=1e-5, atol=1e-5)


def test_nothing_goes_through_the_host() -> None:
    x, y = far(X), far(VECTOR)
    ops.add(ops.multiply(x, 3), y)  # the number is written once
    device = backend_of(FAR)
    before = device.reads, device.writes
    result = ops.softmax(ops.add(ops.multiply(x, 3), y))
    ops.matmul(x, far(MATRIX))
    assert (device.reads, device.writes) == (before[0], before[1] + 1)
    agree(result, ops.softmax(X * 3 + VECTOR))


def test_work_of_other_queues_comes_first() -> None:
    """And nobody waits for it on arrays that have a queue."""
    other = FAR.make_queue(in_order=True)
    x, y = far(X), FarArray.of(X, FAR, other)
    with backend_of(FAR).held():
        twice = ops.add(x, x)
        thrice = ops.add(twice, x)
    agree(thrice, X + X + X)
    agree(ops.add(untyped.relu(y), x), np.maximum(X, 0) + X)


def test_memories_wait_for_earlier_executions() -> None:
    """Of streams of the user, which the call knows nothing of."""
    desc = MemoryDesc(X.shape, "f32")
    square = EltwiseDesc.forward("forward_inference", "eltwise_square", desc, desc)
    primitive = Primitive(PrimitiveDesc(square, FAR))
    stream = Stream(FAR, in_order=False)
    for _ in range(20):
        src, dst = memory(X), Memory(desc, FAR)
        primitive.execute(stream, {Arg.SRC: src, Arg.DST: dst})
        got = ops.add(dst, dst, out=src)
        primitive.execute(stream, {Arg.SRC: src, Arg.DST: dst})
        agree(got, 2 * (X * X))
        agree(dst, (2 * (X * X)) ** 2)


def test_errors_of_a_device() -> None:
    device = backend_of(FAR)
    there = memory(X)
    device.failure = RuntimeError("the device is lost")
    with pytest.raises(RuntimeError, match="is lost"):
        untyped.relu(there)
    agree(untyped.relu(there), np.maximum(X, 0))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: untyped.add(far(X), X),
            r"y = 'ndarray': it is on the host, and x is on Engine\('far', 0\); .*Array.of\(y, x",
        ),
        (lambda: untyped.add(X, memory(X)), r"x = 'ndarray'.*from_numpy\(x, engine=y.engine\)"),
        (
            lambda: untyped.add(memory(X), Memory.from_numpy(X, engine=Engine("far", 1))),
            r"y = 'Memory': it is on Engine\('far', 1\), .*reorder\(y, dnnl.Memory\(y.desc, x",
        ),
        (lambda: untyped.relu(far(X), out=np.empty_like(X)), "out = 'ndarray': it is on the host"),
        (lambda: untyped.relu(X, out=far(X)), "x = 'ndarray': it is on the host, and out"),
        (lambda: untyped.concatenate([far(X), [1.0]]), r"arrays\[1\] = 'list': it is on the host"),
        (lambda: untyped.attention(far(X), far(X), X), "value = 'ndarray': it is on the host"),
        (lambda: untyped.relu(far(X), out=far(X)[::-1]), "out = .*negative strides"),
        (lambda: untyped.relu(far(X), out=far(X)[1:]), r"out = \(3, 19\): the result has"),
        (
            lambda: untyped.relu(far(X), out=Memory.from_numpy(X, "AB16a16b", FAR)),
            "out = .*strides",
        ),
        (lambda: untyped.relu(Memory(MemoryDesc((4,), "s4"), FAR)), "x = .*8 bits or more"),
        (lambda: untyped.softmax(far(X), 2), r"axis = 2: expected one of -2..1"),
    ],
)
def test_what_is_refused(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(InvalidArguments, match=text):
        call()
