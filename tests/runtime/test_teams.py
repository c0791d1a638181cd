"""Threads of an OpenMP runtime in place of the pool's own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dnnl.runtime import sharing, teams
from dnnl.runtime.teams import Team
from tests.forking import DONE, forked
from tests.launch import launch
from tests.runtime.test_pool import arrays, load, needs_fork, needs_native

pytestmark = needs_native

NONE = Team(0, 0, 0)
_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Runtime:
    """A team of Python threads: ``size`` of them by its own account, of whom ``there`` come."""

    def __init__(self) -> None:
        self.size, self.there = 2, 2
        self.sizes: list[int] = []
        self._own = threading.local()
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        number = ctypes.CFUNCTYPE(ctypes.c_int)
        self._functions = run(self._run), number(lambda: self.size), number(self._number)

    @property
    def team(self) -> Team:
        """Its functions."""
        found = (ctypes.cast(own, ctypes.c_void_p).value or 0 for own in self._functions)
        return Team(*found)

    def _number(self) -> int:
        return int(self._own.number)

    def _run(self, function: int, data: int, size: int, _: int) -> None:
        self.sizes.append(size)

        def member(number: int) -> None:
            self._own.number = number
            _FUNCTION(function)(data)

        others = [threading.Thread(target=member, args=(n,)) for n in range(self.there - 1, 0, -1)]
        for thread in others:
            thread.start()
        member(0)
        for thread in others:
            thread.join()


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """The team of this process, which has no other one meanwhile."""
    before, made = teams._teams._team, Runtime()
    teams.use(made.team)
    yield made
    teams.use(before or NONE)


@pytest.mark.parametrize("there", [1, 2, 3])
@pytest.mark.parametrize("count", [2, 3, 7, 200])
def test_members_do_each_item_once(runtime: Runtime, count: int, there: int) -> None:
    runtime.size, runtime.there = 3, there
    executable = load(("visit", count), ("whoami", 1))
    a, _, pointers = arrays(count)
    launch(executable, pointers, 3)
    assert a[:count].tolist() == [2] + [1] * (count - 1)
    assert runtime.sizes == [3]  # one item needs nobody


def test_members_run_at_the_same_time(runtime: Runtime) -> None:
    a, b, pointers = arrays(2)
    a[:] = 0, 2
    launch(load(("meet", 2)), pointers, 2)
    assert b.all()
    assert len(set(b.tolist())) == 2


@pytest.mark.parametrize("threads", [1, 3])
def test_other_numbers_of_threads_are_the_pools(runtime: Runtime, threads: int) -> None:
    _, b, pointers = arrays(16)
    launch(load(("whoami", 16)), pointers, threads)
    assert b.all()
    assert not runtime.sizes


def test_other_threads_have_the_pool(runtime: Runtime) -> None:
    _, b, pointers = arrays(16)
    thread = threading.Thread(target=launch, args=(load(("whoami", 16)), pointers, 2))
    thread.start()
    thread.join()
    assert b.all()
    assert not runtime.sizes


def test_several_requests_have_the_pool(runtime: Runtime) -> None:
    """A team is as large as the cpus, which they divide."""
    _, b, pointers = arrays(16)
    other, entered, end = threading.Thread(), threading.Event(), threading.Event()

    def request() -> None:
        sharing.enter()
        entered.set()
        end.wait()
        sharing.leave()

    other = threading.Thread(target=request)
    other.start()
    entered.wait()
    sharing.enter()
    launch(load(("whoami", 16)), pointers, 2)
    sharing.leave()
    end.set()
    other.join()
    assert b.all()
    assert not runtime.sizes


@pytest.mark.parametrize("count", [2, 3, 5])
def test_members_have_scratch_of_their_own(runtime: Runtime, count: int) -> None:
    """There is scratch for as many threads as items, with which numbers of threads agree."""
    runtime.size = runtime.there = 4
    executable = load(("number", count))
    for _ in range(20):
        _, b, pointers = arrays(count)
        launch(executable, pointers, 4)
        assert set(b[:count].tolist()) <= set(range(min(count, 4)))


@needs_fork
@pytest.mark.parametrize("order", ["the pool", "the team"])
def test_a_child_of_a_fork_finds_no_team_later(runtime: Runtime, order: str) -> None:
    """Neither by the pool, whose first execution is the child's, nor by the first tensor."""

    def child() -> None:
        found = list[Team]()
        teams.expect(found.append)
        if order == "the team":
            teams.use(runtime.team)
        assert not found

    assert forked(child) == DONE


@needs_fork
def test_a_child_of_a_fork_has_no_team(runtime: Runtime) -> None:
    executable = load(("whoami", 16))
    _, b, pointers = arrays(16)
    launch(executable, pointers, 2)
    assert len(runtime.sizes) == 1

    def child() -> None:
        b[:] = 0
        launch(executable, pointers, 2)
        assert b.all()
        assert len(runtime.sizes) == 1

    assert forked(child) == DONE


def test_threads_that_sleep_are_no_team(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    assert teams.team_of(library) is not None
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    assert teams.team_of(library) is None


_THREADS = """
import os
import torch
torch.set_num_threads(2)
x = torch.randn(512, 512)
x @ x
count = lambda: len(os.listdir("/proc/self/task"))
before = count()
from dnnl import ops, set_num_threads
set_num_threads(2)
import dnnl.torch
for _ in range(3):
    assert torch.allclose({call}, torch.relu(x))
print(count() - before)
"""


@pytest.mark.parametrize("call", ["ops.relu(x)", "dnnl.torch.relu(x)"])
@pytest.mark.parametrize(("policy", "more"), [("", "0"), ("passive", "1")])
def test_pytorchs_threads_are_used(call: str, policy: str, more: str) -> None:
    pytest.importorskip("torch")
    environment = {**os.environ, "OMP_WAIT_POLICY": policy, "DNNL_OVERSUBSCRIBE": "1"}
    environment |= {"OMP_NUM_THREADS": "2", "DNNL_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", _THREADS.format(call=call)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == more
