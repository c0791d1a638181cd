"""Several requests at once: their threads, their memory, and those that are awaited."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Never

import numpy as np
import pytest

from dnnl import InvalidArguments, OutOfMemory, config, set_num_threads
from dnnl.framework import requests
from dnnl.framework.model import Model
from dnnl.framework.session import Session
from dnnl.graph.graph import Array
from dnnl.runtime import sharing
from dnnl.runtime.engines.cpu_launch import CpuQueue
from tests.forking import DONE, forked
from tests.framework.models import make_model, model_of, node, plans_of

ROOT = Path(__file__).resolve().parents[2]
RNG = np.random.default_rng(7)
SIZE = 64
WEIGHTS = [RNG.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(3)]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is POSIX")
LIMIT = 30.0
"""Seconds after which something that waits will not come any more."""


def network() -> Model:
    """Products and softmax, with an open batch."""
    nodes, value = [], "x"
    for place in range(len(WEIGHTS)):
        nodes.append(node("MatMul", [value, f"w{place}"], f"m{place}"))
        value = f"s{place}"
        nodes.append(node("Softmax", [f"m{place}"], value, axis=-1))
    weights = {f"w{place}": array for place, array in enumerate(WEIGHTS)}
    return model_of(make_model(nodes, {"x": ("n", SIZE)}, [value], weights))


def rows(count: int) -> Array:
    return RNG.standard_normal((count, SIZE)).astype(np.float32)


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def ended(thread: threading.Thread) -> bool:
    thread.join(LIMIT)
    return not thread.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@contextmanager
def running_elsewhere(
    session: Session, numbers: tuple[int, ...] = ()
) -> Iterator[Callable[[], Any]]:
    """Another thread has memory of the session, until the yielded function is called."""
    taken, stop = threading.Event(), threading.Event()

    def run() -> None:
        with session._binders.taken(numbers) as binder:
            binder.bound(numbers)
            taken.set()
            stop.wait()

    thread = started(run)
    try:
        assert taken.wait(LIMIT)
        yield stop.set
    finally:
        stop.set()
        assert ended(thread)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads of each execution."""
    found: list[int] = []
    submit = CpuQueue.submit

    def recorded(self: CpuQueue, executable: Any, arguments: Any, threads: int, *after: Any) -> Any:
        found.append(threads)
        return submit(self, executable, arguments, threads, *after)

    monkeypatch.setattr(CpuQueue, "submit", recorded)
    return found


def test_a_run_has_the_threads_that_it_asks_for_and_the_same_bits(used: list[int]) -> None:
    model, x = network(), rows(37)
    session = model.compile(batch=37)
    with config.override("oversubscribe", True):
        want = session(x, num_threads=1)
        for threads in (2, 3, None, 1, 2):
            for run in (session, model):
                used.clear()
                np.testing.assert_array_equal(run(x, num_threads=threads), want)
                assert set(used) == {threads or session.num_threads}
        np.testing.assert_array_equal(session.run({"x": x}, num_threads=3)["s2"], want)


def test_memory_is_one_for_all_numbers_of_threads() -> None:
    session = network().compile(batch=5)
    before = session.activation_nbytes
    for threads in (1, 2, None):
        session(rows(5), num_threads=threads)
    assert session.activation_nbytes == before


def test_a_number_of_threads_that_is_set_later_counts(used: list[int]) -> None:
    session = network().compile(batch=5)
    try:
        with config.override("oversubscribe", True):
            for threads in (3, 1):
                set_num_threads(threads)
                used.clear()
                session(rows(5))
                assert set(used) == {threads}
    finally:
        set_num_threads(None)


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, "2"])
def test_a_wrong_number_of_threads_is_refused(bad: Any) -> None:
    model = network()
    session = model.compile(batch=2)
    x = rows(2)
    calls: list[Callable[[], object]] = [
        lambda: session(x, num_threads=bad),
        lambda: session.run({"x": x}, num_threads=bad),
        lambda: model(x, num_threads=bad),
        lambda: asyncio.run(session.run_async(x, num_threads=bad)),
    ]
    for call in calls:
        with pytest.raises(InvalidArguments, match=r"num_threads = .*an integer >= 1"):
            call()


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_a_request_of_one_thread_makes_no_workers() -> None:
    code = """
import os
import numpy as np
from tests.framework.models import make_model, model_of, node
model = model_of(make_model([node("Softmax", ["x"], "y", axis=-1)], {"x": (64, 1000)}, ["y"]))
session = model.compile()
x = np.random.default_rng(1).standard_normal((64, 1000)).astype(np.float32)
before = len(os.listdir("/proc/self/task"))
made = []
for threads in (1, 2):
    session(x, num_threads=threads)
    made.append(len(os.listdir("/proc/self/task")) - before)
print(made)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "DNNL_OVERSUBSCRIBE": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[0, 1]"


def test_a_run_is_counted_as_long_as_it_takes() -> None:
    session = network().compile(batch=2)
    with running_elsewhere(session):
        assert sharing.requests() == 1
        with session._binders.taken(()):
            assert sharing.requests() == 2
        with pytest.raises(ZeroDivisionError), session._binders.taken(()):
            raise ZeroDivisionError
        assert sharing.requests() == 1
    assert sharing.requests() == 0


def test_awaited_runs_overlap_and_return_what_calls_do() -> None:
    model = network()
    session = model.compile(batch=3)
    xs = [rows(3) for _ in range(12)]

    async def main() -> list[Any]:
        calls = [run(x) for x in xs for run in (session.run_async, model.run_async)]
        return await asyncio.gather(*calls, session.run_async({"x": xs[0]}))

    *results, named = asyncio.run(main())
    for place, got in enumerate(results):
        np.testing.assert_array_equal(got, session(xs[place // 2]))
    np.testing.assert_array_equal(named, session(xs[0]))


def test_the_event_loop_goes_on_while_a_run_takes_place() -> None:
    session = network().compile(batch=2)
    one = session.activation_nbytes
    session = network().compile(batch=2, memory_budget=one)  # a run waits for the other
    x = rows(2)

    async def main(go_on: Callable[[], Any]) -> Any:
        task = asyncio.ensure_future(session.run_async(x))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not task.done()
        go_on()
        return await task

    with running_elsewhere(session) as go_on:
        got = asyncio.run(main(go_on))
    np.testing.assert_array_equal(got, session(x))


def test_a_run_that_is_cancelled_before_it_begins_does_not_take_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = network().compile(batch=2)
    monkeypatch.setattr(requests, "available_cpus", lambda: 1)
    monkeypatch.setattr(requests, "_executor", requests._Executor())
    go_on, begun = threading.Event(), list[int]()
    requests._executor.submit(go_on.wait)
    monkeypatch.setattr(Session, "run", lambda *_, **__: begun.append(1))

    async def main() -> None:
        task = asyncio.ensure_future(session.run_async(rows(2)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    go_on.set()
    requests._executor.submit(int).result(LIMIT)
    assert not begun


def test_awaited_runs_raise_what_runs_do() -> None:
    model = network()
    session = model.compile(batch=2)
    for wrong in (rows(3), rows(2).astype(np.float64), [[1.0]]):
        with pytest.raises(InvalidArguments) as direct:
            session(wrong)
        with pytest.raises(InvalidArguments) as awaited:
            asyncio.run(session.run_async(wrong))
        assert str(awaited.value) == str(direct.value)
    with pytest.raises(InvalidArguments, match="number of arrays"):
        asyncio.run(model.run_async(rows(2), rows(2)))


@needs_fork
def test_a_child_of_a_fork_awaits_runs_as_its_parent_does() -> None:
    session = network().compile(batch=2)
    x = rows(2)
    want = asyncio.run(session.run_async(x))

    def child() -> None:
        got = asyncio.run(session.run_async(x))
        np.testing.assert_array_equal(got, want)
        assert sharing.requests() == 0

    with running_elsewhere(session):
        assert forked(child) == DONE
    np.testing.assert_array_equal(asyncio.run(session.run_async(x)), want)


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, "1 GiB"])
def test_a_budget_that_makes_no_sense_is_refused(bad: Any) -> None:
    for set_budget in (
        lambda: network().compile(batch=2, memory_budget=bad),
        lambda: network().with_memory_budget(bad),
    ):
        with pytest.raises(InvalidArguments, match=r"memory_budget = .*a number of bytes"):
            set_budget()


def test_a_run_beyond_the_budget_is_refused_with_numbers() -> None:
    one = network().compile(batch=100).activation_nbytes
    with pytest.raises(OutOfMemory, match=f"needs {one} bytes .*memory_budget = {one - 1} bytes"):
        network().compile(batch=100, memory_budget=one - 1)
    model = network().with_memory_budget(one)
    model(rows(10))
    for _ in range(2):
        with pytest.raises(OutOfMemory, match=f"memory_budget = {one} bytes"):
            model(rows(1000))
    assert model(rows(50)).shape == (50, SIZE)


def test_runs_wait_for_memory_and_stay_within_the_budget() -> None:
    one = network().compile(batch=9).activation_nbytes
    session = network().compile(batch=9, memory_budget=2 * one)
    xs = [rows(9) for _ in range(6)]
    want = [session(x) for x in xs]
    most, wrong = [0], list[int]()

    def work(place: int) -> None:
        for _ in range(30):
            if not (session(xs[place]) == want[place]).all():
                wrong.append(place)
            most.append(session.activation_nbytes)

    threads = [started(lambda place=place: work(place)) for place in range(6)]  # type: ignore[misc]
    for thread in threads:
        assert ended(thread)
    assert not wrong
    assert one <= max(most) <= 2 * one
    with running_elsewhere(session), running_elsewhere(session) as go_on:
        third = started(lambda: session(xs[0]))
        third.join(0.05)
        assert third.is_alive()
        go_on()
        assert ended(third)


def test_sizes_of_a_called_model_share_its_budget() -> None:
    large = network().compile(batch=400).activation_nbytes
    model = network().with_memory_budget(large + large // 4)
    results = {count: model(rows(count)) for count in (400, 3, 100, 350, 400, 20)}
    assert {count: result.shape[0] for count, result in results.items()} == {
        count: count for count in results
    }
    sessions = plans_of(model).sessions
    assert len(sessions) > 1
    assert sum(session.activation_nbytes for session in sessions) <= large + large // 4


def test_memory_of_idle_runs_is_given_up_for_others() -> None:
    small, large = (network().compile(batch=n).activation_nbytes for n in (100, 400))
    model = network().with_memory_budget(large + large // 8)  # open sizes are rounded up
    model(rows(100))  # a session of its own
    model(rows(400))  # one for open sizes
    (first,) = plans_of(model)._special.sessions
    assert first.activation_nbytes == 0
    model(rows(100))
    gc.collect()
    assert first.activation_nbytes == small


def test_runs_get_memory_in_the_order_in_which_they_ask() -> None:
    one = network().compile(batch=4).activation_nbytes
    session = network().compile(batch=4, memory_budget=one)
    budget = session._binders._budget
    assert budget is not None
    order: list[int] = []

    def work(place: int) -> None:
        with session._binders.taken(()):
            order.append(place)

    threads = []
    with running_elsewhere(session):
        for place in range(5):
            threads.append(started(lambda place=place: work(place)))  # type: ignore[misc]
            wait_until(lambda: len(budget._waiting) == place + 1)  # noqa: B023 - called here
    for thread in threads:
        assert ended(thread)
    assert order == list(range(5))


def test_a_run_within_a_run_does_not_wait_for_it() -> None:
    one = network().compile(batch=4).activation_nbytes
    tight = network().compile(batch=4, memory_budget=2 * one - 1)
    with tight._binders.taken(()), pytest.raises(OutOfMemory, match=f"has {one} bytes"):
        tight(rows(4))
    wide = network().compile(batch=4, memory_budget=2 * one)
    with wide._binders.taken(()), running_elsewhere(wide) as go_on:
        waiting = started(lambda: wide(rows(4)))  # for both of them
        budget = wide._binders._budget
        assert budget is not None
        wait_until(lambda: len(budget._waiting) == 1)
        threading.Timer(0.05, go_on).start()
        wide(rows(4))  # before the one that waits, which may need the memory of this thread
    assert ended(waiting)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="timers are POSIX")
def test_an_interrupt_ends_a_run_that_waits() -> None:
    one = network().compile(batch=4).activation_nbytes
    session = network().compile(batch=4, memory_budget=one)

    def interrupt(_number: int, _frame: FrameType | None) -> Never:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with running_elsewhere(session):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                session(rows(4))
    finally:
        signal.signal(signal.SIGALRM, before)
    x = rows(4)
    np.testing.assert_array_equal(session(x), session(x))
    assert sharing.requests() == 0


@needs_fork
def test_a_child_of_a_fork_does_not_wait_for_runs_of_its_parent() -> None:
    one = network().compile(batch=4).activation_nbytes
    session = network().compile(batch=4, memory_budget=one)
    x = rows(4)
    with running_elsewhere(session):
        waiting = started(lambda: session(x))
        budget = session._binders._budget
        assert budget is not None
        wait_until(lambda: len(budget._waiting) == 1)
        assert forked(lambda: session(x)) == DONE
    assert ended(waiting)


def test_changed_and_pickled_models_have_the_budget() -> None:
    model = network().with_memory_budget(1 << 20)
    for made in (model.with_batch(3), pickle.loads(pickle.dumps(model))):
        assert made.memory_budget == 1 << 20
    with pytest.raises(OutOfMemory, match="memory_budget = 1048576 bytes"):
        model.compile(batch=1 << 16)
    assert model.with_memory_budget(None).compile(batch=3)._binders._budget is None
