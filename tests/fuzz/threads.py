"""Threads that change under way, and signals: results stay the same bits, the library usable.

A case is a list of steps: ``set:3`` sets the number of threads, ``run:2`` executes on a stream of
so many, ``together:4`` executes from so many threads of Python at once, on streams of different
sizes, ``build:3`` compiles new kernels from so many, ``interrupt:20`` sends SIGINT after so many ms
of compiling and executing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep

from hypothesis import strategies as st

import dnnl
from tests.fuzz.kind import PASSED, Kind, Outcome, failed
from tests.fuzz.work import Work, descriptions, fresh_size

_SIZE = 1024
_EACH = 20  # executions of a thread
_PATIENCE = 20.0  # seconds in which a signal must have been seen

_AGAIN = 0.2  # seconds between two signals


def _cases() -> st.SearchStrategy[str]:
    threads = st.sampled_from((2, 1, 3, 5, 8, 17))
    step = st.one_of(
        st.builds("run:{}".format, threads),
        st.builds("set:{}".format, threads),
        st.builds("together:{}".format, st.sampled_from((2, 3, 4, 8))),
        st.builds("build:{}".format, st.sampled_from((2, 3))),
        st.builds("interrupt:{}".format, st.integers(0, 60)),
    )
    return st.lists(step, min_size=1, max_size=6).map(" ".join)


def _run(text: str) -> Outcome:
    works = [Work.of(desc) for desc in descriptions(_SIZE)]
    try:
        for step in text.split(" "):
            name, _, number = step.partition(":")
            wrong = _STEPS[name](works, int(number))
            if wrong:
                return failed(f"{name}: {wrong}", f"in {step}")
    finally:
        dnnl.set_num_threads(None)
    return PASSED


def _set(works: Sequence[Work], threads: int) -> str:
    dnnl.set_num_threads(threads)
    return _wrong(works, None)


def _wrong(works: Sequence[Work], threads: int | None) -> str:
    bad = [work.desc.kind for work in works if not work.right(threads)]
    return f"other bits of {', '.join(bad)}" if bad else ""


def _together(works: Sequence[Work], count: int) -> str:
    def many(first: int) -> str:
        found = [_wrong(works, 1 + (first + number) % 4) for number in range(_EACH)]
        return next(filter(None, found), "")

    with ThreadPoolExecutor(count) as pool:
        return next(filter(None, pool.map(many, range(count))), "")


def _build(_: Sequence[Work], count: int) -> str:
    """New kernels, some of them asked for by all threads."""
    shared = descriptions(fresh_size())

    def build(number: int) -> str:
        own = descriptions(fresh_size())
        made = [Work.of(desc) for desc in (*shared[number % 2 :], *own)]
        return _wrong(made, 2)

    with ThreadPoolExecutor(count) as pool:
        return next(filter(None, pool.map(build, range(count))), "")


def _interrupt(works: Sequence[Work], milliseconds: int) -> str:
    """A signal of the terminal while the main thread compiles and executes; another one where it
    came into a destructor, which lets no exception out."""
    seen = threading.Event()

    def send() -> None:
        sleep(milliseconds / 1000)
        while not seen.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            seen.wait(_AGAIN)

    def interrupt(*_: object) -> None:
        if not seen.is_set():
            raise KeyboardInterrupt

    before, end = signal.signal(signal.SIGINT, interrupt), monotonic() + _PATIENCE
    sender = threading.Thread(target=send)
    try:
        sender.start()
        while monotonic() < end:
            _wrong(works, 2)
            Work.of(descriptions(fresh_size())[1])
        return "no KeyboardInterrupt"
    except KeyboardInterrupt:
        pass
    finally:
        seen.set()
        sender.join()
        signal.signal(signal.SIGINT, before)
    return _wrong(works, None) or _wrong([work.again() for work in works], 2)


_STEPS: dict[str, Callable[[Sequence[Work], int], str]] = {
    "run": _wrong, "set": _set, "together": _together, "build": _build, "interrupt": _interrupt,
}  # fmt: skip

KIND = Kind("threads", "threads and signals", _cases, _run, __name__, lives=60)
