"""Streams: where executions are submitted."""

from __future__ import annotations

from typing import Any

from dnnl.errors import InvalidArguments
from dnnl.onednn import Value
from dnnl.runtime.backend import Queue
from dnnl.runtime.engine import Engine, checked_engine
from dnnl.runtime.threads import checked_num_threads, get_num_threads


class Stream(Value):
    """A queue of an engine.

    In order, each execution is after the one submitted before it. Out of order, executions wait for
    nothing but the events that they are given, and may overlap. On the cpu every execution is
    complete when its submission returns, whatever the order.

    ``num_threads`` is what executions on processors use; by default what `get_num_threads` says at
    the time.

    With ``profiling`` the device measures every execution, for `Event.seconds`. Devices of SYCL do;
    the cpu, whose executions are over when they return, does not.
    """

    __slots__ = ("_num_threads", "engine", "in_order", "profiling", "queue")

    engine: Engine
    in_order: bool
    profiling: bool
    #: Takes the launches.
    queue: Queue[Any]

    def __init__(
        self,
        engine: Engine,
        num_threads: int | None = None,
        *,
        in_order: bool = True,
        profiling: bool = False,
    ) -> None:
        self.engine = checked_engine(engine)
        self._num_threads = None if num_threads is None else checked_num_threads(num_threads)
        for name, value in (("in_order", in_order), ("profiling", profiling)):
            if not isinstance(value, bool):
                raise InvalidArguments(name, value, "expected True or False")
        self.in_order, self.profiling = in_order, profiling
        self.queue = engine.make_queue(in_order, profiling)

    @classmethod
    def of(
        cls, engine: Engine, queue: Queue[Any], *, in_order: bool, profiling: bool = False
    ) -> Stream:
        """The stream of a queue of the engine that was made apart."""
        made = cls.__new__(cls)
        made.engine, made._num_threads, made.queue = engine, None, queue
        made.in_order, made.profiling = in_order, profiling
        return made

    @property
    def num_threads(self) -> int:
        """Threads of an execution submitted now, the calling one included."""
        return self._num_threads or get_num_threads()

    def wait(self) -> None:
        """Return when everything submitted so far is done.

        Raises the first error since the last call.
        """
        self.queue.wait()

    def __repr__(self) -> str:
        order = "" if self.in_order else ", in_order=False"
        clock = ", profiling=True" if self.profiling else ""
        return f"Stream({self.engine!r}, num_threads={self._num_threads}{order}{clock})"
