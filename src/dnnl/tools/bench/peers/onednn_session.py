"""oneDNN ready for work: the newest build that starts, its engine, its stream."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from dnnl.errors import Unimplemented
from dnnl.language.errors import BadValue
from dnnl.runtime.storage import allocate
from dnnl.tools.bench.peers.onednn_builds import BUILDS
from dnnl.tools.bench.peers.onednn_library import (
    CPU,
    DEFAULT_STREAM,
    ExecArg,
    Handle,
    Library,
)
from dnnl.tools.measure import Queue
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc


class Session:
    """A build with an engine and a stream, for so many threads as far as it must know at its start.

    The first of ``builds`` that starts; raises BadValue where none does.
    """

    def __init__(self, num_threads: int, builds: Sequence[type[Library]] = BUILDS) -> None:
        reasons = []
        for build in builds:
            try:
                self._start(build(), num_threads)
                break
            except (BadValue, OSError, Unimplemented) as error:
                reasons.append(f"{build.package}: {error}")
        else:
            raise BadValue("--peer=onednn needs pip install onednn: " + "; ".join(reasons))
        self.name = f"onednn {self.library.version}"

    def _start(self, library: Library, num_threads: int) -> None:
        with library.starting(num_threads):
            self.library = library
            none = ctypes.c_size_t(0)
            self.engine = library.create("engine", "engine_create", CPU, none)
            self.stream = library.create("stream", "stream_create", self.engine, DEFAULT_STREAM)
            self._nothing = self._smallest()
            self.run(*self._nothing[:2])
        self.queue = self._queue() if library.asynchronous else None

    def _smallest(self) -> tuple[Handle, Mapping[int, Handle], object]:
        """A copy of one element, its memories, and what these point to."""
        desc = self.library.memory_desc(MemoryDesc((1,), "f32"))
        assert desc is not None
        ends = (desc, self.engine, desc, self.engine, None)
        pd = self.library.create("primitive_desc", "reorder_primitive_desc_create", *ends)
        data = [allocate(4) for _ in range(2)]
        memories = {
            int(argument): self.memory(desc, array.ctypes.data)
            for argument, array in zip((Arg.FROM, Arg.TO), data, strict=True)
        }
        return self.library.create("primitive", "primitive_create", pd), memories, data

    def memory(self, desc: Handle, address: int) -> Handle:
        """A tensor on the bytes at an address."""
        pointer = ctypes.c_void_p(address)
        return self.library.create("memory", "memory_create", desc, self.engine, pointer)

    def run(self, primitive: Handle, memories: Mapping[int, Handle]) -> Callable[[], object]:
        """Execute once, checked and to the end; what starts another execution.

        What is returned is the C function with all its arguments ready, which holds no references:
        it is valid as long as the primitive and the memories live. Where the build is
        asynchronous, the work is done when ``queue.wait`` returns.
        """
        entries = [ExecArg(argument, handle.value) for argument, handle in memories.items()]
        array = (ExecArg * len(entries))(*entries)
        arguments = primitive.value, self.stream.value, ctypes.c_int(len(entries)), array
        self.library.call("primitive_execute", *arguments)
        self.library.call("stream_wait", self.stream)
        return partial(self.library.c.dnnl_primitive_execute, *arguments)

    def _queue(self) -> Queue:
        start = self.run(*self._nothing[:2])
        return Queue(partial(self.library.c.dnnl_stream_wait, self.stream.value), start)
