"""The cpu engine: object code linked into this process, phases spread over a pool of threads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache

from dnnl import log
from dnnl.errors import Error, InvalidArguments
from dnnl.runtime.backend import Backend, Features, Queue
from dnnl.runtime.engines import cpu_jit
from dnnl.runtime.engines.cpu_caches import cache_sizes
from dnnl.runtime.engines.cpu_launch import CpuQueue, LoadedProgram, Program, entry_function
from dnnl.runtime.engines.cpu_pool import NativePool
from dnnl.runtime.engines.cpu_serial import SerialPool
from dnnl.runtime.image import Image
from dnnl.runtime.threads import ThreadPool, get_num_threads

POOLS: tuple[type[ThreadPool], ...] = (NativePool, SerialPool)  # the first that works is taken

# Code is never unmapped, so what is here stays. Guarded by `cpu_jit.lock`.
_linked: dict[bytes, tuple[int, ...]] = {}
_programs: dict[tuple[tuple[int, int], ...], Program] = {}


class Engine(Backend):
    """The processors of this machine, as one device."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        log.describe("cpu,runtime", lambda: f"cpu,runtime:{pool_name()},nthr:{get_num_threads()}")

    @classmethod
    def count(cls) -> int:
        return 1

    def features(self) -> Features:
        return _features()

    def load(self, image: Image) -> LoadedProgram:
        if image.target != "cpu":
            raise InvalidArguments("image.target", image.target, "engine 'cpu' runs 'cpu' images")
        symbols = tuple(dict.fromkeys(phase.symbol for phase in image.phases))
        digest = hashlib.sha256("\0".join(symbols).encode() + b"\0" + image.code).digest()
        with cpu_jit.lock:
            if digest not in _linked:
                _linked[digest] = cpu_jit.link(image.code, symbols) if symbols else ()
            address = dict(zip(symbols, _linked[digest], strict=True))
            functions = tuple((address[phase.symbol], phase.count) for phase in image.phases)
            program = _programs.setdefault(functions, Program(functions))
            _, run = _pool()
        items = max((phase.count for phase in image.phases), default=0)
        return LoadedProgram(program.address, len(image.arguments), run, image.scratch, items)

    def make_queue(self, in_order: bool) -> Queue[LoadedProgram]:
        return CpuQueue()


@cache
def _features() -> Features:
    return Features(*cpu_jit.host(), caches=cache_sizes())


def pool_name() -> str:
    """How verbose lines call the pool of this process."""
    with cpu_jit.lock:
        return _pool()[0]


@cache
def _pool() -> tuple[str, Callable[[bytes], None]]:
    """Name and ``run`` of the process's only pool; the caller holds the lock."""
    refusals = []
    for pool in POOLS:
        if pool.supported():
            try:
                return pool.name, entry_function(pool().entry())
            except Error as error:  # a system library lacks what the pool calls
                refusals.append(f"{pool.name}: {error}")
    raise Error(f"no thread pool works on this system: {'; '.join(refusals)}")
