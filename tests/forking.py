"""Children of a fork in tests."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable

DONE = 7
"""The exit code of a child that did all of its work; another one says that it did not."""


def forked(work: Callable[[], object], limit: float = 60) -> int:
    """The exit code of a child that calls ``work``; -9 where that takes more than ``limit``
    seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads, on purpose
        pid = os.fork()
    if pid == 0:
        status = 99
        try:
            work()
            status = DONE
        finally:
            os._exit(status)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
