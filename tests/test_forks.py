"""Forks while other threads are at work: the child is as able as its parent."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable

import numpy as np
import pytest

from dnnl import (
    Arg,
    EltwiseDesc,
    Engine,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    Stream,
    config,
    forks,
)
from tests.forking import DONE, forked

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is POSIX")
ENGINE = Engine("cpu")
_FORKS = 20
_numbers = itertools.count(1)


def relu(size: int) -> Primitive:
    desc = MemoryDesc((size,), "f32", "a")
    forward = EltwiseDesc.forward("forward_inference", "eltwise_relu", desc, desc)
    return Primitive(PrimitiveDesc(forward, ENGINE))


def run(primitive: Primitive, seed: int) -> None:
    """Execute on two threads and check the values."""
    desc = primitive.pd.src_desc
    array = np.random.default_rng(seed).standard_normal(desc.dims, np.float32)
    src, dst = Memory.from_numpy(array, engine=ENGINE), Memory(desc, ENGINE)
    primitive.execute(Stream(ENGINE, 2), {Arg.SRC: src, Arg.DST: dst})
    assert np.array_equal(dst.numpy(), np.maximum(array, 0))


def child() -> int:
    """The exit code of a child that compiles and executes."""
    return forked(lambda: run(relu(100_000 + os.getpid()), os.getpid()), limit=30)


def test_children_of_a_process_whose_threads_compile_and_execute() -> None:
    stop = threading.Event()
    errors: list[BaseException] = []

    def work(make: Callable[[], Primitive]) -> None:
        try:
            while not stop.is_set():
                run(make(), 1)
        except BaseException as error:
            errors.append(error)

    known, anew = relu(50_000), lambda: relu(next(_numbers))
    makers = (anew, anew, lambda: known, lambda: Primitive(known.pd))
    threads = [threading.Thread(target=work, args=(make,)) for make in makers]
    run(known, 1)  # a fork does not wait for NumPy's imports, which come with the first use
    with config.override("cache_limit", 0):  # else nothing would be compiled the second time
        for thread in threads:
            thread.start()
        try:
            assert [child() for _ in range(_FORKS)] == [DONE] * _FORKS
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert not errors


def test_a_lock_is_free_in_the_child() -> None:
    lock = forks.Lock()
    taken, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with lock.own:
            taken.set()
            go_on.wait(30)

    def take() -> None:
        with lock.own:
            pass

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(10)
    assert forked(take, limit=10) == DONE
    go_on.set()
    thread.join()
