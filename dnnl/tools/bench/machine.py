"""The machine's two limits, measured: multiply-adds per second and bytes copied per second."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dnnl import config
from dnnl.codegen import jit, vector
from dnnl.codegen.builder import F32, Module, Value, Values, i64
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Recipe
from dnnl.codegen.phase import PhaseFunction
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

_PART = 1 << 20
_STEPS = 20_000  # of the loop: with about 20 independent sums a millisecond or less


@dataclass(frozen=True, slots=True)
class Work:
    """Something to run, and what one run achieves: FLOP or bytes."""

    run: Callable[[], object]
    amount: float


@dataclass(frozen=True)
class PeakConf:
    """One independent work item for each thread, and the loop that it does."""

    items: int
    sums: int
    steps: int


def _build(conf: PeakConf, isa: Isa) -> Kernel:
    """Multiply-adds on registers alone: more sums than the latency of one times its throughput."""
    module = Module("fma_peak", isa)
    phase = PhaseFunction(module, "fma_peak", [0])
    e = phase.e
    kind = vector.vector_type(F32, isa.lanes)
    factor = vector.splat_constant(kind, 0.999)
    start = tuple(vector.splat_constant(kind, float(i)) for i in range(conf.sums))

    def step(_: Value, *sums: Value) -> Values:
        return tuple(vector.multiply_add(e, value, factor, factor) for value in sums)

    def item(number: Value) -> None:
        total, *others = e.loop(i64(0), i64(conf.steps), step, start, unroll=False)
        for value in others:
            total = e.b.fadd(total, value)
        place = e.element(phase.arguments[0], e.mul(number, isa.lanes), F32)
        vector.store(e, total, place)

    phase.each_item(conf.items, item)
    return Kernel(module, (phase.end(conf.items),), (int(Arg.DST),))


def multiply_adds(engine: Engine, num_threads: int) -> Work:
    """f32 multiply-adds at full speed on every thread; the amount is the FLOP of one run."""
    isa = select_isa(engine)
    conf = PeakConf(num_threads, min(24, isa.registers - 4), _STEPS)
    with tempfile.TemporaryDirectory() as folder, config.override("cache_dir", folder):
        image, _ = jit.image(Recipe(conf, isa, _build))
    results = _bytes(4 * isa.lanes * num_threads, engine)
    executable, arguments = engine.load(image), (results.ctypes.data,)
    run = engine.make_queue(in_order=True).bind(executable, arguments, num_threads, results)
    flops = 2 * isa.lanes * conf.sums * conf.steps * num_threads
    return Work(run, flops)


def _bytes(count: int, engine: Engine) -> NDArray[np.uint8]:
    return Memory(MemoryDesc((count,), "u8"), engine).data


class Copies:
    """``numpy.copyto`` with each thread taking its part of the bytes; close it after use.

    A part has a MiB at least: handing a smaller one to another thread takes longer than copying it.
    """

    def __init__(self, num_threads: int) -> None:
        self._helpers = ThreadPoolExecutor(num_threads - 1) if num_threads > 1 else None
        self._parts = num_threads

    def work(self, nbytes: int, engine: Engine) -> Work:
        """A copy of ``nbytes`` bytes; the amount is the bytes read and written."""
        src, dst = _bytes(nbytes, engine), _bytes(nbytes, engine)
        src[:] = 1
        parts = max(1, min(self._parts, nbytes // _PART))
        bounds = [nbytes * part // parts for part in range(parts + 1)]
        calls = [
            partial(np.copyto, dst[begin:end], src[begin:end]) for begin, end in pairwise(bounds)
        ]
        return Work(self._together(calls), 2 * nbytes)

    def _together(self, calls: list[partial[None]]) -> Callable[[], object]:
        helpers = self._helpers
        if helpers is None or len(calls) == 1:
            return calls[0]

        def run() -> None:
            pending = [helpers.submit(call) for call in calls[1:]]
            calls[0]()
            for future in pending:
                future.result()

        return run

    def close(self) -> None:
        """End the helping threads."""
        if self._helpers is not None:
            self._helpers.shutdown()
