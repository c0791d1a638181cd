"""The library's own scratchpads: whose launch is done, its scratchpad serves the next one."""

from __future__ import annotations

from typing import Any

from dnnl.runtime.backend import Queue
from dnnl.runtime.engine import Engine
from dnnl.runtime.event import Event
from dnnl.runtime.memory import Memory
from dnnl.runtime.stream import Stream
from dnnl.types.memory_desc import MemoryDesc


class Scratchpads:
    """Those of one primitive for the executions of one thread: as large as the largest so far.

    A launch owns its scratchpad until it is done. The next one takes another meanwhile, unless it
    is in the same ordered queue and so begins when that one is done.
    """

    __slots__ = ("_engine", "_lent", "idle")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: Free scratchpads, taken from and put back.
        self.idle: list[Memory] = []
        self._lent: list[tuple[Event, Queue[Any] | None, Memory]] = []

    def find(self, stream: Stream, size: int) -> Memory:
        """One for a launch on a stream, of at least ``size`` bytes."""
        while self.idle:
            memory = self.idle.pop()
            if memory.desc.size >= size:
                return memory
        for number, (event, queue, memory) in enumerate(self._lent):
            if queue is stream.queue or event.done:
                del self._lent[number]
                if memory.desc.size >= size:
                    return memory
                break
        return Memory(MemoryDesc((size,), "u8"), self._engine)

    def lend(self, memory: Memory, event: Event, stream: Stream) -> None:
        """Keep one for the launch of that event."""
        self._lent.append((event, stream.queue if stream.in_order else None, memory))
