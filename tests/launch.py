"""Running loaded code on addresses, without a primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dnnl.runtime.backend import Executable
from dnnl.runtime.engine import Engine

_QUEUE = Engine("cpu").make_queue(in_order=True)


def launch(executable: Executable, pointers: Sequence[int], threads: int = 1) -> None:
    """Run it on the cpu; it is done when this returns."""
    _QUEUE.submit(executable, pointers, threads).wait()


def bind(executable: Executable, pointers: Sequence[int], threads: int) -> Callable[..., Any]:
    """`launch` with the arguments prepared; the caller keeps what lies at the addresses."""
    return _QUEUE.bind(executable, pointers, threads, None)
