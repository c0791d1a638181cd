"""The functions on arrays in USM: those of dpnp, tensors of dpnp, memories of SYCL engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dnnl import Engine, InvalidArguments, Memory, ops
from tests.ops.test_ops import CASES, MATRIX, X, drawn, untyped

sycl = pytest.importorskip("dnnl.sycl")
dpctl = pytest.importorskip("dpctl")
dpnp = pytest.importorskip("dpnp")
tensor = pytest.importorskip("dpnp.tensor")

LIBRARIES = pytest.mark.parametrize("library", [dpnp, tensor], ids=["dpnp", "tensor"])


def device() -> Any:
    return sycl.get_device(Engine("sycl"))


def queue(in_order: bool, context: Any = None) -> Any:
    context = sycl.get_context(Engine("sycl")) if context is None else context
    return dpctl.SyclQueue(context, device(), property=["in_order"] if in_order else [])


def elsewhere() -> Any:
    """A queue of another context."""
    return queue(True, dpctl.SyclContext([device()]))


def agree(got: Any, want: np.ndarray, library: Any = dpnp) -> None:
    back = library.asnumpy(got)
    assert (back.shape, back.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(back, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", [name for number, name in enumerate(CASES) if number % 2])
def test_as_on_the_host(name: str) -> None:
    fn, arguments, named, _ = CASES[name]
    own = queue(in_order=False)

    def there(array: Any) -> Any:
        is_array = isinstance(array, np.ndarray)
        return dpnp.asarray(array, sycl_queue=own) if is_array else array

    want = fn(*arguments, **named)
    got = fn(*map(there, arguments), **named)
    assert type(got) is dpnp.ndarray
    assert got.sycl_queue == own
    agree(got, want)


@LIBRARIES
@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_results_are_beside_their_sources(library: Any, kind: str) -> None:
    x = library.asarray(X, usm_type=kind, sycl_queue=elsewhere())
    got = ops.softmax(x)
    assert type(got) is type(x)
    assert (got.usm_type, got.sycl_queue) == (kind, x.sycl_queue)
    agree(got, ops.softmax(X), library)
    out = library.zeros((4, 38), dtype="f4", sycl_queue=x.sycl_queue)[:, ::2]
    assert ops.softmax(x, out=out) is out
    agree(out, ops.softmax(X), library)
    agree(ops.relu(x[::-1, 2:]), ops.relu(X[::-1, 2:]), library)
    agree(ops.matmul(x, x.T), X @ X.T, library)
    agree(ops.add(x, 2), X + 2, library)


def test_types() -> None:
    for dtype in ("?", "i1", "u1", "i4", "i8", "f2", "f8"):
        if not device().has_aspect_fp16 and dtype == "f2":
            continue
        values = np.random.default_rng(1).integers(0, 2 if dtype == "?" else 99, (3, 5))
        x = values.astype(dtype)
        there = dpnp.asarray(x)
        agree(ops.add(there, there), x + x)
        agree(ops.sum(there, 1), np.sum(x, 1))


@pytest.mark.parametrize("in_order", [True, False])
@LIBRARIES
def test_order_with_the_work_of_the_queue(library: Any, in_order: bool) -> None:
    """What the caller submitted before and submits behind, with no event between."""
    given = drawn(300, 300) / 20
    x = library.asarray(given, sycl_queue=queue(in_order))
    for _ in range(5):
        y = x
        for _ in range(4):
            y = library.matmul(y, x)
        z = ops.relu(y) + ops.square(y)
        before = library.asnumpy(y)
        agree(z, np.maximum(before, 0) + before * before, library)


@LIBRARIES
def test_nobody_waits(library: Any) -> None:
    """A call returns while the work before it is still done."""
    given = drawn(1200, 1200) / 40
    x = library.asarray(given, sycl_queue=queue(in_order=True))
    y = library.matmul(ops.add(ops.relu(x), 1), x)  # which builds all kernels
    x.sycl_queue.wait()
    for _ in range(4):
        y = library.matmul(y, x)
    end = x.sycl_queue.submit_barrier()
    ops.add(ops.relu(y), 1)
    assert end.execution_status.name != "complete"
    end.wait()


@pytest.mark.parametrize("late", ["first", "second"])
def test_two_queues_of_a_context(late: str) -> None:
    """The sum is after the work in both queues, and before what is submitted to both later."""
    given = drawn(900, 900) / 30
    x, y = (dpnp.asarray(given, sycl_queue=queue(in_order)) for in_order in (True, False))
    ops.add(x, y)  # which builds the kernel
    want = given
    for _ in range(4):
        want = want @ given
    for _ in range(3):
        a, b = x.copy(), y.copy()
        if late == "first":
            for _ in range(4):
                a = dpnp.matmul(a, x)
        else:
            for _ in range(4):
                b = dpnp.matmul(b, y)
        got = ops.add(a, b)
        a.fill(0)
        b.fill(0)
        assert got.sycl_queue == x.sycl_queue
        np.testing.assert_allclose(dpnp.asnumpy(got), want + given, rtol=1e-3, atol=1e-4)


def test_parts_that_overlap() -> None:
    line = drawn(40)
    there = dpnp.asarray(line)
    ops.relu(there[:-4], out=there[4:])
    np.testing.assert_array_equal(dpnp.asnumpy(there)[4:], np.maximum(line[:-4], 0))
    assert ops.square(there, out=there) is there


def test_memories_and_arrays_together() -> None:
    engine = Engine("sycl")
    x, y = Memory.from_numpy(X, engine=engine), dpnp.asarray(X)
    got = ops.add(x, y)
    assert isinstance(got, Memory)
    assert got.engine == engine
    assert (got.numpy() == X + X).all()
    agree(ops.add(y, x), X + X)
    shared = ops.relu(Memory(x.desc, engine, y))
    assert (shared.numpy() == np.maximum(X, 0)).all()


def test_attention() -> None:
    query, key, value = (drawn(2, 7, 8, seed=seed) for seed in (1, 2, 3))
    mask = drawn(7, 7) > 0
    for named in ({}, {"is_causal": True}, {"attn_mask": mask}):
        there = {name: dpnp.asarray(m) if m is mask else m for name, m in named.items()}
        got = untyped.attention(*map(dpnp.asarray, (query, key, value)), **there)
        agree(got, untyped.attention(query, key, value, **named))


def test_a_part_of_the_device() -> None:
    try:
        part = device().create_sub_devices(partition=[1])[0]
    except dpctl.SyclSubDeviceCreationError:
        pytest.skip("the device has no parts")
    own = dpctl.SyclQueue(part)
    x = dpnp.asarray(X, sycl_queue=own)
    got = ops.relu(x)
    assert got.sycl_queue == own
    agree(got, np.maximum(X, 0))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda x: untyped.add(x, X),
            r"y = 'ndarray': it is on the host, and x is on Engine\('sycl', 0\); .* dpnp",
        ),
        (
            lambda x: untyped.add(x, dpnp.asarray(X, sycl_queue=elsewhere())),
            r"y = 'dpnp_array': .* Engine\('sycl', 0, of another context\), and x .*\); copy",
        ),
        (
            lambda x: untyped.add(
                *(dpnp.asarray(X, sycl_queue=elsewhere()) for _ in range(2)),
            ),
            r"y = .*of another context\), and x is on .*, another one",
        ),
        (lambda x: untyped.matmul(x, Memory.from_numpy(MATRIX)), "y = 'Memory': it is on the host"),
        (lambda x: untyped.relu(x, out=np.empty_like(X)), "out = .*without out there is a new"),
        (lambda x: untyped.sum(x, dtype="bf16"), "x = 'dpnp_array': its library makes no bfloat16"),
    ],
)
def test_what_is_refused(call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(InvalidArguments, match=text):
        call(dpnp.asarray(X))
