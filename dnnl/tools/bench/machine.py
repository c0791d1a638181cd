"""The machine's limits as contenders: products per second on registers, and bytes copied."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dnnl import config
from dnnl.codegen import jit, vector
from dnnl.codegen.builder import I32, Module, Value, Values, i64
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Recipe
from dnnl.codegen.multiply import Multiply, multiply
from dnnl.codegen.phase import PhaseFunction
from dnnl.errors import Unimplemented
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.tools.bench.trial import PATTERN
from dnnl.tools.measure import Contender
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

PEAK = "peak"
COPY = "copy"

_PART = 1 << 20
_STEPS = 20_000  # of the loop: with about 20 sums a millisecond or less


@dataclass(frozen=True)
class PeakConf:
    """One independent work item for each thread, and the loop that it does."""

    items: int
    sums: int
    steps: int
    how: Multiply


def _build(conf: PeakConf, isa: Isa) -> Kernel:
    """Products on registers alone: more sums than the latency of one times its throughput.

    Where one instruction multiplies and adds, the operands of the product never change. Where two
    do, each product takes the sum before: one of operands that never change is a loop invariant.
    """
    module = Module("peak", isa)
    phase = PhaseFunction(module, "peak", [0, 1])
    e, how = phase.e, conf.how
    operands, results = phase.arguments[0], phase.arguments[1]
    a, b = how.broadcast(e, operands), how.load(e, operands)
    kind = how.zero(e).type
    start = tuple(vector.splat_constant(kind, number) for number in range(conf.sums))
    constant = e.b.bitcast(b[0], kind)

    def step(_: Value, *sums: Value) -> Values:
        if how.dot.instruction and how.dot.add:
            return tuple(how.add(e, a, b, total) for total in sums)
        varied = (tuple(e.b.bitcast(total, part.type) for part in a) for total in sums)
        return tuple(how.add(e, registers, b, constant) for registers in varied)

    def item(number: Value) -> None:
        total, *others = e.loop(i64(0), i64(conf.steps), step, start, unroll=False)
        for value in others:
            total = e.b.add(total, value) if how.accumulator is I32 else e.b.fadd(total, value)
        vector.store(e, total, e.element(results, e.mul(number, isa.lanes), how.accumulator))

    phase.each_item(conf.items, item)
    return Kernel(module, (phase.end(conf.items),), (int(Arg.SRC), int(Arg.DST)))


def peak(
    engine: Engine,
    num_threads: int,
    src: DataType = DataType.f32,
    weights: DataType = DataType.f32,
) -> Contender:
    """Products of two types on every thread, by the instruction that kernels take for them.

    The work is the multiplications and additions of one run.
    """
    isa = select_isa(engine)
    how = multiply(isa, src, weights)
    if how is None:
        raise Unimplemented(f"no kernel multiplies {src} by {weights}")
    conf = PeakConf(num_threads, min(24, isa.registers - 4) // how.span, _STEPS, how)
    with tempfile.TemporaryDirectory() as folder, config.override("cache_dir", folder):
        image, _ = jit.image(Recipe(conf, isa, _build))
    vector_size = 4 * isa.lanes * how.span
    operands, results = _bytes(vector_size, engine), _bytes(vector_size * num_threads, engine)
    operands[:] = PATTERN
    executable, arguments = engine.load(image), (operands.ctypes.data, results.ctypes.data)
    buffers = (operands, results)
    run = engine.make_queue(in_order=True).bind(executable, arguments, num_threads, buffers)
    return Contender(PEAK, run, 2 * isa.lanes * how.group * conf.sums * conf.steps * num_threads)


def peaks(engine: Engine, num_threads: int) -> dict[str, Contender]:
    """f32 multiply-adds, and the products of narrow types that have an instruction, by the types'
    names."""
    pairs = {"f32": (DataType.f32, DataType.f32)}
    for dot in select_isa(engine).dots:
        if dot.instruction and dot.add:
            name = dot.a if dot.a == dot.b else f"{dot.a} x {dot.b}"
            pairs[name] = DataType[dot.a], DataType[dot.b]
    return {
        name: replace(peak(engine, num_threads, *pair), name=name) for name, pair in pairs.items()
    }


def _bytes(count: int, engine: Engine) -> NDArray[np.uint8]:
    return Memory(MemoryDesc((count,), "u8"), engine).data


class Copies:
    """``numpy.copyto`` with each thread taking its part of the bytes; close it after use.

    A part has a MiB at least: handing a smaller one to another thread takes longer than copying it.
    """

    def __init__(self, num_threads: int) -> None:
        self._helpers = ThreadPoolExecutor(num_threads - 1) if num_threads > 1 else None
        self._parts = num_threads

    def contender(self, nbytes: int, engine: Engine) -> Contender:
        """A copy of ``nbytes`` bytes; the work is the bytes read and written."""
        src, dst = _bytes(nbytes, engine), _bytes(nbytes, engine)
        src[:] = 1
        parts = max(1, min(self._parts, nbytes // _PART))
        bounds = [nbytes * part // parts for part in range(parts + 1)]
        calls = [
            partial(np.copyto, dst[begin:end], src[begin:end]) for begin, end in pairwise(bounds)
        ]
        return Contender(COPY, self._together(calls), 2 * nbytes)

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
