"""What is watched, a row each."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from dnnl import Arg, EltwiseDesc, Engine, Memory, MemoryDesc, Primitive, PrimitiveDesc, Stream

PROCESS = Path("/proc/self")
_MIB = 2**20
_BATCHES, _CALLS = 5, 20


@dataclass(frozen=True)
class Line:
    """A number that must not rise, and by how much it may, see `rise`."""

    name: str
    unit: str
    read: Callable[[], float]
    absolute: float
    relative: float

    def text(self, value: float, form: str = ".4g") -> str:
        """A value with its unit."""
        return f"{value:{form}} {self.unit}"


@cache
def _trim() -> Callable[[int], object]:
    """The C library's function that gives back what is free, where it has one (not in musl)."""
    library = ctypes.CDLL(None)
    return getattr(library, "malloc_trim", lambda _: None)


def _resident() -> float:
    """Without what the allocator keeps for later, which is now more and now less."""
    _trim()(0)
    pages = int((PROCESS / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


def _mappings() -> float:
    return (PROCESS / "maps").read_bytes().count(b"\n")


def _files() -> float:
    return len(os.listdir(PROCESS / "fd"))


def _threads() -> float:
    return len(os.listdir(PROCESS / "task"))


@cache
def _probe() -> Callable[[], object]:
    engine, desc = Engine("cpu"), MemoryDesc((4, 16), "f32")
    memory = Memory.from_numpy(np.zeros((4, 16), np.float32))
    relu = EltwiseDesc.forward("forward_inference", "eltwise_relu", desc, desc)
    primitive, stream = Primitive(PrimitiveDesc(relu, engine)), Stream(engine, 1)
    args = {Arg.SRC: memory, Arg.DST: memory}
    return lambda: primitive.execute(stream, args)


def _execution() -> float:
    """Microseconds of a small execution, the best of a few, as others use the machine too."""
    execute, best = _probe(), float("inf")
    for _ in range(_BATCHES):
        start = time.perf_counter()
        for _ in range(_CALLS):
            execute()
        best = min(best, time.perf_counter() - start)
    return best / _CALLS * 1e6


LINES = (
    Line("resident memory", "MiB", _resident, 4.0, 0.02),
    Line("mappings", "mappings", _mappings, 20.0, 0.02),
    Line("open files", "files", _files, 1.0, 0.0),
    Line("threads", "threads", _threads, 1.0, 0.0),
    Line("time per execution", "us", _execution, 1.0, 0.5),
)
