"""Streams: where executions are submitted."""

from __future__ import annotations

from dnnl.runtime.engine import Engine, checked_engine
from dnnl.runtime.threads import checked_num_threads, get_num_threads


class Stream:
    """An in-order queue of an engine. On the cpu every execution is complete when it returns.

    ``num_threads`` is what its executions use; by default what `get_num_threads` says at the time.
    """

    __slots__ = ("_num_threads", "engine")

    def __init__(self, engine: Engine, num_threads: int | None = None) -> None:
        self.engine = checked_engine(engine)
        self._num_threads = None if num_threads is None else checked_num_threads(num_threads)

    @property
    def num_threads(self) -> int:
        """Threads of an execution submitted now, the calling one included."""
        return self._num_threads or get_num_threads()

    def wait(self) -> None:
        """Return when everything submitted so far is complete."""

    def __repr__(self) -> str:
        return f"Stream({self.engine!r}, num_threads={self._num_threads})"
