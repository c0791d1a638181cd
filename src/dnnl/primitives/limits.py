"""What the machine can do at most, measured by generated loops once in a process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter

from dnnl import config
from dnnl.codegen.compile import jit
from dnnl.codegen.ir.kernel import Recipe
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import Multiply
from dnnl.primitives.peak import PeakConf, ReadConf, build_peak, build_read
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.types.memory_desc import MemoryDesc

PATTERN = 0x3F
"""A byte that makes ordinary numbers in every type."""

_SECONDS = 0.05  # of one measurement, with five runs at least
_RUNS = 5
_LEAST, _MOST = 2**15, 2**27
_ITEM = 2**14  # bytes: what a work item reads at least


@dataclass(frozen=True)
class Limits:
    """``operations``: multiplications and additions in a second, by the instruction for two types
    of factors. ``bandwidth``: bytes read in a second, ``reach`` bytes again and again, so that they
    come from the cache that holds them. Both for ``num_threads`` threads in total."""

    operations: float
    factors: str
    bandwidth: float
    reach: int
    num_threads: int


def limits(engine: Engine, isa: Isa, how: Multiply, nbytes: int, num_threads: int) -> Limits:
    """Those for products of one kind on so many bytes."""
    reach = min(_MOST, max(_LEAST, 1 << (max(1, nbytes) - 1).bit_length()))
    return Limits(
        operations(engine, isa, how.on_registers, num_threads),
        str(how.a) if how.a is how.b else f"{how.a} x {how.b}",
        bandwidth(engine, isa, reach, num_threads),
        reach,
        num_threads,
    )


def products(engine: Engine, isa: Isa, how: Multiply, num_threads: int) -> Callable[[], object]:
    """One run of the loop of products."""
    conf = PeakConf.of(how, isa, num_threads)
    size = conf.vector_size(isa)
    return _run(Recipe(conf, isa, build_peak), engine, (size, size * num_threads), num_threads)


@lru_cache(maxsize=64)
def operations(engine: Engine, isa: Isa, how: Multiply, num_threads: int) -> float:
    """Multiplications and additions in a second, on registers alone."""
    run = products(engine, isa, how, num_threads)
    return PeakConf.of(how, isa, num_threads).operations(isa) / _least(run)


@lru_cache(maxsize=64)
def bandwidth(engine: Engine, isa: Isa, nbytes: int, num_threads: int) -> float:
    """Bytes in a second of a loop that reads the same ones, a power of two, in each run."""
    items = max(1, min(16 * num_threads, nbytes // _ITEM))
    conf = ReadConf(items, nbytes // items // ReadConf.run(isa))
    read = items * conf.steps * ReadConf.run(isa)
    sizes = (read, 4 * isa.lanes * items)
    return read / _least(_run(Recipe(conf, isa, build_read), engine, sizes, num_threads))


def _run(
    recipe: Recipe, engine: Engine, sizes: tuple[int, int], num_threads: int
) -> Callable[[], object]:
    """One execution on operands of so many bytes."""
    with tempfile.TemporaryDirectory() as folder, config.override("cache_dir", folder):
        image, _ = jit.image(recipe)
    buffers = [Memory(MemoryDesc((size,), "u8"), engine).data for size in sizes]
    buffers[0][:] = PATTERN
    addresses = [data.ctypes.data for data in buffers]
    return engine.make_queue(in_order=True).bind(
        engine.load(image), addresses, num_threads, buffers
    )


def _least(run: Callable[[], object]) -> float:
    """The seconds of the fastest run."""
    run()
    least, ends, runs = float("inf"), perf_counter() + _SECONDS, 0
    while runs < _RUNS or perf_counter() < ends:
        started = perf_counter()
        run()
        least = min(least, perf_counter() - started)
        runs += 1
    return least
