"""What the function of a phase is given besides its items: the thread's number and its scratch."""

from __future__ import annotations

import sys
import tempfile
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from llvmlite import ir
from numpy.typing import NDArray

from dnnl import config
from dnnl.codegen.compile import jit
from dnnl.codegen.ir.builder import I64, Module, i64
from dnnl.codegen.ir.kernel import Kernel, Recipe
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.backend import Executable
from dnnl.runtime.engine import Engine
from dnnl.runtime.engines.cpu_launch import LoadedProgram
from dnnl.runtime.image import Image, Phase
from tests.launch import bind, launch

ENGINE = Engine("cpu")
WORDS = 1000


@dataclass(frozen=True)
class _Conf:
    """Each of ``items`` fills ``words`` of scratch with its number, then adds them up."""

    items: int
    words: int


def _phase(module: Module, symbol: str, items: int, words: int) -> Phase:
    phase = PhaseFunction(module, symbol, (0, 1))
    e, b = phase.e, phase.e.b
    own = phase.scratch(8 * words)
    sums, numbers = phase.arguments.values()

    def item(number: ir.Value) -> None:
        total = e.element(sums, number, I64)

        def write(word: ir.Value) -> None:
            b.store(number, e.element(own, word, I64))

        def add(word: ir.Value) -> None:
            value = b.load(e.element(own, word, I64), typ=I64)
            b.store(b.add(b.load(total, typ=I64), value), total)

        e.loop(i64(0), i64(words), write)
        e.loop(i64(0), i64(words), add)
        b.store(phase.thread, e.element(numbers, number, I64))

    phase.each_item(items, item)
    return phase.end(items)


def _build(conf: _Conf, isa: Isa) -> Kernel:
    module = Module("scratch", isa)
    sizes = (("few", 3), ("many", conf.words))
    phases = tuple(_phase(module, symbol, conf.items, words) for symbol, words in sizes)
    return Kernel(module, phases, (0, 1))


def _image(items: int, words: int = WORDS) -> Image:
    with tempfile.TemporaryDirectory() as folder, config.override("cache_dir", folder):
        recipe = Recipe(_Conf(items, words), select_isa(ENGINE), _build)
        image, _ = jit.image(recipe)
        again, from_disk = jit.image(recipe)
    assert from_disk
    assert again == image
    return image


def _check(sums: NDArray[np.int64], times: int = 1) -> None:
    items = len(sums)
    np.testing.assert_array_equal(sums, np.arange(items) * (3 + WORDS) * times)


def _arrays(items: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.zeros(items, np.int64), np.full(items, -1, np.int64)


def test_an_image_knows_how_much_it_takes() -> None:
    image = _image(4)
    assert [phase.scratch for phase in image.phases] == [64, 8000]
    assert image.scratch == 8000
    assert Image("cpu", b"", (), ()).scratch == 0


@pytest.mark.parametrize("threads", [1, 2, 3, 1000])
@pytest.mark.parametrize("how", ["launch", "bind"])
def test_each_thread_has_its_own(how: str, threads: int) -> None:
    executable = ENGINE.load(_image(50))
    for _ in range(5):
        sums, numbers = _arrays(50)
        pointers = (sums.ctypes.data, numbers.ctypes.data)
        if how == "bind":
            bind(executable, pointers, threads)()
        else:
            launch(executable, pointers, threads)
        _check(sums)
        assert 0 <= numbers.min() <= numbers.max() < min(threads, 50)


def test_callers_at_the_same_time_have_their_own() -> None:
    executable: Executable = ENGINE.load(_image(20))
    failures: list[object] = []

    def work() -> None:
        for threads in (1, 2, 3) * 10:
            sums, numbers = _arrays(20)
            launch(executable, (sums.ctypes.data, numbers.ctypes.data), threads)
            if (sums != np.arange(20) * (3 + WORDS)).any():
                failures.append(sums)

    callers = [threading.Thread(target=work) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures


def test_an_execution_in_the_middle_of_another_has_its_own() -> None:
    queue = ENGINE.make_queue(in_order=True)
    seen: list[int] = []

    def run(block: bytes) -> None:
        seen.append(int.from_bytes(block[16:24], sys.byteorder))
        if len(seen) == 1:  # as a finalizer might
            queue.submit(program, (), 1)

    program = LoadedProgram([(0, 1)], None, 0, run, scratch=64)
    queue.submit(program, (), 1)
    assert seen[0] != seen[1]
    queue.submit(program, (), 1)
    assert seen[2] in seen[:2]


@pytest.mark.parametrize("threads", [1, 3])
def test_joined_executables_share_scratch(threads: int) -> None:
    queue = ENGINE.make_queue(in_order=True)
    executable = queue.joined([ENGINE.load(_image(20)), ENGINE.load(_image(50))])
    assert isinstance(executable, LoadedProgram)
    for _ in range(3):
        few, many = _arrays(20), _arrays(50)
        arguments = [own.ctypes.data for own in few] + [0] + [own.ctypes.data for own in many]
        launch(executable, arguments, threads)
        _check(few[0])
        _check(many[0])
