"""Interrupts that wait: SIGINT while the main thread is in a library that it would break."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Deferred:
    """Within ``with Deferred():`` SIGINT is noted, and handled at its end.

    Python runs handlers in its main thread, between any two lines. The bindings of LLVM free memory
    in one line and note that in the next: an interrupt between them, and it is freed twice. Other
    threads are not interrupted, so that nothing is done there.
    """

    __slots__ = ("_before", "_noted")

    def __enter__(self) -> None:
        self._before: Any = None
        self._noted: tuple[int, FrameType | None] | None = None
        if threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(signal.SIGINT)
        if callable(before):  # not one of C, and neither ignored nor left to the system
            self._before = before
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted = number, frame

    def __exit__(self, *exception: object) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGINT, self._before)
        if self._noted is not None:
            self._before(*self._noted)
