"""The cpu engine: object code linked into this process, phases spread over a pool of threads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from dnnl import lazy, log
from dnnl.errors import Error, InvalidArguments
from dnnl.runtime.backend import Backend, Executable, Features, Queue
from dnnl.runtime.engines.cpu_caches import cache_sizes
from dnnl.runtime.engines.cpu_code import Code, lock
from dnnl.runtime.engines.cpu_features import features_by_system
from dnnl.runtime.engines.cpu_launch import CpuQueue, LoadedProgram, entry_function
from dnnl.runtime.engines.cpu_pages import Pages
from dnnl.runtime.engines.cpu_permission import permitted
from dnnl.runtime.engines.cpu_pool import NativePool
from dnnl.runtime.engines.cpu_serial import SerialPool
from dnnl.runtime.image import Image
from dnnl.runtime.threads import ThreadPool, get_num_threads

if TYPE_CHECKING:
    from dnnl.runtime.engines import cpu_jit
else:
    cpu_jit = lazy.Module("dnnl.runtime.engines.cpu_jit")  # and with it LLVM

# In the order in which they are tried: the first that works here is taken.
POOLS: tuple[type[ThreadPool], ...] = (NativePool, SerialPool)

# Code that somebody holds, by digest, so that equal code is loaded once. Guarded by `lock`.
_loaded: WeakValueDictionary[bytes, Code] = WeakValueDictionary()


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

    def lacking(self, features: Iterable[str]) -> tuple[str, ...]:
        found = features_by_system()
        have = self.features().flags if found is None else permitted(found)
        return tuple(feature for feature in features if feature not in have)

    def startup_code(self) -> Mapping[str, bytes]:
        return NativePool.startup_code() if NativePool.supported() else {}

    def offer(self, code: Mapping[str, bytes]) -> None:
        NativePool.offer(code)

    def load(self, image: Image) -> LoadedProgram:
        if image.target != "cpu":
            raise InvalidArguments("image.target", image.target, "engine 'cpu' runs 'cpu' images")
        symbols = tuple(dict.fromkeys(phase.symbol for phase in image.phases))
        digest = hashlib.sha256("\0".join(symbols).encode() + b"\0" + image.code).digest()
        with lock:
            code = _loaded.get(digest)
            if code is None and symbols:
                code = _loaded[digest] = _loader()(image.code, symbols)
            _, run = _pool()
        address = dict(zip(symbols, code.addresses if code else (), strict=True))
        functions = [(address[phase.symbol], phase.count) for phase in image.phases]
        arguments = len(image.arguments)
        return LoadedProgram(functions, code, arguments, run, image.scratch, image.repeats)

    def sized(self, executable: Executable, counts: Sequence[int]) -> Executable:
        return executable.sized(counts) if isinstance(executable, LoadedProgram) else executable

    def make_queue(self, in_order: bool, profiling: bool = False) -> Queue[LoadedProgram]:
        return CpuQueue()


@cache
def _features() -> Features:
    arch, cpu, flags = cpu_jit.host()
    return Features(arch, cpu, permitted(flags), caches=cache_sizes())


def pool_name() -> str:
    """How verbose lines call the pool of this process."""
    with lock:
        return _pool()[0]


@cache
def _loader() -> type[Code]:
    return Pages if Pages.supported() else cpu_jit.Linked


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
