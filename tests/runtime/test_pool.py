"""The thread pool: every item once, nobody waits for nobody, and a fork does no harm."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from numpy.typing import NDArray

from dnnl.errors import Error
from dnnl.runtime import sharing, teams
from dnnl.runtime.backend import Executable
from dnnl.runtime.engine import Engine
from dnnl.runtime.engines import cpu, cpu_pool
from dnnl.runtime.engines.cpu_launch import LoadedProgram, entry_function
from dnnl.runtime.engines.cpu_pool import NativePool
from dnnl.runtime.engines.cpu_serial import SerialPool
from tests.forking import DONE, forked
from tests.launch import bind, launch
from tests.runtime import kernels

ROOT = Path(__file__).resolve().parents[2]
needs_native = pytest.mark.skipif(not NativePool.supported(), reason="the native pool is Linux's")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is POSIX")


@pytest.fixture(autouse=True)
def _without_a_team() -> Iterator[None]:
    """Threads of PyTorch, which other tests may have imported, are not the pool's."""
    before = teams._teams._team
    teams.use(teams.Team(0, 0, 0))
    yield
    teams.use(before or teams.Team(0, 0, 0))


def load(*phases: tuple[str, int]) -> Executable:
    return Engine("cpu").load(kernels.image(*phases))


def arrays(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[int, int]]:
    """Zeroed arguments a and b of ``count`` items, and their addresses."""
    a, b = np.zeros(max(count, 2), np.int64), np.zeros(max(count, 2), np.int64)
    return a, b, (a.ctypes.data, b.ctypes.data)


def test_each_item_is_done_exactly_once() -> None:
    chance = random.Random(1)
    for _ in range(100):
        count, threads, runs = chance.randrange(200), chance.randint(1, 4), chance.randint(1, 20)
        executable = load(("visit", count))
        a, _, pointers = arrays(200)
        for _ in range(runs):
            launch(executable, pointers, threads)
            if chance.random() < 0.02:
                time.sleep(0.002)  # the workers fall asleep
        np.testing.assert_array_equal(a, np.where(np.arange(200) < count, runs, 0))


def test_a_binding_runs_again_and_outlives_its_executable() -> None:
    a, _, pointers = arrays(10)
    run = bind(load(("visit", 10)), pointers, 3)
    for _ in range(5):
        run()
    assert a.tolist() == [5] * 10


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_a_phase_starts_when_the_one_before_is_complete(threads: int) -> None:
    count = 64
    executable = load(("arrive", count), ("observe", count), ("arrive", 1), ("observe", 1))
    for _ in range(200):
        _, b, pointers = arrays(count)
        launch(executable, pointers, threads)
        assert b.tolist() == [count + 1] + [count] * (count - 1)


@needs_native
def test_workers_run_at_the_same_time_as_the_caller() -> None:
    a, b, pointers = arrays(2)
    executable = load(("meet", 2))
    for pause in (0.0, 0.01):  # workers that spin, and that sleep
        time.sleep(pause)
        a[:] = 0, 2
        b[:] = 0
        launch(executable, pointers, 2)
        assert b.all()
        assert len(set(b.tolist())) == 2


@needs_native
def test_the_caller_takes_over_what_a_late_worker_has_not_begun() -> None:
    executable = load(("whoami", 2))
    alone = 0
    for _ in range(50):
        _, b, pointers = arrays(2)
        time.sleep(0.001)  # the worker sleeps, and needs longer to wake than the work takes
        launch(executable, pointers, 2)
        alone += b.tolist() == [threading.get_native_id()] * 2
    assert alone > 0


@pytest.mark.parametrize(("count", "threads"), [(1, 4), (4, 1), (0, 4)])
def test_one_item_or_one_thread_stays_on_the_calling_thread(count: int, threads: int) -> None:
    _, b, pointers = arrays(count)
    launch(load(("whoami", count)), pointers, threads)
    assert set(b[:count].tolist()) <= {threading.get_native_id()}


@needs_native
def test_no_more_threads_take_part_than_asked_for() -> None:
    executable = load(("whoami", 64))
    launch(executable, arrays(64)[2], 4)
    seen = set()
    for _ in range(500):
        _, b, pointers = arrays(64)
        launch(executable, pointers, 2)
        seen |= set(b.tolist())
    assert len(seen) <= 2


@needs_native
def test_each_thread_begins_with_a_range_of_its_own() -> None:
    a, b, pointers = arrays(11)
    executable = load(("meet", 11))
    for _ in range(20):
        a[:2] = 0, 3  # nobody goes on before three threads have begun an item
        launch(executable, pointers, 3)
        assert b.all()
        assert len({b[0], b[4], b[8]}) == 3  # the ranges begin with 4, 4 and 3 items


@needs_native
def test_threads_have_numbers_of_their_own() -> None:
    executable = load(("number", 11))
    for pause in (0.0, 0.01):  # workers that spin, and that sleep
        for _ in range(20):
            time.sleep(pause)
            a, b, pointers = arrays(11)
            a[1] = 3  # nobody goes on before three threads have begun an item
            launch(executable, pointers, 3)
            assert set(b.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(("count", "threads"), [(1, 4), (4, 1)])
def test_the_only_thread_is_number_0(count: int, threads: int) -> None:
    _, b, pointers = arrays(count)
    b[:] = -1
    launch(load(("number", count)), pointers, threads)
    assert set(b[:count].tolist()) == {0}


@needs_native
def test_the_range_of_a_thread_that_is_held_up_is_done_by_the_others() -> None:
    a, b, pointers = arrays(16)
    executable = load(("stall", 16))
    for _ in range(20):
        a[:2], b[0] = (0, 15), 0
        launch(executable, pointers, 2)
        assert b[0] == 1


@needs_native
def test_workers_are_made_when_needed_and_never_more() -> None:
    code = """
import os
from dnnl.runtime.engine import Engine
from tests.launch import launch
from tests.runtime.test_pool import arrays, load
def workers(): return len(os.listdir("/proc/self/task")) - before
before = len(os.listdir("/proc/self/task"))
made = []
for count, threads in ((8, 1), (1, 4), (8, 2), (8, 2), (2, 4), (8, 4), (8, 3)):
    launch(load(("visit", count)), arrays(8)[2], threads)
    made.append(workers())
print(made)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[0, 0, 1, 1, 1, 3, 3]"


@needs_native
def test_workers_leave_signals_to_other_threads_but_not_their_own_faults() -> None:
    launch(load(("visit", 8)), arrays(8)[2], 2)
    blocked = []
    for task in Path("/proc/self/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        blocked.append(int(fields["SigBlk"], 16))
    interrupt, fault = 1 << 1, 1 << 10
    assert any(mask & interrupt and not mask & fault for mask in blocked)


def test_callers_of_many_threads_do_not_disturb_each_other() -> None:
    def work(seed: int) -> None:
        chance = random.Random(seed)
        a, _, pointers = arrays(50)
        executable = load(("visit", 50), ("visit", 7))
        for _ in range(2000):
            launch(executable, pointers, chance.randint(1, 4))
        right.append(a[:7].tolist() == [4000] * 7 and a[7:].tolist() == [2000] * 43)

    right: list[bool] = []
    callers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert right == [True] * 4


@contextmanager
def requests_in_other_threads(count: int) -> Iterator[None]:
    """So many other threads have a request."""
    inside, stop = threading.Barrier(count + 1), threading.Event()

    def request() -> None:
        sharing.enter()
        inside.wait()
        stop.wait()
        sharing.leave()

    threads = [threading.Thread(target=request) for _ in range(count)]
    for thread in threads:
        thread.start()
    inside.wait()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def met(items: int, threads: int) -> bool:
    """Whether so many items, one for each thread that is wanted, are in work at the same time."""
    a, b, pointers = arrays(items)
    a[1] = items
    launch(load(("meet", items)), pointers, threads)
    return bool(b[:items].all())


@needs_native
def test_regions_of_two_callers_run_at_the_same_time() -> None:
    shared = np.array([0, 4], np.int64)  # nobody goes on before four threads have begun an item
    outcomes = [np.zeros(2, np.int64) for _ in range(2)]
    executable = load(("meet", 2))

    def work(b: NDArray[np.int64]) -> None:
        launch(executable, (shared.ctypes.data, b.ctypes.data), 4)

    callers = [threading.Thread(target=work, args=(b,)) for b in outcomes]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len({*outcomes[0].tolist(), *outcomes[1].tolist()} - {0}) == 4


@needs_native
@pytest.mark.parametrize(("cpus", "requests", "threads"), [(2, 2, 1), (4, 2, 2), (2, 3, 1)])
def test_requests_divide_the_threads(
    cpus: int, requests: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing._cells, "cpus", cpus)
    executable = load(("whoami", 64))
    sharing.enter()
    try:
        assert met(cpus, cpus)
        with requests_in_other_threads(requests - 1):
            assert sharing.requests() == requests
            assert met(threads, cpus)
            for _ in range(50):
                _, b, pointers = arrays(64)
                launch(executable, pointers, cpus)
                assert len(set(b.tolist())) <= threads
        assert met(cpus, cpus)  # the others have ended
    finally:
        sharing.leave()
    assert sharing.requests() == 0


@needs_native
def test_no_workers_are_lost_or_made_too_many_when_many_call() -> None:
    def work() -> None:
        for _ in range(500):
            launch(executable, pointers, 4)

    executable, (_, _, pointers) = load(("visit", 40)), arrays(40)
    assert met(4, 4)
    before = len(os.listdir("/proc/self/task"))
    callers = [threading.Thread(target=work) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for _ in range(20):
        assert met(4, 4)
    assert len(os.listdir("/proc/self/task")) <= before


@needs_fork
@needs_native
def test_a_child_has_all_threads_whatever_its_parent_was_doing() -> None:
    stop, executable = threading.Event(), load(("visit", 40))

    def keep_busy() -> None:
        _, _, pointers = arrays(40)
        sharing.enter()
        while not stop.is_set():
            launch(executable, pointers, 4)
        sharing.leave()

    def child() -> None:
        assert sharing.requests() == 0
        assert met(4, 4)

    callers = [threading.Thread(target=keep_busy) for _ in range(2)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(10):
            assert forked(child) == DONE
    finally:
        stop.set()
        for caller in callers:
            caller.join()


def test_a_region_within_a_region_runs_serially() -> None:
    _, run = cpu._pool()
    inner_a, inner_b, inner = arrays(30)
    words = ctypes.c_uint64 * 2
    block = np.array([0, 4, 0, *inner], np.uint64)
    executable = load(("whoami", 30))
    assert isinstance(executable, LoadedProgram)
    block[0] = executable.program
    b = words(ctypes.cast(run, ctypes.c_void_p).value or 0, block.ctypes.data)  # type: ignore[arg-type]
    a = np.zeros(4, np.int64)
    launch(load(("nest", 4)), (a.ctypes.data, ctypes.addressof(b)), 4)
    assert a.tolist() == [1] * 4
    assert inner_a.tolist() == [4] * 30
    assert len(set(inner_b.tolist())) <= 4


@needs_fork
def test_a_forked_child_runs_and_so_does_its_parent() -> None:
    executable = load(("visit", 40))
    a, _, pointers = arrays(40)
    launch(executable, pointers, 3)
    bound = bind(executable, pointers, 2)

    def child() -> None:
        assert forked(bound) == DONE
        for threads in (1, 2, 4):
            launch(executable, pointers, threads)
        launch(load(("visit", 20), ("visit", 20)), pointers, 2)
        bound()
        assert a.tolist() == [7] * 20 + [5] * 20

    assert forked(child) == DONE
    bound()
    assert a.tolist() == [2] * 40


@needs_fork
def test_a_fork_in_the_middle_of_another_threads_region_does_no_harm() -> None:
    a, _, pointers = arrays(40)
    run = bind(load(("visit", 40)), pointers, 2)
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            run()

    busy = threading.Thread(target=keep_busy)
    busy.start()
    try:
        for _ in range(20):
            b, _, others = arrays(40)
            executable = load(("visit", 40))
            assert forked(lambda: launch(executable, others, 2)) == DONE  # noqa: B023 - called here
            assert b.sum() == 0
    finally:
        stop.set()
        busy.join()
    assert a.min() == a.max()


def test_the_serial_pool_does_the_same_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    run = entry_function(SerialPool().entry())
    monkeypatch.setattr(cpu, "_pool", lambda: ("seq", run))
    a, b, pointers = arrays(33)
    launch(load(("whoami", 33), ("visit", 0), ("visit", 5)), pointers, 4)
    assert a.tolist() == [2] * 5 + [1] * 28
    assert set(b.tolist()) == {threading.get_native_id()}


class _Broken(SerialPool):
    name = "broken"

    def entry(self) -> int:
        raise Error("no such symbol")


def test_a_pool_that_does_not_load_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "POOLS", (_Broken, SerialPool))
    assert cpu._pool.__wrapped__()[0] == "seq"
    monkeypatch.setattr(cpu, "POOLS", (_Broken,))
    with pytest.raises(Error, match="no thread pool works on this system: broken: no such symbol"):
        cpu._pool.__wrapped__()


@pytest.mark.parametrize("arch", sorted(cpu_pool.MACHINES))
def test_the_native_pool_assembles_for_every_machine_that_it_knows(arch: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(f"{arch}-unknown-linux-gnu")
    module = llvm.parse_assembly(cpu_pool.pool_ir(cpu_pool.MACHINES[arch]))
    module.verify()
    assert target.create_target_machine(reloc="pic").emit_object(module)
