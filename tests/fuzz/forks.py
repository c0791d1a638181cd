"""Forks while other threads compile, execute and make primitives that are there already: the child
compiles something new, executes it and ends.

A case is ``COMPILING EXECUTING AGAIN DELAYS``: how many threads do what, and after how many ms the
process forks each time: ``1 1 1 0,5,20``.
"""

from __future__ import annotations

import os
import signal
import threading
from time import sleep

from hypothesis import strategies as st

import dnnl
from dnnl import config
from tests.forking import DONE, forked
from tests.fuzz.kind import PASSED, Kind, Outcome, failed
from tests.fuzz.work import Work, descriptions, fresh_size

_SIZE = 1024
_LIMIT = 60.0  # seconds in which a child must have ended
_WRONG = DONE + 1


def _cases() -> st.SearchStrategy[str]:
    delays = st.lists(st.integers(0, 40), min_size=1, max_size=4)
    return st.builds(
        "{} {} {} {}".format,
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 2),
        delays.map(lambda numbers: ",".join(map(str, numbers))),
    )


def _run(text: str) -> Outcome:
    compiling, executing, again, delays = text.split(" ")
    works = [Work.of(desc) for desc in descriptions(_SIZE)]
    over = threading.Event()
    busy = [
        *(threading.Thread(target=_compile, args=(over,)) for _ in range(int(compiling))),
        *(threading.Thread(target=_execute, args=(works, over)) for _ in range(int(executing))),
        *(threading.Thread(target=_again, args=(works, over)) for _ in range(int(again))),
    ]
    with config.override("cache_limit", 0):
        for thread in busy:
            thread.start()
        try:
            for number, delay in enumerate(delays.split(",")):
                sleep(int(delay) / 1000)
                wrong = _fork(works, fresh_size())
                if wrong:
                    return failed(f"fork: {wrong}", f"child {number} of {text}")
        finally:
            over.set()
            for thread in busy:
                thread.join()
    return PASSED if all(work.right(2) for work in works) else failed("wrong in the parent")


def _compile(over: threading.Event) -> None:
    while not over.is_set():
        Work.of(descriptions(fresh_size())[1])


def _execute(works: list[Work], over: threading.Event) -> None:
    while not over.is_set():
        for work in works:
            work.result(2)


def _again(works: list[Work], over: threading.Event) -> None:
    """From the cache, whose lock a fork must not find taken."""
    while not over.is_set():
        for work in works:
            dnnl.Primitive(work.primitive.pd)


def _fork(works: list[Work], size: int) -> str:
    """What is wrong with a child, if anything is."""

    def work() -> None:
        made = [*works, *(Work.of(desc) for desc in descriptions(size))]
        if not all(work.right(2) for work in made):
            os._exit(_WRONG)

    code = forked(work, _LIMIT)
    known = {DONE: "", _WRONG: "the child has other results", -signal.SIGKILL: "the child hangs"}
    return known.get(code, f"the child ended with {code}")


KIND = Kind(
    "fork", "forks while threads compile and execute", _cases, _run, __name__, timeout=300, lives=20
)
