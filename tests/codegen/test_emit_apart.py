"""Machine code from other processes: what is sent, and what becomes of the processes."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from dnnl.codegen.compile import emit_apart

TRIPLE = "spirv64-unknown-unknown"
POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process writes one module here")


def entry_points(count: int) -> str:
    """A module with some entry points, each of some 200 bytes."""
    return "\n".join(
        f"define spir_kernel void @some_entry_point_{n}(ptr addrspace(1) %to) {{\n"
        f"  store i32 {n}, ptr addrspace(1) %to, align 4\n  ret void\n}}"
        for n in range(count)
    )


def written(count: int) -> int:
    text = emit_apart.run(entry_points(count), TRIPLE, "", "", text=True).decode()
    return text.count("OpEntryPoint")


@pytest.fixture(autouse=True)
def no_writers() -> None:
    emit_apart._writers.close()


@pytest.mark.parametrize("count", [1, 3000])
def test_a_module_may_be_longer_than_a_pipe(count: int) -> None:
    assert written(count) == count


@POSIX
def test_one_process_serves_all_modules_of_a_thread() -> None:
    numbers = set()
    for count in (1, 2, 3):
        assert written(count) == count
        (writer,) = emit_apart._writers._idle
        numbers.add(writer._process.pid)
    assert len(numbers) == 1


def test_threads_have_a_process_each() -> None:
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(written, range(1, 20))) == list(range(1, 20))
    assert len(emit_apart._writers._idle) <= 4


@POSIX
def test_a_process_that_ended_is_replaced() -> None:
    assert written(2) == 2
    (writer,) = emit_apart._writers._idle
    os.kill(writer._process.pid, signal.SIGKILL)
    writer._process.wait()
    assert written(2) == 2


@POSIX
def test_a_child_of_a_fork_has_processes_of_its_own() -> None:
    assert written(2) == 2
    child = os.fork()
    if child == 0:
        os._exit(0 if written(3) == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert written(2) == 2


@POSIX
def test_an_interrupt_ends_the_process_that_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(2) == 2
    (writer,) = emit_apart._writers._idle

    def interrupted(request: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        written(2)
    assert emit_apart._writers._idle == []
    assert writer._process.wait(10) == 0
