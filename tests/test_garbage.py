"""The collector of garbage pauses and goes on."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from dnnl.codegen import isa
from dnnl.codegen.compile import jit
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Kernel, Recipe
from dnnl.codegen.isa import Isa
from dnnl.garbage import Pause
from tests.forking import DONE, forked


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    yield
    gc.enable()


def test_nothing_is_collected_within_the_outermost_pause() -> None:
    with Pause():
        with Pause():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_a_pause() -> None:
    with pytest.raises(ValueError, match="mine"), Pause():
        raise ValueError("mine")
    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_off() -> None:
    gc.disable()
    with Pause():
        pass
    assert not gc.isenabled()


def collects() -> None:
    assert gc.isenabled()


def test_pauses_of_two_threads() -> None:
    """And of a child of a fork, where one of them is not."""
    inside, over = threading.Event(), threading.Event()

    def work() -> None:
        with Pause():
            inside.set()
            over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    with Pause():
        pass
    assert not gc.isenabled()
    assert forked(collects) == DONE
    over.set()
    thread.join()
    assert gc.isenabled()


def test_kernels_are_written_within_a_pause() -> None:
    seen = []

    def build(_: object, target: Isa) -> Kernel:
        seen.append(gc.isenabled())
        return Kernel(Module("nothing", target), (), ())

    jit.written(Recipe(None, isa.ROWS[0], build))
    assert seen == [False]
    assert gc.isenabled()
