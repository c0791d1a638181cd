"""Executions whose memories nobody checks: what the steps of models consist of."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from dnnl import log
from dnnl.runtime.backend import Argument, Executable
from dnnl.runtime.engine import Engine
from dnnl.runtime.event import Event
from dnnl.runtime.image import Image
from dnnl.runtime.memory import Memory
from dnnl.runtime.size_class import SizeClass
from dnnl.runtime.stream import Stream
from dnnl.types.memory_desc import MemoryDesc


class Numbers(Protocol):
    """Numbers of an execution in the memory of an engine."""

    @property
    def argument(self) -> Argument:
        """What a kernel gets."""


class HostNumbers:
    """An array of 64-bit integers in the host's memory, as an argument of a kernel."""

    __slots__ = ("__weakref__", "_data", "argument")

    def __init__(self, numbers: Sequence[int]) -> None:
        self._data = (ctypes.c_int64 * len(numbers))(*numbers)
        self.argument = ctypes.addressof(self._data)


def numbers_at(engine: Engine, numbers: Sequence[int]) -> HostNumbers | Memory:
    """An array of 64-bit integers in the memory of an engine."""
    if engine.host_memory:
        return HostNumbers(numbers)
    data = np.array(numbers, np.int64).view(np.uint8)
    made = Memory(MemoryDesc((data.size,), "u8"), engine)
    made.write(data)
    return made


class Launch(NamedTuple):
    """An execution whose memories nobody checks.

    ``executable`` takes the addresses of the arguments in ``order``, then that of ``sizes`` if
    there are such. Temporary memory of ``scratchpad_size`` bytes is one of the arguments if the
    description leaves it to the user. ``kind`` is that of the operation, ``fields()`` what a
    verbose line says of it.
    """

    executable: Executable
    order: tuple[int, ...]
    sizes: Numbers | None
    scratchpad_size: int
    kind: str
    fields: Callable[[], str]

    def on(self, stream: Stream) -> Callable[[list[Any], int], Event]:
        """What executes it on the addresses of its arguments and on so many threads.

        Executions are reported in verbose lines if these are switched on now.
        """
        submit = partial(stream.queue.submit, self.executable)
        if not log.enabled("profile_exec", self.kind):
            return submit
        return lambda args, threads: logged(self.fields, lambda: submit(args, threads))


def logged(fields: Callable[[], str], run: Callable[[], Event]) -> Event:
    """One execution, waited for, with a line about its time."""
    started = perf_counter()
    event = run()
    with suppress(Exception):  # the caller finds it in the event
        event.wait()
    ms = (perf_counter() - started) * 1e3
    log.line("primitive", "exec", fields(), ms=ms)
    return event


@dataclass(frozen=True)
class KernelCode:
    """Code of an execution that nobody checks: an image, the ``order`` of its arguments, and the
    executions that it serves (`SizeClass`); where all sizes are known that is None, and
    ``scratchpad`` has the bytes of temporary memory. ``kind`` and ``fields`` are those of `Launch`.
    """

    image: Image
    order: tuple[int, ...]
    kind: str
    fields: str
    scratchpad: int = 0
    size_class: SizeClass | None = None
