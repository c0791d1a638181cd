"""SIGINT waits for the end of what it would break."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from dnnl.interrupts import Deferred


@pytest.fixture(autouse=True)
def _as_python_has_it() -> Iterator[None]:
    """A shell that starts the tests in the background has them ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_it_is_raised_behind_the_end() -> None:
    reached: list[str] = []

    def work() -> None:
        with Deferred():
            with Deferred():
                interrupt()
                reached.append("inner")
            reached.append("outer")
        reached.append("behind")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_an_interrupt_nothing_happens() -> None:
    with Deferred():
        pass
    with pytest.raises(ValueError, match="mine"), Deferred():
        raise ValueError("mine")
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_handlers_of_users_are_called_once() -> None:
    called: list[int] = []

    def mine(number: int, _: FrameType | None) -> None:
        called.append(number)

    before = signal.signal(signal.SIGINT, mine)
    try:
        with Deferred():
            interrupt()
            interrupt()
            assert not called
        assert called == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_change_nothing() -> None:
    seen: list[object] = []

    def work() -> None:
        with Deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
